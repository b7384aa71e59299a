// Search over all messages: a field with filters as chips, and the results.

import { MessageSquareText, SearchX, X } from "lucide-react";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import type { Http } from "tierchat";
import { useChat, useClient } from "tierchat/react";
import { navigate, pathTo, useLocation, useMatch } from "../app/router";
import { usePages } from "../data/use_pages";
import { useSettled } from "../data/use_settled";
import { EmptyState, IconButton, Select } from "../design";
import { useText, type Catalog } from "../i18n";
import { PagesView } from "../page/Loadable";
import { ListPage } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { Time } from "../page/Time";
import { PersonAvatar } from "../app/PersonAvatar";
import { usePerson } from "../app/directory";
import { FilterMenu } from "./FilterMenu";
import {
  formatQuery,
  isSearchable,
  parseQuery,
  extractChips,
  withChip,
  type Chip,
  type Query,
} from "./query";
import styles from "./SearchPage.module.css";

const WAIT_MS = 250; // after the last key
const PAGE = 20;

type Order = "newest" | "relevance";

/** The page `/search`. The query is part of the URL. */
export default function SearchPage() {
  const text = useText().search;
  const { query: address } = useLocation();
  const [query, setQuery] = useState<Query>(() => queryOf(address));
  const [order, setOrder] = useState<Order>("newest");
  const wanted = useSettled(isSearchable(query) ? formatQuery(query) : "", WAIT_MS);
  const shownInAddress = formatQuery(queryOf(address));
  const path = useMatch()?.route.path;
  const written = useRef(shownInAddress);

  // A new URL, such as a search in a chat, replaces the query.
  useEffect(() => {
    if (shownInAddress === written.current) return;
    written.current = shownInAddress;
    setQuery(parseQuery(shownInAddress));
  }, [shownInAddress]);
  useEffect(() => {
    if (path !== "/search" || wanted === written.current) return;
    written.current = wanted;
    const q = new URLSearchParams({ q: wanted }).toString();
    navigate(wanted === "" ? "/search" : `/search?${q}`, { replace: true });
  }, [wanted, path]);

  return (
    <ListPage
      title={text.title}
      toolbar={
        <search className={styles["bar"]}>
          <SearchField query={query} onChange={setQuery} />
          <div className={styles["options"]}>
            <FilterMenu
              onAdd={(chip) => setQuery((now) => ({ ...now, chips: withChip(now.chips, chip) }))}
            />
            <Select
              label={text.order}
              isLabelHidden
              value={order}
              options={[
                { value: "newest", label: text.newest },
                { value: "relevance", label: text.relevance },
              ]}
              onChange={setOrder}
            />
          </div>
        </search>
      }
    >
      {wanted === "" ? (
        <EmptyState icon={MessageSquareText} title={text.start}>
          {text.startHint}
        </EmptyState>
      ) : (
        <Results wanted={wanted} order={order} />
      )}
    </ListPage>
  );
}

/** Return the query of a URL; the parameter `chat` limits it to a chat. */
function queryOf(address: URLSearchParams): Query {
  const query = parseQuery(address.get("q") ?? "");
  const chat = address.get("chat");
  if (chat === null) return query;
  return { ...query, chips: withChip(query.chips, { name: "in", value: chat }) };
}

interface SearchFieldProps {
  query: Query;
  onChange: (query: Query) => void;
}

function SearchField({ query, onChange }: SearchFieldProps) {
  const text = useText().search;
  const field = useRef<HTMLInputElement>(null);
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>): void => {
    const { selectionStart, selectionEnd } = event.currentTarget;
    const isAtStart = selectionStart === 0 && selectionEnd === 0;
    if (event.key === "Backspace" && isAtStart && query.chips.length > 0) {
      onChange({ ...query, chips: query.chips.slice(0, -1) });
    } else if (event.key === "Enter") {
      onChange(extractChips({ ...query, text: `${query.text} ` }));
    }
  };
  const remove = (chip: Chip): void => {
    onChange({ ...query, chips: query.chips.filter((each) => each !== chip) });
    field.current?.focus();
  };
  return (
    <div className={styles["field"]} onClick={() => field.current?.focus()}>
      {query.chips.map((chip) => (
        <ChipView key={chip.name} chip={chip} onRemove={() => remove(chip)} />
      ))}
      <input
        ref={field}
        type="search"
        aria-label={text.label}
        placeholder={query.chips.length === 0 ? text.placeholder : ""}
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        autoFocus
        maxLength={500}
        value={query.text}
        onChange={(event) => onChange(extractChips({ ...query, text: event.target.value }))}
        onKeyDown={onKeyDown}
      />
      {(query.text !== "" || query.chips.length > 0) && (
        <IconButton
          icon={X}
          label={text.clear}
          size="s"
          onClick={() => onChange({ chips: [], text: "" })}
        />
      )}
    </div>
  );
}

