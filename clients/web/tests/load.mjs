// Loads TypeScript modules of the client in Node.

import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const SDK = `${ROOT}../typescript/src/`;
const ALIAS = [
  { find: /^tierchat\/react$/, replacement: `${SDK}react/index.ts` },
  { find: /^tierchat$/, replacement: `${SDK}index.ts` },
];
/** CSS modules keep the class names of the sources. */
const STYLES = {
  name: "styles",
  enforce: "pre",
  resolveId: (id) => (id.endsWith(".module.css") ? "\0styles" : null),
  load: (id) =>
    id === "\0styles" ? "export default new Proxy({}, { get: (_, name) => name })" : null,
};

/** Return the exports of a module; `path` is below `src`. */
export async function load(path) {
  const resolve = { alias: ALIAS, dedupe: ["react", "react-dom"] };
  const config = { configFile: false, root: ROOT, logLevel: "error", resolve, plugins: [STYLES] };
  return (await runnerImport(`${ROOT}src/${path}`, config)).module;
}
