// Exports the module together with the SDK's error class, for tests.

export { HttpClient } from "tierchat";
export { loadLinkPreview } from "../src/content/link_previews";
