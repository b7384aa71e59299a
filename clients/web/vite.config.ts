// Builds the client to chatserver/web_client, which the API serves at /.

import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { compressed } from "./plugins/compressed.ts";
import { emojiData } from "./plugins/emoji_data.ts";
import { precached } from "./plugins/precached.ts";

const resolvePath = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

const FIRST_LOAD = new RegExp(
  [
    "node_modules/(react|react-dom|scheduler|lucide-react)/",
    "typescript/src/",
    "web/src/(shell|session|directory|chats|data|design|i18n/(?!de|zh)|page/router)",
    "web/src/(content/known_files|conversation/model/(failed_sends|unsent)|settings/appearance)",
  ].join("|"),
);

export default defineConfig({
  plugins: [emojiData(), precached(), compressed()],
  resolve: {
    // The sources of the SDK: nothing has to be compiled first, and unused parts are dropped.
    alias: [
      { find: /^tierchat\/react$/, replacement: resolvePath("../typescript/src/react/index.ts") },
      { find: /^tierchat$/, replacement: resolvePath("../typescript/src/index.ts") },
    ],
    dedupe: ["react", "react-dom"],
  },
  build: {
    target: ["chrome123", "firefox121", "safari17.5"],
    outDir: resolvePath("../../chatserver/web_client"),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      onLog(level, log, handle) {
        if (log.code !== "MODULE_LEVEL_DIRECTIVE") handle(level, log); // "use client" of libraries
      },
      input: {
        index: resolvePath("index.html"),
        service_worker: resolvePath("src/service_worker/service_worker.ts"),
      },
      output: {
        // The first load is one script. By default, each set of shared modules is one.
        codeSplitting: { groups: [{ name: "app", test: FIRST_LOAD }] },
        entryFileNames: ({ name }) =>
          name === "service_worker" ? "service_worker.js" : "assets/[name]-[hash].js",
      },
    },
  },
  server: {
    proxy: { "/v1": { target: "http://127.0.0.1:8081" } },
  },
});
