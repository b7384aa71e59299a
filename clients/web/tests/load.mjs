// Loads TypeScript modules of the client in Node.

import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** Return the exports of a module; `path` is below `src`. */
export async function load(path) {
  const config = { configFile: false, root: ROOT, logLevel: "error" };
  return (await runnerImport(`${ROOT}src/${path}`, config)).module;
}
