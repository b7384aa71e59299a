// Invitations to groups, above the chat list.

import { useEffect, useState } from "react";
import { useClient, useConnection, useEvent } from "tierchat/react";
import { getErrorText } from "../app/errors";
import { navigate, buildPath } from "../app/router";
import { PersonName } from "../app/PersonAvatar";
import { usePages } from "../data/use_pages";
import { Avatar, Button, showToast } from "../design";
import { useText } from "../i18n";
import { Sentence } from "../i18n/Sentence";
import styles from "./Invitations.module.css";

const SHOWN_MAX = 100; // as many as a user can have

/** The open invitations; nothing if there are none. */
export function Invitations() {
  const text = useText();
  const client = useClient();
  const { isOnline } = useConnection();
  const [wasOnline, setWasOnline] = useState(isOnline);
  if (isOnline && !wasOnline) setWasOnline(true);
  // While offline, the first request would only fail.
  const { items, reload, update } = usePages(wasOnline ? "invitations" : null, () =>
    client.http.call("list_invitations", { limit: SHOWN_MAX }),
  );
  const [busy, setBusy] = useState<string | null>(null);
  useEffect(() => {
    addEventListener("focus", reload);
    return () => removeEventListener("focus", reload);
  }, [reload]);
  useEvent("connected", reload);
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
      reload(); // even after an error; this also drops the response to an earlier request
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
              disabled={busy !== null}
              variant="primary"
              onClick={() => void respond(chat, true)}
            >
              {text.chats.accept}
            </Button>
            <Button disabled={busy !== null} onClick={() => void respond(chat, false)}>
              {text.chats.decline}
            </Button>
          </div>
        </li>
      ))}
    </ul>
  );
}
