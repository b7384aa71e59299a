// The module with the errors of the SDK that it knows, for tests.

export { HttpClient } from "tierchat";
export { loadLinkPreview } from "../src/content/link_previews";
