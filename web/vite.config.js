// SPDX-License-Identifier: Apache-2.0
// Builds the page into the package, as data: whoever installs a wheel needs no Node. What it was built
// from is in built-from.txt, so that a test finds a page that is older than its sources.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { defineConfig } from "vite";

const version = /VERSION = "([^"]+)"/.exec(readFileSync("../src/trainmover/version.py", "utf8"))[1];

function sources() {
  const files = [...readdirSync("src").map((name) => `src/${name}`), "index.html", "package-lock.json"];
  const whole = createHash("sha256");
  for (const file of files.sort()) whole.update(readFileSync(file));
  return whole.digest("hex");
}

const builtFrom = {
  name: "built-from",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "built-from.txt", source: `${sources()}\n` });
  },
};

export default defineConfig({
  define: { __VERSION__: JSON.stringify(version) },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  plugins: [builtFrom],
  build: {
    outDir: "../src/trainmover/server/http/pages",
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
});
