// A Vite plugin: adds the names of all emoji to the build. The picker loads them on demand.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";

const LANGUAGES = ["en", "de", "zh"];
const FILES = ["data.json", "messages.json"];

/** Return the plugin. It writes `data/emoji/<language>/`. */
export function emojiData(): Plugin {
  return {
    name: "emoji-data",
    apply: "build",
    async generateBundle() {
      for (const language of LANGUAGES) {
        for (const name of FILES) {
          const url = import.meta.resolve(`emojibase-data/${language}/${name}`);
          const source = await readFile(fileURLToPath(url));
          this.emitFile({ type: "asset", fileName: `data/emoji/${language}/${name}`, source });
        }
      }
    },
  };
}