function ChipView({ chip, onRemove }: { chip: Chip; onRemove: () => void }) {
  const text = useText().search;
  const value = useChipValue(chip);
  const label = chip.name === "has" ? text.has : text.chip(text[chip.name], value);
  return (
    <span className={styles["chip"]}>
      <bdi>{label}</bdi>
      <button type="button" aria-label={text.remove(label)} onClick={onRemove}>
        <X size={14} aria-hidden />
      </button>
    </span>
  );
}

function useChipValue({ name, value }: Chip): string {
  const text = useText();
  const chatName = useChatName(name === "in" ? value : null);
  const { name: userName } = usePerson(name === "from" && value !== "me" ? value : "");
  if (name === "in") return chatName ?? value;
  if (name === "from") return value === "me" ? text.search.fromMe : userName;
  return value;
}

/** Return the name of a chat, if it is on this device. */
function useChatName(id: string | null): string | undefined {
  const text = useText().chats;
  const chat = useChat(id ?? "");
  const { name } = usePerson(id !== null && chat.kind === "direct" ? (chat.peer ?? "") : "");
  if (id === null || !chat.isKnown) return undefined;
  if (chat.kind === "direct") return name;
  return chat.name ?? text.unnamedGroup;
}

function Results({ wanted, order }: { wanted: string; order: Order }) {
  const text = useText().search;
  const { http } = useClient();
  const pages = usePages(`search ${order} ${wanted}`, (cursor) =>
    http.call("search", { q: wanted, order, limit: PAGE, ...(cursor ? { cursor } : {}) }),
  );
  const empty = (
    <EmptyState icon={SearchX} title={text.none}>
      {text.noneHint}
    </EmptyState>
  );
  const found = pages.isFirst ? text.searching : text.found(pages.items.length, pages.hasMore);
  return (
    <>
      <p className={styles["status"]} role="status">
        {pages.error === null && (pages.isFirst || pages.items.length > 0) ? found : ""}
      </p>
      <PagesView of={pages} empty={empty} errors={{ not_found: text.unavailable }}>
        {(items) => (
          <Rows label={text.results}>
            {items.map((result) => (
              <Result
                key={`${result.message.chat} ${result.message.seq}`}
                result={result}
                wanted={wanted}
              />
            ))}
          </Rows>
        )}
      </PagesView>
    </>
  );
}

function Result({ result, wanted }: { result: Http.SearchResult; wanted: string }) {
  const catalog: Catalog = useText();
  const { message, snippet } = result;
  const { chat, seq, sender, ts } = message;
  const client = useClient();
  const chatName = useChatName(chat);
  const { name } = usePerson(sender);
  const who = sender === client.user ? catalog.common.you : name;
  const files = (message.attachments ?? []).map((file) => file.name).join(", ");
  const address = new URLSearchParams({ q: wanted, seq: String(seq) }).toString();
  const match = useMatch();
  const { query } = useLocation();
  const isCurrent = match?.params["chat"] === chat && query.get("seq") === String(seq);
  return (
    <Row
      picture={<PersonAvatar user={sender} />}
      title={<bdi>{chatName ?? who}</bdi>}
      note={<Time ms={ts / 1000} />}
      text={
        <span className={styles["snippet"]}>
          <bdi className={styles["who"]}>{who}: </bdi>
          <bdi dir="auto">
            {snippet.length === 0
              ? files
              : snippet.map((part, index) => <Segment key={index} {...part} />)}
          </bdi>
        </span>
      }
      isLines
      to={`${pathTo("/search/:chat", { chat })}?${address}`}
      isCurrent={isCurrent}
    />
  );
}

/** A part of a snippet, as plain text. */
function Segment({ text, hit }: Http.Segment) {
  return hit === true ? <mark>{text}</mark> : <>{text}</>;
}
