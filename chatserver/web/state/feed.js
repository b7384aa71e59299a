// A list of posts, newest first, as a value: what pages, news and likes make of it. Pure.

// The server counts a like some seconds later: until then what one sees is what one did.
export const TRUSTED_MS = 5000;

export const emptyFeed = { posts: [], next: null, isLoaded: false };

const isNewer = (a, b) => (a.id === b.id ? 0 : a.id < b.id ? 1 : -1);

/** `posts` joined in, each once; of what is there twice the newer reading counts. */
function join(known, posts, now) {
  const byId = new Map(known.map((post) => [post.id, post]));
  for (const post of posts) byId.set(post.id, readAgain(byId.get(post.id), post, now));
  return [...byId.values()].sort(isNewer);
}

/** What the server says of a post, but for a like of one's own that it may not have counted. */
function readAgain(known, post, now) {
  if (known?.touchedAt === undefined || now - known.touchedAt > TRUSTED_MS) return post;
  return { ...post, likes: known.likes, liked: known.liked, touchedAt: known.touchedAt };
}

/** The page behind what is there. */
export function withPage(feed, { items, next }, now) {
  return { posts: join(feed.posts, items, now), next, isLoaded: true };
}

/**
 * The first page, read again: what is gone within its reach goes, what is below it stays.
 * `next` stays the end of all that is there.
 */
export function withFirstPage(feed, { items, next }, now) {
  const last = items.at(-1)?.id;
  const ids = new Set(items.map((post) => post.id));
  const isWhole = next === null;
  const kept = feed.posts.filter((post) => ids.has(post.id) || (!isWhole && post.id < last));
  const hasMore = kept.length > items.length && feed.next !== undefined;
  return { posts: join(kept, items, now), next: hasMore ? feed.next : next, isLoaded: true };
}

/** A post that came by itself. */
export function withPost(feed, post, now) {
  return { ...feed, posts: join(feed.posts, [post], now) };
}

export function withoutPost(feed, id) {
  return { ...feed, posts: feed.posts.filter((post) => post.id !== id) };
}

/** What one sees at once when one likes a post, or does no longer. */
export function withLike(feed, id, liked, now) {
  const posts = feed.posts.map((post) => {
    if (post.id !== id || post.liked === liked) return post;
    const likes = Math.max(0, post.likes + (liked ? 1 : -1));
    return { ...post, liked, likes, touchedAt: now };
  });
  return { ...feed, posts };
}
