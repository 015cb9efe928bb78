// Builds the page into the Python package, which serves it as plain files: no server side rendering, nothing inline.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

const server = process.env.PYPROF_SERVER ?? "http://127.0.0.1:8000"; // of `npm run dev`: who answers /api

/** Folder of the package that a module belongs to: the next one above it with a package.json that has a version. */
function packageOf(module: string): string {
  for (let folder = dirname(module); ; folder = dirname(folder)) {
    const file = join(folder, "package.json");
    if (existsSync(file) && JSON.parse(readFileSync(file, "utf8")).version) return folder;
  }
}

/** Writes third-party.txt: the packages that are part of the page, each with its licence. */
function notices(): Plugin {
  return {
    name: "notices",
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        const modules = chunk.type === "chunk" ? chunk.moduleIds : [];
        for (const module of modules) {
          const path = module.replace(/^\0/, "").split("?")[0];
          if (path.includes("/node_modules/")) folders.add(packageOf(path));
        }
      }
      const parts = [...folders].map((folder) => {
        const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
        if (!file) throw new Error(`${name} ${version} has no licence text`);
        return `== ${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
      });
      const head = "The page of the viewer contains these packages.\n";
      this.emitFile({ type: "asset", fileName: "third-party.txt", source: [head, ...parts.sort()].join("\n") });
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [svelte(), notices()],
  build: {
    outDir: process.env.PYPROF_STATIC ?? "../pyprof/server/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // the policy of the page allows no data: URLs
    reportCompressedSize: false,
  },
  server: { proxy: { "/api": server } },
});
