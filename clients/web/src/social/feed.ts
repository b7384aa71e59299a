// Lists of posts, newest first: pages, reloads and likes. Pure functions.

import type { Http } from "tierchat";

/** A post of a list. `order`: sort key of a saved post; `touchedAt`: last like or unlike. */
export interface FeedPost extends Http.PostInfo {
  order?: string;
  touchedAt?: number;
}

// The server counts a like a few seconds later; until then, the local state is shown.
const TRUSTED_MS = 5_000;

const orderOf = (post: FeedPost): string => post.order ?? post.id;
const isNewer = (a: FeedPost, b: FeedPost): number => (orderOf(a) < orderOf(b) ? 1 : -1);

/** Return the server's post with the user's recent like, which may not be counted yet. */
function mergePost(known: FeedPost | undefined, post: FeedPost, nowMs: number): FeedPost {
  if (known?.touchedAt === undefined || nowMs - known.touchedAt > TRUSTED_MS) return post;
  return { ...post, likes: known.likes, liked: known.liked, touchedAt: known.touchedAt };
}

/** Add posts without duplicates; newer copies replace older ones. */
export function withPosts(
  known: readonly FeedPost[],
  posts: readonly FeedPost[],
  nowMs: number,
): FeedPost[] {
  const byId = new Map(known.map((post) => [post.id, post]));
  for (const post of posts) byId.set(post.id, mergePost(byId.get(post.id), post, nowMs));
  return [...byId.values()].sort(isNewer);
}

/** The result of a reload of the first page. */
export interface ReloadResult {
  /** The updated known posts, without deleted ones. */
  posts: FeedPost[];
  /** New posts. */
  added: FeedPost[];
}

/**
 * Apply a reloaded first page. Known posts in its range that are missing from it were deleted. New
 * posts are returned separately, so that the list does not move while the user reads it.
 */
export function applyReload(
  known: readonly FeedPost[],
  page: { items: readonly FeedPost[]; next?: string | null },
  nowMs: number,
): ReloadResult {
  const last = page.items.at(-1);
  const ids = new Set(page.items.map((post) => post.id));
  const isBefore = (post: FeedPost): boolean =>
    page.next != null && last !== undefined && orderOf(post) < orderOf(last);
  const kept = known.filter((post) => ids.has(post.id) || isBefore(post));
  const knownIds = new Set(known.map((post) => post.id));
  const again = page.items.filter((post) => knownIds.has(post.id));
  const added = page.items.filter((post) => !knownIds.has(post.id));
  return { posts: withPosts(kept, again, nowMs), added };
}

/** Replace a post. */
export function withPost(posts: readonly FeedPost[], changed: FeedPost): FeedPost[] {
  return posts.map((post) => (post.id === changed.id ? { ...post, ...changed } : post));
}

/** Apply the user's like or unlike before the server confirms it. */
export function withLike(
  posts: readonly FeedPost[],
  id: string,
  liked: boolean,
  nowMs: number,
): FeedPost[] {
  return posts.map((post) => {
    if (post.id !== id || post.liked === liked) return post;
    const likes = Math.max(0, post.likes + (liked ? 1 : -1));
    return { ...post, liked, likes, touchedAt: nowMs };
  });
}
