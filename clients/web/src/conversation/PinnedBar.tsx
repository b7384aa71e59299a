// A bar with a pinned message. A click shows the message in the list; the bar shows the next one.

import { useEffect, useState } from "react";
import { useText } from "../i18n";
import { useConversation } from "./model/context";
import styles from "./ConversationHeader.module.css";
import { useObservable } from "./model/observable";
import { pinsOf } from "./model/pins";
import { summaryOf } from "./messages/ReplyQuote";

export function PinnedBar() {
  const words = useText().conversation;
  const model = useConversation();
  const pins = pinsOf(model);
  const list = useObservable(pins.list);
  const [index, setIndex] = useState(0);
  useEffect(() => pins.start(), [pins]);
  const place = list.length === 0 ? 0 : index % list.length;
  const pin = list[place];
  if (pin === undefined) return null;
  return (
    <div className={styles["bar"]}>
      <button
        type="button"
        className={styles["pinned"]}
        onClick={() => {
          void model.jumpTo(pin.message.seq);
          setIndex(place + 1);
        }}
      >
        <strong>
          {list.length === 1 ? words.pinned : words.pinnedCount(place + 1, list.length)}
        </strong>
        <span dir="auto">{summaryOf(pin.message, words.deleted)}</span>
      </button>
    </div>
  );
}
