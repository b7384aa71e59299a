// Lists of posts, newest first: pages, reloads and likes. Pure functions.

import type { Http } from "tierchat";

/** A post of a list. `order`: sort key of a saved post. `likedAtMs`: last like or unlike. */
export interface FeedPost extends Http.PostInfo {
  order?: string;
  likedAtMs?: number;
}

// The server counts a like a few seconds later; until then, the local state is shown.
const LIKE_DELAY_MS = 5_000;

const getOrder = (post: FeedPost): string => post.order ?? post.id;
const compareOrder = (a: FeedPost, b: FeedPost): number => (getOrder(a) < getOrder(b) ? 1 : -1);

/** Return the server's post with the user's recent like, which may not be counted yet. */
function mergePost(previous: FeedPost | undefined, post: FeedPost, nowMs: number): FeedPost {
  if (previous?.likedAtMs === undefined || nowMs - previous.likedAtMs > LIKE_DELAY_MS) return post;
  return { ...post, likes: previous.likes, liked: previous.liked, likedAtMs: previous.likedAtMs };
}

/** Add posts without duplicates; added copies replace older ones. */
export function mergePosts(
  posts: readonly FeedPost[],
  added: readonly FeedPost[],
  nowMs: number,
): FeedPost[] {
  const byId = new Map(posts.map((post) => [post.id, post]));
  for (const post of added) byId.set(post.id, mergePost(byId.get(post.id), post, nowMs));
  return [...byId.values()].sort(compareOrder);
}

/** The result of a reload of the first page. */
export interface ReloadResult {
  /** The updated posts of the list, without deleted ones. */
  posts: FeedPost[];
  /** New posts. */
  added: FeedPost[];
}

/**
 * Apply a reloaded first page. Posts in its range that it does not contain were deleted. New posts
 * are returned separately, so that the list does not move while the user reads it.
 */
export function applyReload(
  posts: readonly FeedPost[],
  page: { items: readonly FeedPost[]; next?: string | null },
  nowMs: number,
): ReloadResult {
  const last = page.items.at(-1);
  const ids = new Set(page.items.map((post) => post.id));
  const isBefore = (post: FeedPost): boolean =>
    page.next != null && last !== undefined && getOrder(post) < getOrder(last);
  const remaining = posts.filter((post) => ids.has(post.id) || isBefore(post));
  const knownIds = new Set(posts.map((post) => post.id));
  const updated = page.items.filter((post) => knownIds.has(post.id));
  const added = page.items.filter((post) => !knownIds.has(post.id));
  return { posts: mergePosts(remaining, updated, nowMs), added };
}

/** Replace a post. */
export function replacePost(posts: readonly FeedPost[], changed: FeedPost): FeedPost[] {
  return posts.map((post) => (post.id === changed.id ? { ...post, ...changed } : post));
}

/** Apply the user's like or unlike before the server confirms it. */
export function applyLike(
  posts: readonly FeedPost[],
  id: string,
  liked: boolean,
  nowMs: number,
): FeedPost[] {
  return posts.map((post) => {
    if (post.id !== id || post.liked === liked) return post;
    const likes = Math.max(0, post.likes + (liked ? 1 : -1));
    return { ...post, liked, likes, likedAtMs: nowMs };
  });
}
