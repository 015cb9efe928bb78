import svelte from "eslint-plugin-svelte";
import globals from "globals";
import typescript from "typescript-eslint";
import config from "./svelte.config.js";

export default typescript.config(
  { ignores: ["node_modules", "src/api/schema.ts", "public"] },
  ...typescript.configs.recommended,
  ...svelte.configs.recommended,
  {
    rules: {
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", caughtErrors: "none" }],
      "svelte/prefer-svelte-reactivity": "off", // maps that a function makes and drops
      "svelte/no-unused-svelte-ignore": "off", // those are for svelte-check, which says itself when one is not needed
    },
  },
  { languageOptions: { globals: { ...globals.browser, ...globals.node } } },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: typescript.parser, extraFileExtensions: [".svelte"], svelteConfig: config } },
    // An expression alone is how an effect or a derived value says what it depends on.
    rules: { "@typescript-eslint/no-unused-expressions": "off" },
  },
);
