// The chat list: filter, invitations, pinned and other chats, archive.

import {
  Archive,
  ArrowLeft,
  MessageCirclePlus,
  MessagesSquare,
  Search,
  SquarePen,
  Users,
  X,
} from "lucide-react";
import {
  type Ref,
  useCallback,
  useDeferredValue,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import type { Chat } from "tierchat";
import { useAllPreferences, useChatList, useClient, usePinnedChats } from "tierchat/react";
import { Button, EmptyState, ErrorState, IconButton, MenuButton, SkeletonRows } from "../design";
import { isComposing } from "../design/use_layer";
import { getDirectory } from "../directory/directory";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { navigate, useLocation, useMatch } from "../page/router";
import styles from "./ChatListPage.module.css";
import { ChatRows, type ChatRowsHandle } from "./ChatRows";
import { Invitations } from "./Invitations";
import { NewChatDialog, NewGroupDialog } from "./NewChatDialogs";
import { useChatKeys } from "./use_chat_keys";

/** The page in the list pane of the section "chats". */
export default function ChatListPage() {
  const text = useText();
  const { chats, hasMore, isLoading, error, loadMore } = useChatList();
  const { query } = useLocation();
  const match = useMatch();
  const current = match?.route.section === "chats" ? match.params["chat"] : undefined;
  const [filter, setFilter] = useState("");
  const [isArchive, setArchive] = useState(false);
  const rows = useRef<ChatRowsHandle>(null);
  const filterInput = useRef<HTMLInputElement>(null);
  const groups = useGroups(chats, useDeferredValue(filter), isArchive);
  useReadMark(current);
  useChatKeys([...groups.pinned, ...groups.others], current, filterInput);
  const loadNext = useCallback(() => {
    if (hasMore && !isLoading && error === null) void loadMore();
  }, [hasMore, isLoading, error, loadMore]);
  // A filter needs all chats: load the next pages.
  useEffect(() => {
    if (filter !== "") loadNext();
  }, [filter, loadNext]);
  const openArchive = (): void => setArchive(true);

  const dialog = query.get("new");
  const closeDialog = (): void => navigate(location.pathname, { replace: true });
  const isEmpty = groups.pinned.length + groups.others.length === 0;
  const isFirstLoad = chats.length === 0 && (isLoading || hasMore) && error === null;
  return (
    <>
      <header className={styles["header"]}>
        {isArchive ? (
          <IconButton icon={ArrowLeft} label={text.common.back} onClick={() => setArchive(false)} />
        ) : null}
        <h1>{isArchive ? text.chats.archived : text.chats.title}</h1>
        <MenuButton
          icon={SquarePen}
          label={text.chats.newChat}
          items={[
            { label: text.chats.newChat, icon: MessageCirclePlus, onSelect: () => open("chat") },
            { label: text.chats.newGroup, icon: Users, onSelect: () => open("group") },
          ]}
        />
      </header>
      <Filter
        ref={filterInput}
        value={filter}
        onChange={setFilter}
        onEnterList={() => rows.current?.focusFirst()}
      />
      <ChatRows
        ref={rows}
        pinned={groups.pinned}
        chats={groups.others}
        current={current}
        hasMore={hasMore}
        onNearEnd={loadNext}
        above={
          !isArchive &&
          filter === "" && (
            <>
              <Invitations />
              {groups.archived > 0 && (
                <button type="button" className={styles["archive"]} onClick={openArchive}>
                  <Archive size={18} aria-hidden />
                  {text.chats.archivedCount(groups.archived)}
                </button>
              )}
            </>
          )
        }
      >
        {isFirstLoad && <SkeletonRows />}
        {error !== null && chats.length === 0 && (
          <ErrorState message={getErrorText(error)} onRetry={() => void loadMore()} />
        )}
        {isEmpty && !isFirstLoad && filter !== "" && (
          <p className={styles["note"]}>{text.chats.noMatch}</p>
        )}
        {chats.length === 0 && !isFirstLoad && error === null && filter === "" && (
          <EmptyState
            icon={MessagesSquare}
            title={text.chats.empty}
            action={
              <Button variant="primary" icon={MessageCirclePlus} onClick={() => open("chat")}>
                {text.chats.newChat}
              </Button>
            }
          >
            {text.chats.emptyHint}
          </EmptyState>
        )}
      </ChatRows>
      {dialog === "chat" && <NewChatDialog onClose={closeDialog} />}
      {dialog === "group" && <NewGroupDialog onClose={closeDialog} />}
    </>
  );
}

function open(dialog: "chat" | "group"): void {
  navigate(`${location.pathname}?new=${dialog}`);
}

interface FilterProps {
  ref: Ref<HTMLInputElement>;
  value: string;
  onChange: (value: string) => void;
  onEnterList: () => void;
}

function Filter({ ref, value, onChange, onEnterList }: FilterProps) {
  const text = useText();
  return (
    <div className={styles["filter"]} role="search">
      <Search size={18} aria-hidden />
      <input
        ref={ref}
        type="text"
        value={value}
        placeholder={text.chats.filter}
        aria-label={text.chats.filter}
        autoComplete="off"
        spellCheck={false}
        enterKeyHint="search"
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (isComposing(event.nativeEvent)) return;
          const isClearing = event.key === "Escape" && value !== "";
          if (!isClearing && event.key !== "ArrowDown") return;
          event.preventDefault();
          if (isClearing) onChange("");
          else onEnterList();
        }}
      />
      {value !== "" && (
        <IconButton icon={X} label={text.common.clear} size="s" onClick={() => onChange("")} />
      )}
    </div>
  );
}

