// The text of a post, folded if it is long.

import { MessageText } from "../content/MessageText";

/** Formatted text; nothing in it can run. */
export function PostText({ content }: { content: string }) {
  return <MessageText text={content} />;
}
