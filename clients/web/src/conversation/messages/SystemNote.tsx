// A note about a change of the chat: members, name or pins.

import type { Message } from "tierchat";
import { usePerson } from "../../directory/directory";
import { type Catalog, useText } from "../../i18n";
import { Sentence } from "../../i18n/Sentence";
import { useConversation } from "../model/context";
import styles from "./MessageRow.module.css";

export function SystemNote({ message }: { message: Message }) {
  const words = useText().conversation;
  const model = useConversation();
  const sender = usePerson(message.sender);
  const user = usePerson(message.user ?? "");
  const getName = (id: string, name: string): string => (id === model.me ? words.you : name);
  const newName = message.name ?? parseName(message.body);
  const names = [getName(sender.id, sender.name), getName(user.id, user.name), newName];
  return (
    <div className={styles["note"]}>
      <span>
        <Sentence text={(...all) => getNoteText(message, words, ...all)} names={names} />
      </span>
    </div>
  );
}

function getNoteText(
  message: Message,
  words: Catalog["conversation"],
  actor: string,
  other: string,
  newName: string,
): string {
  const { kind, sender, user, role } = message;
  if (kind === "pin") return words.pinnedBy(actor);
  if (kind === "update") {
    return newName === "" ? words.settingsChanged(actor) : words.renamed(actor, newName);
  }
  if (message.muted_until != null) {
    return message.muted_until === 1 ? words.unmutedBy(actor, other) : words.mutedBy(actor, other);
  }
  if (!role) {
    if (message.banned === true) return words.bannedBy(actor, other);
    return sender === user ? words.leftGroup(other) : words.removedBy(actor, other);
  }
  if (role !== "member" && role in words.roles) {
    return words.roleChanged(actor, other, words.roles[role as keyof typeof words.roles]);
  }
  return sender === user ? words.joined(other) : words.addedBy(actor, other);
}

/** Return the new name of the group in a change of its settings, or "". */
function parseName(body: string): string {
  try {
    const settings = JSON.parse(body) as { name?: unknown } | null;
    return typeof settings?.name === "string" ? settings.name : "";
  } catch {
    return body;
  }
}
