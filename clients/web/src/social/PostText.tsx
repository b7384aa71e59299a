// The text of a post, collapsed if it is long.

import { MessageText } from "../content/MessageText";

/** Formatted text. It is never parsed as HTML. */
export function PostText({ content }: { content: string }) {
  return <MessageText text={content} />;
}