/** Return the chats that match the filter or the archive, split into pinned chats and others. */
function useGroups(chats: readonly Chat[], filter: string, isArchive: boolean) {
  const client = useClient();
  const preferences = useAllPreferences();
  const pinnedIds = usePinnedChats();
  const names = useNames(chats, filter !== "");
  return useMemo(() => {
    const directory = getDirectory(client);
    const query = filter.trim().toLocaleLowerCase();
    const isMatch = (chat: Chat): boolean => {
      const { peer } = chat;
      const names = [chat.name, peer, peer === null ? null : directory.get(peer).name];
      return names.some((name) => name?.toLocaleLowerCase().includes(query) === true);
    };
    const isArchived = ({ id }: Chat): boolean => preferences.get(id)?.isArchived === true;
    const archived = chats.filter(isArchived);
    const matching =
      query !== "" ? chats.filter(isMatch) : chats.filter((chat) => isArchived(chat) === isArchive);
    const order = new Map(pinnedIds.map((id, index) => [id, index]));
    const pinned = isArchive ? [] : matching.filter(({ id }) => order.has(id));
    pinned.sort((a, b) => (order.get(a.id) ?? 0) - (order.get(b.id) ?? 0));
    const others = isArchive ? matching : matching.filter(({ id }) => !order.has(id));
    return { pinned, others, archived: archived.length };
  }, [chats, filter, isArchive, preferences, pinnedIds, client, names]);
}

/** Load the names of all direct chats; the returned number changes when they are loaded. */
function useNames(chats: readonly Chat[], isEnabled: boolean): number {
  const client = useClient();
  const [version, setVersion] = useState(0);
  const peers = chats.map(({ peer }) => peer).filter((peer) => peer !== null);
  const key = isEnabled ? peers.toSorted().join(" ") : "";
  useEffect(() => {
    if (key === "") return;
    void getDirectory(client)
      .load(key.split(" "))
      .then(() => setVersion((before) => before + 1));
  }, [client, key]);
  return version;
}

/** Remove the unread mark of a chat when it is opened. */
function useReadMark(current: string | undefined): void {
  const { preferences } = useClient();
  useEffect(() => {
    if (current === undefined || !preferences.get(current).isMarkedUnread) return;
    preferences.change(current, { isMarkedUnread: false }).catch(() => {});
  }, [current, preferences]);
}
