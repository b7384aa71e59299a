// Search in one chat: next to the chat, or on a phone instead of it.

import { buildPath, navigate } from "../page/router";
import { formatQuery } from "./query";

const PHONE = "(max-width: 719px)";

/** Open the search with the filter for a chat, which stays open beside it. */
export function openChatSearch(chat: string): void {
  const q = formatQuery({ chips: [{ name: "in", value: chat }], text: "" });
  const path = matchMedia(PHONE).matches ? "/search" : buildPath("/search/:chat", { chat });
  navigate(`${path}?${new URLSearchParams({ q }).toString()}`);
}
