// A Vite plugin: writes the list of files that the service worker caches for offline use.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const SCRIPT = "service_worker.js";
const PLACEHOLDER = "__PRECACHE__";
const SKIPPED = /^data(\/|$)/; // files loaded on demand, such as the emoji data

/** Return the plugin. */
export function precached(): Plugin {
  let publicFolder = ""; // its files are publicFolder unchanged
  return {
    name: "precached",
    apply: "build",
    configResolved: (config) => {
      publicFolder = config.publicDir;
    },
    generateBundle(_options, bundle) {
      const worker = bundle[SCRIPT];
      if (worker?.type !== "chunk") throw new Error(`${SCRIPT} is not in the bundle`);
      if (worker.imports.length > 0) throw new Error(`${SCRIPT} imports ${worker.imports.join()}`);
      const names = [...Object.keys(bundle), ...readdirSync(publicFolder)];
      const isPrecached = (name: string): boolean => name !== SCRIPT && !SKIPPED.test(name);
      const files = [...new Set(["index.html", ...names.filter(isPrecached)])].sort();
      const hash = createHash("sha256");
      for (const name of files) {
        const output = bundle[name];
        if (output === undefined) {
          hash.update(name === "index.html" ? "" : readPublicFile(publicFolder, name));
        } else hash.update(name).update(output.type === "chunk" ? output.code : output.source);
      }
      const list = JSON.stringify({ version: hash.digest("hex").slice(0, 16), files });
      if (!worker.code.includes(PLACEHOLDER)) throw new Error(`${PLACEHOLDER} is missing`);
      worker.code = worker.code.replace(PLACEHOLDER, list);
    },
  };
}

function readPublicFile(folder: string, name: string): Buffer {
  return readFileSync(join(folder, name));
}
