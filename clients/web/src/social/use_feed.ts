// A live list of posts: pages, new posts, likes and edits.

import { useCallback, useEffect, useRef, useState } from "react";
import type { ChatClient, Http } from "tierchat";
import { useClient, useEvent } from "tierchat/react";
import { type Page, type Pages, usePages } from "../data/use_pages";
import { applyLike, applyReload, type FeedPost, mergePosts, replacePost } from "./feed";

const REFRESH_MS = 5_000; // for edits, and likes by others
const PAGE = 20;

/** The source of a feed. */
export type FeedSource = "timeline" | "saved" | { user: string };

/** A list of posts and its operations. The methods throw `ChatError`. */
export interface Feed {
  pages: Pages<FeedPost>;
  /** Number of new posts that are not shown yet. */
  newCount: number;
  showNew: () => void;
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
  const query = { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
  if (source === "timeline") return http.call("read_timeline", { user: me, ...query });
  if (source === "saved") {
    const { items, next } = await http.call("list_favorite_posts", query);
    return { items: items.map(buildSavedPost), next: next ?? null };
  }
  return http.call("list_posts", { user: source.user, ...query });
}

function buildSavedPost({ saved, post }: Http.FavoritePost): FeedPost {
  return { ...post, order: `${String(saved).padStart(16, "0")}-${post.id}` };
}

/** Load a feed and keep it current while it is shown. */
export function useFeed(source: FeedSource): Feed {
  const client = useClient();
  const key = typeof source === "string" ? source : `user ${source.user}`;
  const pages = usePages<FeedPost>(`feed ${key}`, (cursor) => readPage(client, source, cursor));
  const [newPosts, setNewPosts] = useState<readonly FeedPost[]>([]);
  const latest = useRef({ source, pages, newPosts, key });
  latest.current = { source, pages, newPosts, key };
  const { update } = pages;

  useEffect(() => setNewPosts([]), [key]);

  const refresh = useCallback(async () => {
    const { source: currentSource, key: currentKey, pages: before } = latest.current;
    if (document.hidden || before.isInitial || before.isLoading) return;
    const page = await readPage(client, currentSource, undefined).catch(() => null); // retried soon
    if (page === null || latest.current.key !== currentKey) return;
    const result = applyReload(latest.current.pages.items, page, Date.now());
    update((posts) => applyReload(posts, page, Date.now()).posts);
    // Own posts, and posts for an empty list, are shown without a click.
    const isEmpty = latest.current.pages.items.length === 0;
    const isShown = (post: FeedPost): boolean =>
      post.user === client.user || isEmpty || currentSource === "saved";
    update((posts) => mergePosts(posts, result.added.filter(isShown), Date.now()));
    setNewPosts(result.added.filter((post) => !isShown(post)));
  }, [client, update]);

  useEffect(() => {
    const timer = setInterval(() => void refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);

  useEvent("signalReceived", (event) => {
    if (event.kind === "post" && latest.current.source !== "saved") void refresh();
  });

  const showNew = useCallback(() => {
    const { newPosts: added } = latest.current;
    update((posts) => mergePosts(posts, added, Date.now()));
    setNewPosts([]);
  }, [update]);

  const add = useCallback(
    (post: Http.PostInfo) => update((posts) => mergePosts(posts, [post], Date.now())),
    [update],
  );
  const replace = useCallback(
    (post: Http.PostInfo) => update((posts) => replacePost(posts, post)),
    [update],
  );
  const setLiked = useCallback(
    async (post: FeedPost, isLiked: boolean) => {
      update((posts) => applyLike(posts, post.id, isLiked, Date.now()));
      try {
        await client.http.call(isLiked ? "like" : "unlike", { user: post.user, post: post.id });
      } catch (error) {
        update((posts) => applyLike(posts, post.id, !isLiked, 0));
        throw error;
      }
    },
    [client, update],
  );
  const setSaved = useCallback(
    async (post: FeedPost, favorite: boolean) => {
      const change = (isFavorite: boolean) => (posts: readonly FeedPost[]) =>
        posts.map((item) => (item.id === post.id ? { ...item, favorite: isFavorite } : item));
      update(change(favorite));
      const query = { user: post.user, post: post.id };
      try {
        await client.http.call(favorite ? "save_post" : "remove_saved_post", query);
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
  const newCount = newPosts.length;
  return { pages, newCount, showNew, add, replace, setLiked, setSaved, remove };
}
