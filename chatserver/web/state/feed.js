// List of posts, newest first: merges pages, new posts and likes. Saved posts sort by `order`. Pure.

// The server counts a like some seconds later; until then the local state is shown.
export const TRUSTED_MS = 5000;

export const emptyFeed = { posts: [], next: null, isLoaded: false };

const orderOf = (post) => post.order ?? post.id;
const isNewer = (a, b) => (a.id === b.id ? 0 : orderOf(a) < orderOf(b) ? 1 : -1);

/** Merge `posts`, each once; the newer copy wins. */
function join(known, posts, now) {
  const byId = new Map(known.map((post) => [post.id, post]));
  for (const post of posts) byId.set(post.id, readAgain(byId.get(post.id), post, now));
  return [...byId.values()].sort(isNewer);
}

/** The server's copy of a post, but with the user's recent like, which it may not have counted. */
function readAgain(known, post, now) {
  if (known?.touchedAt === undefined || now - known.touchedAt > TRUSTED_MS) return post;
  return { ...post, likes: known.likes, liked: known.liked, touchedAt: known.touchedAt };
}

/** Append the next page. */
export function withPage(feed, { items, next }, now) {
  return { posts: join(feed.posts, items, now), next, isLoaded: true };
}

/**
 * Apply the reloaded first page: posts missing within its range are removed, older ones stay.
 * `next` remains the end of the list.
 */
export function withFirstPage(feed, { items, next }, now) {
  const last = items.length === 0 ? undefined : orderOf(items.at(-1));
  const ids = new Set(items.map((post) => post.id));
  const isWhole = next === null;
  const kept = feed.posts.filter((post) => ids.has(post.id) || (!isWhole && orderOf(post) < last));
  const hasMore = kept.length > items.length && feed.next !== undefined;
  return { posts: join(kept, items, now), next: hasMore ? feed.next : next, isLoaded: true };
}

/** Add a new post. */
export function withPost(feed, post, now) {
  return { ...feed, posts: join(feed.posts, [post], now) };
}

export function withoutPost(feed, id) {
  return { ...feed, posts: feed.posts.filter((post) => post.id !== id) };
}

/** Mark a post as saved or not. */
export function withSaved(feed, id, favorite) {
  return { ...feed, posts: feed.posts.map((post) => (post.id === id ? { ...post, favorite } : post)) };
}

/** Apply the user's like or unlike at once. */
export function withLike(feed, id, liked, now) {
  const posts = feed.posts.map((post) => {
    if (post.id !== id || post.liked === liked) return post;
    const likes = Math.max(0, post.likes + (liked ? 1 : -1));
    return { ...post, liked, likes, touchedAt: now };
  });
  return { ...feed, posts };
}
