// Renders components of the client to HTML, for tests.

import { renderToStaticMarkup } from "react-dom/server";
import { ChatClient } from "tierchat";
import { ChatProvider } from "tierchat/react";
import { MessageText } from "../src/content/MessageText";

const client = new ChatClient({ url: "ws://127.0.0.1:1", getToken: () => "" });

/** Return the HTML of a message's text. */
export function renderText(text: string): string {
  return renderToStaticMarkup(
    <ChatProvider client={client}>
      <MessageText text={text} />
    </ChatProvider>,
  );
}
