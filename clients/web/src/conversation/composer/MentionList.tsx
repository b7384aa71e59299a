// Completion of mentions: a list above the text, with the keys of the ARIA listbox pattern.

import { type KeyboardEvent, type RefObject, useCallback, useId, useMemo, useState } from "react";
import { useMembers } from "tierchat/react";
import { useLayer } from "../../design/use_layer";
import { getDirectory } from "../../directory/directory";
import { PersonAvatar, PersonName } from "../../directory/PersonAvatar";
import { useText } from "../../i18n";
import { useConversation } from "../model/context";
import styles from "./Composer.module.css";
import {
  type Candidate,
  completeMention,
  findMention,
  type MentionQuery,
  rankCandidates,
} from "./mention_completion";

interface Mentions {
  isOpen: boolean;
  listId: string;
  candidates: readonly Candidate[];
  index: number;
  onChoose: (index: number) => void;
  /** Properties of the text field. */
  fieldProps: Record<string, string | undefined>;
  /** Must be called after each change of the text or caret. */
  update: (text: string, caret: number) => void;
  /** Handle a key; return whether the list used it. */
  onKeyDown: (event: KeyboardEvent) => boolean;
}

/** Return the state of the completion. `change` replaces the text and moves the caret. */
export function useMentions(
  field: RefObject<HTMLTextAreaElement | null>,
  text: string,
  change: (text: string, caret: number) => void,
): Mentions {
  const model = useConversation();
  const members = useMembers(model.chat.id);
  const listId = useId();
  const [mention, setMention] = useState<MentionQuery | null>(null);
  const [index, setIndex] = useState(0);
  const query = mention?.query;
  const candidates = useMemo(() => {
    if (query === undefined) return [];
    const directory = getDirectory(model.client);
    const others = members
      .filter(({ user }) => user !== model.me)
      .map(({ user }) => ({ user, name: directory.get(user).name }));
    return rankCandidates(others, query);
  }, [query, members, model]);
  const isOpen = candidates.length > 0;

  const update = useCallback((value: string, caret: number) => {
    const match = value.includes("@") ? findMention(value, caret) : null;
    setMention((before) => {
      const isSame = before?.start === match?.start && before?.query === match?.query;
      if (!isSame) setIndex(0);
      return isSame ? before : match;
    });
  }, []);
  useLayer(isOpen ? () => setMention(null) : null);
  const onChoose = (chosen: number): void => {
    const candidate = candidates[chosen];
    if (candidate === undefined || mention === null) return;
    const caret = field.current?.selectionStart ?? text.length;
    const completed = completeMention(text, caret, mention, candidate.user);
    setMention(null);
    change(completed.text, completed.caret);
    field.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): boolean => {
    if (!isOpen) return false;
    const count = candidates.length;
    const actions: Record<string, () => void> = {
      ArrowDown: () => setIndex((index + 1) % count),
      ArrowUp: () => setIndex((index - 1 + count) % count),
      Enter: () => onChoose(index),
      Tab: () => onChoose(index),
    };
    const action = event.shiftKey ? undefined : actions[event.key];
    if (action === undefined) return false;
    event.preventDefault();
    event.stopPropagation();
    action();
    return true;
  };
  const fieldProps = {
    "aria-autocomplete": "list",
    "aria-haspopup": "listbox",
    "aria-controls": isOpen ? listId : undefined,
    "aria-activedescendant": isOpen ? `${listId}-${index}` : undefined,
  };
  return { isOpen, listId, candidates, index, onChoose, fieldProps, update, onKeyDown };
}

type MentionListProps = Pick<Mentions, "listId" | "candidates" | "index" | "onChoose">;

export function MentionList({ listId, candidates, index, onChoose }: MentionListProps) {
  const words = useText().conversation;
  return (
    <ul id={listId} role="listbox" aria-label={words.mentions} className={styles["mentions"]}>
      {candidates.map(({ user }, position) => (
        <li
          key={user}
          id={`${listId}-${position}`}
          role="option"
          aria-selected={position === index}
          onPointerDown={(event) => {
            event.preventDefault(); // the field keeps the focus
            onChoose(position);
          }}
        >
          <PersonAvatar user={user} size="s" />
          <PersonName user={user} />
          <span>@{user}</span>
        </li>
      ))}
    </ul>
  );
}
