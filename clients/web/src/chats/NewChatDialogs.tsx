// Dialogs for a new direct chat and a new group. People are found by name or entered by id.

import { Plus, X } from "lucide-react";
import { type FormEvent, useRef, useState } from "react";
import { ChatError } from "tierchat";
import { useChats, useClient } from "tierchat/react";
import { Button, Dialog, IconButton, TextField } from "../design";
import { isComposing } from "../design/use_layer";
import { usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import { usePeopleSearch } from "../directory/people_search";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { buildPath, navigate } from "../page/router";
import styles from "./NewChatDialogs.module.css";

const MEMBERS_MAX = 100; // the server's limit per request
const RECENT_MAX = 6;

interface DialogProps {
  onClose: () => void;
}

/** Asks for a username and opens the direct chat. */
export function NewChatDialog({ onClose }: DialogProps) {
  const text = useText();
  const client = useClient();
  const [user, setUser] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const start = async (name: string): Promise<void> => {
    if (name === "") return fail(text.chats.enterUser);
    if (name === client.user) return fail(text.chats.yourself);
    setBusy(true);
    try {
      const chat = await client.openDirect(name);
      navigate(buildPath("/chats/:chat", { chat: chat.id }), { replace: true });
    } catch (problem) {
      const isUnknown =
        problem instanceof ChatError && ["not_found", "bad_request"].includes(problem.code);
      fail(isUnknown ? text.chats.noSuchUser : getErrorText(problem));
    } finally {
      setBusy(false);
    }
  };
  const fail = (message: string): void => {
    setError(message);
    field.current?.focus();
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    void start(user.trim());
  };
  return (
    <Dialog
      title={text.chats.newChat}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button type="submit" form="new-chat" variant="primary" isBusy={isBusy}>
            {text.chats.startChat}
          </Button>
        </>
      }
    >
      <form id="new-chat" noValidate onSubmit={submit} className={styles["form"]}>
        <TextField
          ref={field}
          label={text.chats.person}
          hint={text.chats.personHint}
          error={error}
          value={user}
          onChange={(event) => setUser(event.target.value)}
          autoFocus
          autoComplete="off"
          autoCapitalize="none"
          spellCheck={false}
          maxLength={64}
        />
      </form>
      <People typed={user} except={[]} onSelect={(name) => void start(name)} />
    </Dialog>
  );
}

/** Asks for a name and members, creates the group and opens it. */
export function NewGroupDialog({ onClose }: DialogProps) {
  const text = useText();
  const client = useClient();
  const [name, setName] = useState("");
  const [members, setMembers] = useState<readonly string[]>([]);
  const [user, setUser] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const add = (input: string): boolean => {
    const id = input.trim();
    if (id === "") return false;
    setUser("");
    if (id === client.user || members.includes(id)) return true;
    if (members.length >= MEMBERS_MAX) {
      setError(text.chats.membersMax(MEMBERS_MAX));
      return false;
    }
    setError("");
    setMembers([...members, id]);
    field.current?.focus();
    return true;
  };
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const all = [...new Set([...members, user.trim()])].filter(
      (id) => id !== "" && id !== client.user,
    );
    if (all.length === 0) {
      setError(text.chats.addSomeone);
      field.current?.focus();
      return;
    }
    setBusy(true);
    try {
      const chat = await client.createGroup(all, name.trim() || undefined);
      navigate(buildPath("/chats/:chat", { chat: chat.id }), { replace: true });
    } catch (problem) {
      const isUnknown = problem instanceof ChatError && problem.code === "not_found";
      setError(isUnknown ? text.chats.noSuchUser : getErrorText(problem));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={text.chats.newGroup}
      asksToDiscard
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button type="submit" form="new-group" variant="primary" isBusy={isBusy}>
            {text.chats.createGroup}
          </Button>
        </>
      }
    >
      <form
        id="new-group"
        noValidate
        className={styles["form"]}
        onSubmit={(event) => void submit(event)}
      >
        <TextField
          label={text.chats.groupName}
          value={name}
          onChange={(event) => setName(event.target.value)}
          autoFocus
          autoComplete="off"
          maxLength={200}
        />
        <div className={styles["add"]}>
          <TextField
            ref={field}
            label={text.chats.addMember}
            hint={text.chats.personHint}
            error={error}
            value={user}
            onChange={(event) => setUser(event.target.value)}
            onKeyDown={(event) => {
              if (isComposing(event.nativeEvent)) return;
              if (event.key === "Enter" && user.trim() !== "") {
                event.preventDefault();
                add(user);
              }
            }}
            autoComplete="off"
            autoCapitalize="none"
            spellCheck={false}
            maxLength={64}
          />
          <IconButton icon={Plus} label={text.chats.add} onClick={() => add(user)} />
        </div>
        {members.length > 0 && (
          <ul className={styles["members"]} aria-label={text.chats.members}>
            {members.map((id) => (
              <MemberChip
                key={id}
                user={id}
                onRemove={() => setMembers(members.filter((member) => member !== id))}
              />
            ))}
          </ul>
        )}
      </form>
      <People typed={user} except={members} onSelect={add} />
    </Dialog>
  );
}

function MemberChip({ user, onRemove }: { user: string; onRemove: () => void }) {
  const text = useText();
  const { name } = usePerson(user);
  return (
    <li className={styles["chip"]}>
      <PersonAvatar user={user} size="s" />
      <bdi>{name}</bdi>
      <IconButton icon={X} size="s" label={text.chats.removeMember(name)} onClick={onRemove} />
    </li>
  );
}

interface PeopleProps {
  typed: string;
  except: readonly string[];
  onSelect: (user: string) => void;
}

/** Suggests people who match the typed text; without a text, people of recent direct chats. */
function People({ typed, except, onSelect }: PeopleProps) {
  const text = useText().chats;
  const peers = useChats().flatMap(({ kind, peer }) =>
    kind === "direct" && peer !== null ? [peer] : [],
  );
  const matches = usePeopleSearch(typed);
  const isTyped = typed.trim() !== "";
  const shown = (isTyped ? matches : peers.slice(0, RECENT_MAX)).filter(
    (user) => !except.includes(user),
  );
  if (shown.length === 0) return null;
  return (
    <section className={styles["recent"]} aria-label={isTyped ? text.found : text.recent}>
      <h3>{isTyped ? text.found : text.recent}</h3>
      <ul>
        {shown.map((user) => (
          <li key={user}>
            <PersonButton user={user} onSelect={onSelect} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function PersonButton({ user, onSelect }: { user: string; onSelect: (user: string) => void }) {
  const { name } = usePerson(user);
  return (
    <button type="button" className={styles["person"]} onClick={() => onSelect(user)}>
      <PersonAvatar user={user} />
      <span>
        <bdi>{name}</bdi>
        {name !== user && <bdi className={styles["id"]}>@{user}</bdi>}
      </span>
    </button>
  );
}
