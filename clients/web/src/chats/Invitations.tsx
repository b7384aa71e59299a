// Invitations to groups, above the chat list.

import { useEffect, useState } from "react";
import type { Http, HttpClient } from "tierchat";
import { useClient, useConnection, useEvent } from "tierchat/react";
import { ITEMS_MAX, type Page, usePages } from "../data/use_pages";
import { Avatar, Button, showToast } from "../design";
import { PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { Sentence } from "../i18n/Sentence";
import { buildPath, navigate } from "../page/router";
import styles from "./Invitations.module.css";

const PAGE = 100;

/** Load all invitations. A page of the server may be empty although there is a next page. */
async function loadInvitations(http: HttpClient): Promise<Page<Http.InvitationInfo>> {
  const items: Http.InvitationInfo[] = [];
  let next: string | null | undefined;
  do {
    const cursor = next ? { cursor: next } : {};
    const page = await http.call("list_invitations", { limit: PAGE, ...cursor });
    items.push(...page.items);
    next = page.next;
  } while (next && items.length < ITEMS_MAX);
  return { items };
}

/** The open invitations; nothing if there are none. */
export function Invitations() {
  const text = useText();
  const client = useClient();
  const { isOnline } = useConnection();
  const [hasBeenOnline, setHasBeenOnline] = useState(isOnline);
  if (isOnline && !hasBeenOnline) setHasBeenOnline(true);
  // While offline, the first request would only fail.
  const { items, reload, update } = usePages(hasBeenOnline ? "invitations" : null, () =>
    loadInvitations(client.http),
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
              <Sentence
                text={text.chats.invitedBy}
                names={[<PersonName key={inviter} user={inviter} />]}
              />
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
