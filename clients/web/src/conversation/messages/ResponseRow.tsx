// The response that an AI companion is writing, below the last message.

import { Sparkles, Square } from "lucide-react";
import { useEffect } from "react";
import { useChat, useCompanionResponse } from "tierchat/react";
import { MessageText } from "../../content/MessageText";
import { Button } from "../../design";
import { useChatTitle } from "../../directory/chat_title";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import styles from "./ResponseRow.module.css";

/** A response in progress. `onGrow` is called after each change of the text. */
export function ResponseRow({ onGrow }: { onGrow: () => void }) {
  const words = useText().conversation;
  const model = useConversation();
  const response = useCompanionResponse(model.chat.id);
  const name = useChatTitle(useChat(model.chat.id));
  const text = response?.text ?? "";
  useEffect(() => {
    onGrow();
  }, [onGrow, text]);
  if (response === null) return null;
  const { tool } = response;
  const hint = tool === "" ? words.companionWrites(name) : words.usesTool(tool);
  return (
    <div
      role="article"
      className={styles["row"]}
      aria-busy={response.isRunning}
      aria-label={words.companionWrites(name)}
    >
      <div className={styles["bubble"]}>
        {text !== "" && <MessageText text={text} />}
        {response.isRunning && (
          <p className={styles["status"]}>
            <Sparkles size={15} aria-hidden />
            <span role="status">{hint}</span>
            <Button
              variant="quiet"
              icon={Square}
              onClick={() => void model.attempt(() => response.stop())}
            >
              {words.stopResponse}
            </Button>
          </p>
        )}
      </div>
    </div>
  );
}
