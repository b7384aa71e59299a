// The details of a chat: next to its messages, or as a separate page on narrow screens.

import ConversationPage from "../conversation/ConversationPage";
import { useMediaQuery } from "../data/use_media_query";
import { buildPath, navigate, type PageProps } from "../page/router";
import { ChatDetails } from "./ChatDetails";
import styles from "./ChatDetailsPage.module.css";

const WIDE = "(min-width: 1100px)";

/** The page `/chats/:chat/details`. */
export default function ChatDetailsPage({ params }: PageProps) {
  const chat = params["chat"] ?? "";
  const isWide = useMediaQuery(WIDE);
  return (
    <div className={styles["split"]}>
      {isWide && (
        <div className={styles["conversation"]}>
          <ConversationPage params={params} />
        </div>
      )}
      <div className={styles["details"]}>
        <ChatDetails chat={chat} onClose={() => navigate(buildPath("/chats/:chat", { chat }))} />
      </div>
    </div>
  );
}
