// Builds the page into the Python package, which serves it as plain files: no server side rendering, nothing inline.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const server = process.env.PYPROF_SERVER ?? "http://127.0.0.1:8000"; // of `npm run dev`: who answers /api

export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: process.env.PYPROF_STATIC ?? "../pyprof/viewer/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // the policy of the page allows no data: URLs
    reportCompressedSize: false,
  },
  server: { proxy: { "/api": server } },
});
