// Builds the same page as one script and one style, which `pyprof page` writes into a file with its data: from file://
// no module can be loaded.
import { join } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  publicDir: false,
  build: {
    outDir: join(process.env.PYPROF_STATIC ?? "../pyprof/server/static", "report"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      input: "src/report.ts",
      output: { codeSplitting: false, entryFileNames: "report.js", assetFileNames: "report.[ext]" },
    },
  },
});
