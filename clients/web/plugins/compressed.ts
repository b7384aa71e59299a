// A Vite plugin: writes a Brotli and a gzip copy of each text file, for the API to serve.

import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import type { Plugin } from "vite";

const TEXT = /\.(js|css|html|svg|json|webmanifest)$/;
const BYTES_MIN = 512; // below this, the headers cost more than compression saves

/** Return the plugin. */
export function compressed(): Plugin {
  let folder = "";
  return {
    name: "compressed",
    apply: "build",
    enforce: "post",
    configResolved: (config) => {
      folder = config.build.outDir;
    },
    closeBundle: async () => {
      const names = await readdir(folder, { recursive: true });
      const texts = names.filter((name) => TEXT.test(name));
      await Promise.all(texts.map((name) => writeCompressed(folder, name)));
    },
  };
}

async function writeCompressed(folder: string, name: string): Promise<void> {
  const path = join(folder, name);
  const content = await readFile(path);
  if (content.length < BYTES_MIN) return;
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
  await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params }));
  await writeFile(`${path}.gz`, await promisify(gzip)(content, { level: 9 }));
}
