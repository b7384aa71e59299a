// A message outside its chat: one line of text, and the path that opens its chat there.

import type { Http } from "tierchat";
import { buildPath } from "../page/router";
import { getPlainText } from "./markdown";

const LINE_MAX = 300;

/** Return the text of a message with the names of its files, shortened. */
export function formatMessageLine({ body, attachments = [] }: Http.Message): string {
  const texts = [getPlainText(body, LINE_MAX), ...attachments.map(({ name }) => name)];
  const line = texts.filter(Boolean).join(" · ");
  return line.length > LINE_MAX ? `${[...line].slice(0, LINE_MAX).join("")}…` : line;
}

/** Return the path of a message in its chat. */
export function buildMessagePath(chat: string, seq: number): string {
  return `${buildPath("/chats/:chat", { chat })}?seq=${seq}`;
}
