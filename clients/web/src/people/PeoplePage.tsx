// The directory: contacts, followed users and followers, with a search for everyone.

import { ArrowRight, Search, Users } from "lucide-react";
import { type FormEvent, useDeferredValue, useId, useState } from "react";
import type { Http } from "tierchat";
import { useChats, useClient, usePresence } from "tierchat/react";
import { type Pages, usePages } from "../data/use_pages";
import { EmptyState, Tabs, TextField } from "../design";
import { isMatch, isUserId, listContacts } from "../directory/contacts";
import { getDirectory, usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import { usePeopleSearch } from "../directory/people_search";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { ListPage } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { buildPath, navigate, useMatch } from "../page/router";
import styles from "./PeoplePage.module.css";

type Tab = "contacts" | "following" | "followers";
const SHOWN_MAX = 100;
const WATCHED_MAX = 100;

/** The page `/people`. */
export default function PeoplePage() {
  const text = useText().people;
  const client = useClient();
  const [tab, setTab] = useState<Tab>("contacts");
  const [typed, setTyped] = useState("");
  const [isInvalid, setInvalid] = useState(false);
  const query = useDeferredValue(typed);
  const panel = useId();
  const user = typed.trim().replace(/^@/, "");

  const onSubmit = (event: FormEvent): void => {
    event.preventDefault();
    setInvalid(!isUserId(user));
    if (isUserId(user)) navigate(buildPath("/people/:user", { user }));
  };
  const tabs = [
    { id: "contacts" as const, label: text.contacts },
    { id: "following" as const, label: text.following },
    { id: "followers" as const, label: text.followers },
  ];
  return (
    <ListPage
      title={text.title}
      toolbar={
        <>
          <form role="search" onSubmit={onSubmit}>
            <TextField
              type="search"
              label={text.find}
              isLabelHidden
              placeholder={text.findHint}
              autoComplete="off"
              autoCapitalize="none"
              spellCheck={false}
              maxLength={64}
              value={typed}
              error={isInvalid ? text.invalidUser : undefined}
              onChange={(event) => {
                setTyped(event.target.value);
                setInvalid(false);
              }}
            />
          </form>
          <Tabs label={text.title} tabs={tabs} selected={tab} panel={panel} onSelect={setTab} />
        </>
      }
    >
      <div id={panel} role="tabpanel" aria-label={tabs.find(({ id }) => id === tab)?.label}>
        {user !== "" && isUserId(user) && (
          <Rows label={text.open(user)}>
            <Row
              picture={<Search size={20} aria-hidden />}
              title={text.open(user)}
              note={<ArrowRight size={16} aria-hidden />}
              to={buildPath("/people/:user", { user })}
            />
          </Rows>
        )}
        {tab === "contacts" && <Contacts query={query} />}
        {tab === "following" && (
          <Follows kind="following" user={client.user} query={query} empty={text.noFollowing} />
        )}
        {tab === "followers" && (
          <Follows kind="followers" user={client.user} query={query} empty={text.noFollowers} />
        )}
      </div>
    </ListPage>
  );
}

function Contacts({ query }: { query: string }) {
  const text = useText().people;
  const client = useClient();
  const profiles = getDirectory(client);
  const users = listContacts(useChats(), client.user);
  const contacts = users
    .filter((user) => isMatch(query, user, profiles.get(user).name))
    .slice(0, SHOWN_MAX);
  const others = usePeopleSearch(query).filter((user) => !contacts.includes(user));
  const presence = usePresence(contacts.slice(0, WATCHED_MAX));
  if (users.length === 0 && query.trim() === "") {
    return (
      <EmptyState icon={Users} title={text.noContacts}>
        {text.noContactsHint}
      </EmptyState>
    );
  }
  if (contacts.length + others.length === 0) return <p role="status">{text.noMatch}</p>;
  return (
    <>
      {contacts.length > 0 && (
        <Rows label={text.contacts}>
          {contacts.map((user) => (
            <Contact key={user} user={user} isOnline={presence.get(user)?.isOnline} />
          ))}
        </Rows>
      )}
      {others.length > 0 && (
        <>
          <h2 className={styles["others"]}>{text.others}</h2>
          <Rows label={text.others}>
            {others.map((user) => (
              <Contact key={user} user={user} isOnline={undefined} />
            ))}
          </Rows>
        </>
      )}
    </>
  );
}

function Contact({ user, isOnline }: { user: string; isOnline: boolean | undefined }) {
  const text = useText().people;
  const { name } = usePerson(user);
  const isCurrent = useMatch()?.params["user"] === user;
  const parts = [name === user ? "" : `@${user}`, isOnline === true ? text.online : ""];
  const line = parts.filter(Boolean).join(" · ");
  return (
    <Row
      picture={<PersonAvatar user={user} isOnline={isOnline} />}
      title={<bdi>{name}</bdi>}
      text={line === "" ? undefined : <bdi>{line}</bdi>}
      to={buildPath("/people/:user", { user })}
      isCurrent={isCurrent}
    />
  );
}

interface FollowsProps {
  kind: "following" | "followers";
  user: string;
  query: string;
  empty: string;
}

function Follows({ kind, user, query, empty }: FollowsProps) {
  const text = useText().people;
  const pages = useFollows(kind, user);
  const current = useMatch()?.params["user"];
  return (
    <PagesView pages={pages} empty={<EmptyState icon={Users} title={empty} />}>
      {(items) => {
        const matches = items.filter(({ user, name }) => isMatch(query, user, name ?? user));
        if (matches.length === 0) return <p role="status">{text.noMatch}</p>;
        return (
          <Rows label={text[kind]}>
            {matches.map((follower) => (
              <Row
                key={follower.user}
                picture={<PersonAvatar user={follower.user} />}
                title={<bdi>{follower.name ?? follower.user}</bdi>}
                text={follower.name === null ? undefined : <bdi>@{follower.user}</bdi>}
                to={buildPath("/people/:user", { user: follower.user })}
                isCurrent={follower.user === current}
              />
            ))}
          </Rows>
        );
      }}
    </PagesView>
  );
}

/** Load the followers of a user, or the users that they follow. */
export function useFollows(kind: "following" | "followers", user: string): Pages<Http.Follower> {
  const { http } = useClient();
  return usePages(`${kind} ${user}`, (cursor) =>
    http.call(kind === "following" ? "list_following" : "list_followers", {
      user,
      ...(cursor ? { cursor } : {}),
    }),
  );
}
