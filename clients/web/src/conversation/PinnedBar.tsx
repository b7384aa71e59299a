// A bar with a pinned message. A click shows the message in the list, and the next one in the bar.

import { useEffect, useState } from "react";
import { useObservable } from "../data/observable";
import { useText } from "../i18n";
import styles from "./ConversationHeader.module.css";
import { getSummary } from "./messages/ReplyQuote";
import { useConversation } from "./model/context";
import { getPins } from "./model/pins";

export function PinnedBar() {
  const text = useText();
  const words = text.conversation;
  const model = useConversation();
  const pins = getPins(model);
  const list = useObservable(pins.list);
  const [index, setIndex] = useState(0);
  useEffect(() => pins.start(), [pins]);
  const position = list.length === 0 ? 0 : index % list.length;
  const pin = list[position];
  if (pin === undefined) return null;
  return (
    <div className={styles["bar"]}>
      <button
        type="button"
        className={styles["pinned"]}
        onClick={() => {
          void model.jumpTo(pin.message.seq);
          setIndex(position + 1);
        }}
      >
        <strong>
          {list.length === 1 ? words.pinned : words.pinnedCount(position + 1, list.length)}
        </strong>
        <span dir="auto">{getSummary(pin.message, text)}</span>
      </button>
    </div>
  );
}
