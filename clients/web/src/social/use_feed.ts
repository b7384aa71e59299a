// A live list of posts: pages, new posts, likes and edits.

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatClient, Http } from "tierchat";
import { useClient, useEvent } from "tierchat/react";
import { usePages, type Page, type Pages } from "../data/use_pages";
import { applyReload, withLike, withPost, withPosts, type FeedPost } from "./feed";

const REFRESH_MS = 5_000; // for edits, and likes by others
const PAGE = 20;

/** The source of a feed. */
export type FeedSource = "timeline" | "saved" | { user: string };

/** A list of posts and its operations. The methods throw `ChatError`. */
export interface Feed {
  pages: Pages<FeedPost>;
  /** Number of new posts that are not shown yet. */
  freshCount: number;
  showFresh: () => void;
  add: (post: Http.PostInfo) => void;
  replace: (post: Http.PostInfo) => void;
  setLiked: (post: FeedPost, isLiked: boolean) => Promise<void>;
  setSaved: (post: FeedPost, isSaved: boolean) => Promise<void>;
  remove: (post: FeedPost) => Promise<void>;
}

async function readPage(
  { http, user: me }: ChatClient,
  source: FeedSource,
  cursor: string | undefined,
): Promise<Page<FeedPost>> {
  const place = { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
  if (source === "timeline") return http.call("read_timeline", { user: me, ...place });
  if (source === "saved") {
    const { items, next } = await http.call("list_favorite_posts", place);
    return { items: items.map(savedPostOf), next: next ?? null };
  }
  return http.call("list_posts", { user: source.user, ...place });
}

function savedPostOf({ saved, post }: Http.FavoritePost): FeedPost {
  return { ...post, order: `${String(saved).padStart(16, "0")}-${post.id}` };
}

/** Load a feed and keep it current while it is shown. */
export function useFeed(source: FeedSource): Feed {
  const client = useClient();
  const key = typeof source === "string" ? source : `user ${source.user}`;
  const pages = usePages<FeedPost>(`feed ${key}`, (cursor) => readPage(client, source, cursor));
  const [fresh, setFresh] = useState<readonly FeedPost[]>([]);
  const latest = useRef({ source, pages, fresh, key });
  latest.current = { source, pages, fresh, key };
  const { update } = pages;

  useEffect(() => setFresh([]), [key]);

  const refresh = useCallback(async () => {
    const { source: read, key: readKey, pages: before } = latest.current;
    if (document.hidden || before.isFirst || before.isLoading) return;
    const page = await readPage(client, read, undefined).catch(() => null); // retried soon
    if (page === null || latest.current.key !== readKey) return;
    const result = applyReload(latest.current.pages.items, page, Date.now());
    update((posts) => applyReload(posts, page, Date.now()).posts);
    // Own posts, and posts for an empty list, are shown without a click.
    const isShown = (post: FeedPost): boolean =>
      post.user === client.user || latest.current.pages.items.length === 0 || read === "saved";
    update((posts) => withPosts(posts, result.added.filter(isShown), Date.now()));
    setFresh(result.added.filter((post) => !isShown(post)));
  }, [client, update]);

  useEffect(() => {
    const timer = setInterval(() => void refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);

  useEvent("signalReceived", (event) => {
    if (event.kind === "post" && latest.current.source !== "saved") void refresh();
  });

  const showFresh = useCallback(() => {
    const { fresh: arrived } = latest.current;
    update((posts) => withPosts(posts, arrived, Date.now()));
    setFresh([]);
  }, [update]);

  const add = useCallback(
    (post: Http.PostInfo) => update((posts) => withPosts(posts, [post], Date.now())),
    [update],
  );
  const replace = useCallback(
    (post: Http.PostInfo) => update((posts) => withPost(posts, post)),
    [update],
  );
  const setLiked = useCallback(
    async (post: FeedPost, isLiked: boolean) => {
      update((posts) => withLike(posts, post.id, isLiked, Date.now()));
      try {
        await client.http.call(isLiked ? "like" : "unlike", { user: post.user, post: post.id });
      } catch (error) {
        update((posts) => withLike(posts, post.id, !isLiked, 0));
        throw error;
      }
    },
    [client, update],
  );
  const setSaved = useCallback(
    async (post: FeedPost, favorite: boolean) => {
      const change = (to: boolean) => (posts: readonly FeedPost[]) =>
        posts.map((each) => (each.id === post.id ? { ...each, favorite: to } : each));
      update(change(favorite));
      const place = { user: post.user, post: post.id };
      try {
        await client.http.call(favorite ? "save_post" : "remove_saved_post", place);
      } catch (error) {
        update(change(!favorite));
        throw error;
      }
    },
    [client, update],
  );
  const remove = useCallback(
    async (post: FeedPost) => {
      await client.http.call("delete_post", { post: post.id });
      update((posts) => posts.filter(({ id }) => id !== post.id));
    },
    [client, update],
  );
  const freshCount = fresh.length;
  return { pages, freshCount, showFresh, add, replace, setLiked, setSaved, remove };
}
