// The menu that adds a filter to a search, and the dialog that asks for its value.

import { CalendarDays, ListFilter, MessagesSquare, Paperclip, User } from "lucide-react";
import { type FormEvent, useState } from "react";
import { useChats, useClient } from "tierchat/react";
import { Button, Dialog, MenuButton, Select, TextField } from "../design";
import { isUserId } from "../directory/contacts";
import { getDirectory } from "../directory/directory";
import { useText } from "../i18n";
import type { Chip, Qualifier } from "./query";

const CHATS_MAX = 200;

/** The button "Add a filter". */
export function FilterMenu({ onAdd }: { onAdd: (chip: Chip) => void }) {
  const text = useText().search;
  const [filterName, setFilterName] = useState<Qualifier | null>(null);
  const items = [
    { label: text.from, icon: User, onSelect: () => setFilterName("from") },
    { label: text.in, icon: MessagesSquare, onSelect: () => setFilterName("in") },
    {
      label: text.has,
      icon: Paperclip,
      onSelect: () => onAdd({ name: "has", value: "file" }),
    },
    { label: text.after, icon: CalendarDays, onSelect: () => setFilterName("after") },
    { label: text.before, icon: CalendarDays, onSelect: () => setFilterName("before") },
  ];
  return (
    <>
      <MenuButton icon={ListFilter} label={text.add} items={items} />
      {filterName !== null && (
        <FilterDialog name={filterName} onAdd={onAdd} onClose={() => setFilterName(null)} />
      )}
    </>
  );
}

interface FilterDialogProps {
  name: Qualifier;
  onAdd: (chip: Chip) => void;
  onClose: () => void;
}

function FilterDialog({ name, onAdd, onClose }: FilterDialogProps) {
  const catalog = useText();
  const text = catalog.search;
  const client = useClient();
  const chats = useChats().slice(0, CHATS_MAX);
  const [value, setValue] = useState(name === "in" ? (chats[0]?.id ?? "") : "");
  const [error, setError] = useState<string>();
  const user = value.trim().replace(/^@/, "");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (name === "from" && !isUserId(user)) {
      setError(catalog.people.invalidUser);
    } else if (value !== "") {
      onAdd({ name, value: name === "from" ? user : value });
      onClose();
    }
  };
  const getName = (id: string): string => {
    const chat = client.chat(id);
    if (chat.kind !== "direct") return chat.name ?? catalog.chats.unnamedGroup;
    return chat.peer === null ? id : getDirectory(client).get(chat.peer).name;
  };
  return (
    <Dialog title={text[name]} onClose={onClose}>
      <form onSubmit={submit} className="stack">
        {name === "in" ? (
          <Select
            label={text.in}
            value={value}
            options={chats.map(({ id }) => ({ value: id, label: getName(id) }))}
            onChange={setValue}
          />
        ) : (
          <TextField
            label={text[name]}
            type={name === "from" ? "text" : "date"}
            hint={name === "from" ? text.fromHint : undefined}
            error={error}
            autoFocus
            required
            autoCapitalize="none"
            spellCheck={false}
            value={value}
            onChange={(event) => {
              setValue(event.target.value);
              setError(undefined);
            }}
          />
        )}
        <Button type="submit" variant="primary">
          {text.add}
        </Button>
      </form>
    </Dialog>
  );
}
