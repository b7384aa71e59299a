// The dialog that adds people to a group.

import { type FormEvent, useState } from "react";
import type { Http } from "tierchat";
import { useChats, useClient } from "tierchat/react";
import { useAction } from "../data/use_action";
import { Button, Dialog, Select, showToast, TextField } from "../design";
import { listContacts, parseUsers } from "../directory/contacts";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { usePeopleSearch } from "../directory/people_search";
import { useText } from "../i18n";
import { ActionError } from "../page/Loadable";
import { Row, Rows } from "../page/Row";

const SUGGESTIONS_MAX = 8;

/** Asks for usernames and a role. Users whose consent is required receive an invitation. */
export function AddMembers({ info, onClose }: { info: Http.ChatInfo; onClose: () => void }) {
  const text = useText();
  const client = useClient();
  const chats = useChats();
  const [typed, setTyped] = useState("");
  const [role, setRole] = useState<"member" | "admin">("member");
  const [problem, setProblem] = useState<string>();
  const { isBusy, error, run } = useAction();
  const users = parseUsers(typed);
  const isOwner = info.roles?.[client.user] === "owner";
  // A suggestion replaces the last word, which may be incomplete.
  const last = /[^\s,;]*$/u.exec(typed)?.[0] ?? "";
  const prefix = typed.slice(0, typed.length - last.length);
  const matches = usePeopleSearch(last);
  const entered = new Set(parseUsers(prefix) ?? []);
  const suggestions = (last === "" ? listContacts(chats, client.user) : matches)
    .filter((user) => !info.members.includes(user) && !entered.has(user) && user !== last)
    .slice(0, SUGGESTIONS_MAX);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (users === null) return setProblem(text.people.invalidUser);
    if (users.length === 0) return setProblem(text.group.addNone);
    const isDone = await run(() => client.chat(info.chat).invite(users, role));
    if (!isDone) return;
    showToast(text.group.addDone(users.length));
    onClose();
  };
  return (
    <Dialog title={text.group.addTitle} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)} className="stack">
        <TextField
          label={text.group.usernames}
          hint={text.group.usernamesHint}
          error={problem}
          autoFocus
          autoComplete="off"
          autoCapitalize="none"
          spellCheck={false}
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            setProblem(undefined);
          }}
        />
        {isOwner && (
          <Select
            label={text.group.addAs}
            value={role}
            options={[
              { value: "member", label: text.group.member },
              { value: "admin", label: text.group.admin },
            ]}
            onChange={setRole}
          />
        )}
        {suggestions.length > 0 && (
          <Rows label={text.group.suggestions}>
            {suggestions.map((user) => (
              <Row
                key={user}
                picture={<PersonAvatar user={user} size="s" />}
                title={<PersonName user={user} />}
                onClick={() => setTyped(`${prefix}${user} `)}
              />
            ))}
          </Rows>
        )}
        <ActionError error={error} />
        <Button type="submit" variant="primary" isBusy={isBusy}>
          {text.group.add}
        </Button>
      </form>
    </Dialog>
  );
}
