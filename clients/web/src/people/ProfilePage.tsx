// A profile: picture, name, counts, actions and posts.

import { Ban, Check, Ellipsis, MessageCircle, Pencil, UserPlus } from "lucide-react";
import { useEffect, useState } from "react";
import type { Http } from "tierchat";
import { useClient, usePresence } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { type Loaded, useApi, useLoad } from "../data/use_load";
import {
  Button,
  ConfirmDialog,
  Dialog,
  EmptyState,
  Label,
  MenuButton,
  type MenuItem,
  showToast,
} from "../design";
import { getDirectory } from "../directory/directory";
import { FollowerList } from "../directory/FollowerList";
import { PersonAvatar } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { formatRelative } from "../i18n/format";
import { LoadedView } from "../page/Loadable";
import { Page } from "../page/Page";
import { buildPath, navigate, type PageProps } from "../page/router";
import { FeedView } from "../social/FeedView";
import { NewPost } from "../social/PostEditor";
import { useFeed } from "../social/use_feed";
import { useFollows } from "./PeoplePage";
import styles from "./ProfilePage.module.css";

/** The page `/people/:user`. */
export default function ProfilePage({ params }: PageProps) {
  const user = params["user"] ?? "";
  return <UserProfile key={user} user={user} />;
}

function UserProfile({ user }: { user: string }) {
  const { chats, people: text } = useText();
  const client = useClient();
  const profile = useApi("get_profile", { user });
  const feed = useFeed({ user });
  const isMe = user === client.user;
  useEffect(() => {
    if (profile.data !== null) getDirectory(client).set(user, { name: profile.data.name ?? user });
  }, [client, user, profile.data]);
  const errors = { forbidden: text.unavailable, not_found: chats.noSuchUser };
  const block = useBlock(user, user);
  const attempt = useAttempt();
  if (profile.error !== null && block.isBlocked) {
    const unblock = async (): Promise<void> => {
      if (await attempt(() => block.set(false))) profile.reload();
    };
    return (
      <Page title={user} onBack={() => navigate("/people")}>
        <EmptyState
          icon={Ban}
          title={text.blocked}
          action={<Button onClick={() => void unblock()}>{text.unblock}</Button>}
        />
      </Page>
    );
  }
  return (
    <Page title={profile.data?.name ?? user} onBack={() => navigate("/people")}>
      <LoadedView loaded={profile} errors={errors}>
        {(data) => (
          <>
            <ProfileCard profile={data} loaded={profile} />
            {isMe && <NewPost onPosted={feed.add} />}
            <FeedView
              feed={feed}
              label={text.posts}
              errors={errors}
              empty={<p className={styles["empty"]}>{text.noPosts}</p>}
            />
          </>
        )}
      </LoadedView>
    </Page>
  );
}

type OpenDialog = "followers" | "following" | "block" | null;

interface ProfileCardProps {
  profile: Http.UserProfile;
  loaded: Loaded<Http.UserProfile>;
}

