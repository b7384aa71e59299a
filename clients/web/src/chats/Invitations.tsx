// Invitations to groups, above the chat list.

import { useEffect, useState } from "react";
import { useClient, useEvent } from "tierchat/react";
import { getErrorText } from "../app/errors";
import { navigate, buildPath } from "../app/router";
import { PersonName } from "../app/PersonAvatar";
import { usePages } from "../data/use_pages";
import { Avatar, Button, showToast } from "../design";
import { useText } from "../i18n";
import { Sentence } from "../i18n/Sentence";
import styles from "./Invitations.module.css";

const SHOWN_MAX = 20;

/** The open invitations; nothing if there are none. */
export function Invitations() {
  const text = useText();
  const client = useClient();
  const [isStarted, setStarted] = useState(client.isOnline);
  const { items, reload, update } = usePages(isStarted ? "invitations" : null, () =>
    client.http.call("list_invitations", { limit: SHOWN_MAX }),
  );
  const [busy, setBusy] = useState<string | null>(null);
  useEffect(() => {
    addEventListener("focus", reload);
    return () => removeEventListener("focus", reload);
  }, [reload]);
  useEvent("connected", () => {
    setStarted(true); // loads the first time
    reload();
  });
  useEvent("signalReceived", ({ kind }) => {
    if (kind === "invitation") reload();
  });

  const respond = async (chat: string, isAccepted: boolean): Promise<void> => {
    setBusy(chat);
    try {
      if (isAccepted) await client.acceptInvitation(chat);
      else await client.declineInvitation(chat);
      update((current) => current.filter((item) => item.chat !== chat));
      if (isAccepted) navigate(buildPath("/chats/:chat", { chat }));
    } catch (error) {
      showToast(getErrorText(error), { kind: "error" });
    } finally {
      reload(); // an older request is dropped: its result may be out of date
      setBusy(null);
    }
  };
  if (items.length === 0) return null;
  return (
    <ul className={styles["list"]} aria-label={text.chats.invitations}>
      {items.map(({ chat, name, inviter }) => (
        <li key={chat} className={styles["item"]}>
          <Avatar id={chat} name={name ?? ""} />
          <div className={styles["text"]}>
            <bdi className={styles["name"]}>{name || text.chats.unnamedGroup}</bdi>
            <span>
              <Sentence text={text.chats.invitedBy} names={[<PersonName user={inviter} />]} />
            </span>
          </div>
          <div className={styles["buttons"]}>
            <Button
              isBusy={busy === chat}
              variant="primary"
              onClick={() => void respond(chat, true)}
            >
              {text.chats.accept}
            </Button>
            <Button disabled={busy === chat} onClick={() => void respond(chat, false)}>
              {text.chats.decline}
            </Button>
          </div>
        </li>
      ))}
    </ul>
  );
}
