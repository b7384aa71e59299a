// Search over all messages: a field with filters as chips, and the results.

import { ArrowLeft, MessageSquareText, SearchX, X } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import type { Http } from "tierchat";
import { useChat, useClient } from "tierchat/react";
import { useDebounced } from "../data/use_debounced";
import { usePages } from "../data/use_pages";
import { Button, EmptyState, IconButton, Select } from "../design";
import { isComposing, useLayer } from "../design/use_layer";
import { usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import { type Catalog, useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { ListPage } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { buildPath, navigate, useLocation, useMatch } from "../page/router";
import { Time } from "../page/Time";
import { FilterMenu } from "./FilterMenu";
import {
  addChip,
  type Chip,
  extractChips,
  formatQuery,
  isSearchable,
  parseQuery,
  type Query,
} from "./query";
import styles from "./SearchPage.module.css";

const DELAY_MS = 250; // after the last key
const PAGE = 20;

type Order = "newest" | "relevance";

/** The page `/search`. The query is part of the URL. */
export default function SearchPage() {
  const text = useText().search;
  const { query: address } = useLocation();
  const [query, setQuery] = useState<Query>(() => parseAddress(address));
  const [order, setOrder] = useState<Order>("newest");
  const searchText = useDebounced(isSearchable(query) ? formatQuery(query) : "", DELAY_MS);
  const addressText = formatQuery(parseAddress(address));
  const path = useMatch()?.route.path;
  const lastWritten = useRef(addressText);

  // A new URL, such as a search in a chat, replaces the query.
  useEffect(() => {
    if (addressText === lastWritten.current) return;
    lastWritten.current = addressText;
    setQuery(parseQuery(addressText));
  }, [addressText]);
  useEffect(() => {
    if (path !== "/search" || searchText === lastWritten.current) return;
    lastWritten.current = searchText;
    const q = new URLSearchParams({ q: searchText }).toString();
    navigate(searchText === "" ? "/search" : `/search?${q}`, { replace: true });
  }, [searchText, path]);

  const chat = query.chips.find(({ name }) => name === "in")?.value;
  const goBack = (): void => navigate(buildPath("/chats/:chat", { chat: chat ?? "" }));
  useLayer(chat === undefined ? null : goBack, "page");

  return (
    <ListPage
      title={text.title}
      toolbar={
        <search className={styles["bar"]}>
          {chat !== undefined && (
            <Button variant="quiet" onClick={goBack}>
              <ArrowLeft size={18} aria-hidden />
              {text.backToChat}
            </Button>
          )}
          <SearchField query={query} onChange={setQuery} />
          <div className={styles["options"]}>
            <FilterMenu
              onAdd={(chip) => setQuery({ ...query, chips: addChip(query.chips, chip) })}
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
      {searchText === "" ? (
        <EmptyState icon={MessageSquareText} title={text.start}>
          {text.startHint}
        </EmptyState>
      ) : (
        <Results searchText={searchText} order={order} />
      )}
    </ListPage>
  );
}

/** Return the query of a URL; the parameter `chat` limits it to a chat. */
function parseAddress(address: URLSearchParams): Query {
  const query = parseQuery(address.get("q") ?? "");
  const chat = address.get("chat");
  if (chat === null) return query;
  return { ...query, chips: addChip(query.chips, { name: "in", value: chat }) };
}

interface SearchFieldProps {
  query: Query;
  onChange: (query: Query) => void;
}

function SearchField({ query, onChange }: SearchFieldProps) {
  const text = useText().search;
  const field = useRef<HTMLInputElement>(null);
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>): void => {
    if (isComposing(event.nativeEvent)) return;
    const { selectionStart, selectionEnd } = event.currentTarget;
    const isAtStart = selectionStart === 0 && selectionEnd === 0;
    if (event.key === "Backspace" && isAtStart && query.chips.length > 0) {
      onChange({ ...query, chips: query.chips.slice(0, -1) });
    } else if (event.key === "Enter") {
      onChange(extractChips({ ...query, text: `${query.text} ` }));
    }
  };
  const remove = (chip: Chip): void => {
    onChange({ ...query, chips: query.chips.filter((other) => other !== chip) });
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

function Results({ searchText, order }: { searchText: string; order: Order }) {
  const text = useText().search;
  const { http } = useClient();
  const pages = usePages(`search ${order} ${searchText}`, (cursor) =>
    http.call("search", { q: searchText, order, limit: PAGE, ...(cursor ? { cursor } : {}) }),
  );
  const empty = (
    <EmptyState icon={SearchX} title={text.none}>
      {text.noneHint}
    </EmptyState>
  );
  const status = pages.isInitial ? text.searching : text.found(pages.items.length, pages.hasMore);
  return (
    <>
      <p className={styles["status"]} role="status">
        {pages.error === null && (pages.isInitial || pages.items.length > 0) ? status : ""}
      </p>
      <PagesView pages={pages} empty={empty} errors={{ not_found: text.unavailable }}>
        {(items) => (
          <Rows label={text.results}>
            {items.map((result) => (
              <Result
                key={`${result.message.chat} ${result.message.seq}`}
                result={result}
                searchText={searchText}
              />
            ))}
          </Rows>
        )}
      </PagesView>
    </>
  );
}

function Result({ result, searchText }: { result: Http.SearchResult; searchText: string }) {
  const catalog: Catalog = useText();
  const { message, snippet } = result;
  const { chat, seq, sender, ts } = message;
  const client = useClient();
  const chatName = useChatName(chat);
  const { name } = usePerson(sender);
  const senderName = sender === client.user ? catalog.common.you : name;
  const files = (message.attachments ?? []).map((file) => file.name).join(", ");
  const address = new URLSearchParams({ q: searchText, seq: String(seq) }).toString();
  const match = useMatch();
  const { query } = useLocation();
  const isCurrent = match?.params["chat"] === chat && query.get("seq") === String(seq);
  return (
    <Row
      picture={<PersonAvatar user={sender} />}
      title={<bdi>{chatName ?? senderName}</bdi>}
      note={<Time ms={ts / 1000} />}
      text={
        <span className={styles["snippet"]}>
          <bdi className={styles["who"]}>{senderName}: </bdi>
          <bdi dir="auto">
            {snippet.length === 0
              ? files
              : snippet.map((part, index) => <Segment key={index} {...part} />)}
          </bdi>
        </span>
      }
      isLines
      to={`${buildPath("/search/:chat", { chat })}?${address}`}
      isCurrent={isCurrent}
    />
  );
}

/** A part of a snippet, as plain text. */
function Segment({ text, hit }: Http.Segment) {
  return hit === true ? <mark>{text}</mark> : text;
}
