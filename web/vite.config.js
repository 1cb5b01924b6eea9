// Builds the page into the package, as data: whoever installs a wheel needs no Node.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const version = /VERSION = "([^"]+)"/.exec(readFileSync("../src/trainmover/version.py", "utf8"))[1];

export default defineConfig({
  define: { __VERSION__: JSON.stringify(version) },
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    outDir: "../src/trainmover/server/http/pages",
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
});