function ProfileCard({ profile, loaded }: ProfileCardProps) {
  const text = useText().people;
  const client = useClient();
  const { user } = profile;
  const name = profile.name ?? user;
  const isMe = user === client.user;
  const [open, setOpen] = useState<OpenDialog>(null);
  const presence = usePresence(isMe ? [] : [user]).get(user);
  const block = useBlock(user, name);

  const attempt = useAttempt();
  // The profile is not reloaded, because the server updates the count a few seconds later.
  const follow = async (): Promise<void> => {
    const followed = !profile.followed;
    loaded.set({ ...profile, followed, followers: profile.followers + (followed ? 1 : -1) });
    const isDone = await attempt(() =>
      client.http.call(followed ? "follow" : "unfollow", { user }),
    );
    if (!isDone) loaded.set(profile);
  };
  const message = (): void =>
    void attempt(async () => {
      const chat = await client.openDirect(user);
      navigate(buildPath("/chats/:chat", { chat: chat.id }));
    });
  const items: MenuItem[] = [
    block.isBlocked
      ? { label: text.unblock, icon: Ban, onSelect: () => void attempt(() => block.set(false)) }
      : { label: text.block, icon: Ban, isDangerous: true, onSelect: () => setOpen("block") },
  ];
  return (
    <section className={styles["card"]} aria-label={text.profile}>
      <div className={styles["head"]}>
        <PersonAvatar user={user} size="xl" isOnline={presence?.isOnline} />
        <div className={styles["names"]}>
          <h2>
            <bdi>{name}</bdi>
          </h2>
          <p className={styles["user"]}>
            <bdi>@{user}</bdi>
            {profile.follows && <Label>{text.followsYou}</Label>}
          </p>
          {presence !== undefined && (
            <p className={styles["presence"]}>
              {presence.isOnline
                ? text.online
                : presence.lastSeenTs !== null &&
                  text.lastSeen(formatRelative(presence.lastSeenTs / 1000))}
            </p>
          )}
        </div>
        <div className={styles["actions"]}>
          {isMe ? (
            <Button icon={Pencil} onClick={() => navigate("/settings/profile")}>
              {text.editProfile}
            </Button>
          ) : (
            <>
              <Button
                variant={profile.followed ? "secondary" : "primary"}
                icon={profile.followed ? Check : UserPlus}
                aria-pressed={profile.followed}
                onClick={() => void follow()}
              >
                {profile.followed ? text.unfollow : text.follow}
              </Button>
              <Button icon={MessageCircle} onClick={message}>
                {text.message}
              </Button>
              <MenuButton icon={Ellipsis} label={text.more} items={items} />
            </>
          )}
        </div>
      </div>
      {profile.about !== null && profile.about !== "" && (
        <p className={styles["about"]} dir="auto">
          {profile.about}
        </p>
      )}
      {block.isBlocked && <p className={styles["blocked"]}>{text.blocked}</p>}
      <p className={styles["counts"]}>
        <button type="button" onClick={() => setOpen("followers")}>
          {text.followerCount(profile.followers)}
        </button>
        <button type="button" onClick={() => setOpen("following")}>
          {text.followingCount(profile.following)}
        </button>
        <span>{text.postCount(profile.posts)}</span>
      </p>
      {(open === "followers" || open === "following") && (
        <FollowsDialog kind={open} user={user} onClose={() => setOpen(null)} />
      )}
      {open === "block" && (
        <ConfirmDialog
          title={text.blockTitle(name)}
          message={text.blockText}
          action={text.block}
          isDangerous
          onConfirm={() => attempt(() => block.set(true))}
          onClose={() => setOpen(null)}
        />
      )}
    </section>
  );
}

const BLOCKS_MAX = 2_000;

/** Return whether a user is blocked, and a function that changes it. */
export function useBlock(user: string, name: string) {
  const text = useText().people;
  const client = useClient();
  const blocks = useLoad("blocks", async () => {
    const users: string[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await client.http.call("list_blocks", {
        limit: 200,
        ...(cursor ? { cursor } : {}),
      });
      users.push(...page.items.map(({ user: blocked }) => blocked));
      cursor = page.next;
    } while (cursor != null && users.length < BLOCKS_MAX);
    return users;
  });
  const others = (blocks.data ?? []).filter((blocked) => blocked !== user);
  return {
    isBlocked: blocks.data?.includes(user) ?? false,
    async set(isBlocked: boolean): Promise<void> {
      await client.http.call(isBlocked ? "block" : "unblock", { user });
      blocks.set(isBlocked ? [...others, user] : others);
      showToast(isBlocked ? text.isBlocked(name) : text.isUnblocked(name));
    },
  };
}

interface FollowsDialogProps {
  kind: "followers" | "following";
  user: string;
  onClose: () => void;
}

function FollowsDialog({ kind, user, onClose }: FollowsDialogProps) {
  const text = useText().people;
  const pages = useFollows(kind, user);
  return (
    <Dialog title={text[kind]} onClose={onClose}>
      <FollowerList pages={pages} label={text[kind]} empty={text.noOne} onNavigate={onClose} />
    </Dialog>
  );
}
