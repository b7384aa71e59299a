// Profiles, follows, posts, likes, favorites and the timeline, by REST.

import { createCaller } from "./http_client.js";

export const POST_CHARS_MAX = 2000;
const PAGE = 20;

/** A failed request; the message is shown to users. */
export class SocialFailed extends Error {}

/** `session()` returns `{token}`; `newId()` an idempotency key. */
export function createSocial({ session, newId }) {
  const call = createCaller(session, (status, problem) => new SocialFailed(inWords(status, problem)));
  const userPath = (user) => `/v1/users/${encodeURIComponent(user)}`;
  const postPath = ({ user, id }) => `${userPath(user)}/posts/${encodeURIComponent(id)}`;
  const ownPath = (id) => `/v1/me/posts/${encodeURIComponent(id)}`;
  const savedPostPath = ({ user, id }) =>
    `/v1/me/favorites/posts/${encodeURIComponent(user)}/${encodeURIComponent(id)}`;
  const savedMessagePath = (chat, seq) =>
    `/v1/me/favorites/messages/${encodeURIComponent(chat)}/${seq}`;
  const followPath = (user) => `/v1/me/following/${encodeURIComponent(user)}`;

  /** A page of a list: `{items, next}`; `next` is the `cursor` of the next page. */
  const page = (path, cursor = null) =>
    call("GET", `${path}?limit=${PAGE}${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`);

  return {
    profile: (user) => call("GET", userPath(user)),
    followers: (user, cursor) => page(`${userPath(user)}/followers`, cursor),
    following: (user, cursor) => page(`${userPath(user)}/following`, cursor),
    posts: (user, cursor) => page(`${userPath(user)}/posts`, cursor),
    timeline: (me, cursor) => page(`${userPath(me)}/timeline`, cursor),
    post: (user, id) => call("GET", postPath({ user, id })),
    follow: (user) => call("PUT", followPath(user)),
    unfollow: (user) => call("DELETE", followPath(user)),
    /** Create a post; idempotent by `key`. */
    create: (content, key = newId()) =>
      call("POST", "/v1/me/posts", { content }, { "idempotency-key": key }),
    remove: (id) => call("DELETE", ownPath(id)),
    /** Saved posts as a page of posts; `order` sorts them by the time of saving. */
    savedPosts: async (cursor) => {
      const { items, next } = await page("/v1/me/favorites/posts", cursor);
      const posts = items.map(({ saved, post }) => ({
        ...post,
        order: `${String(saved).padStart(16, "0")}-${post.id}`,
      }));
      return { items: posts, next };
    },
    /** Saved messages: a page of `{saved, message}`. */
    savedMessages: (cursor) => page("/v1/me/favorites/messages", cursor),
    setSaved: (post, isSaved) => call(isSaved ? "PUT" : "DELETE", savedPostPath(post)),
    setMessageSaved: (chat, seq, isSaved) =>
      call(isSaved ? "PUT" : "DELETE", savedMessagePath(chat, seq)),
    setLiked: (post, isLiked) => call(isLiked ? "PUT" : "DELETE", `${postPath(post)}/like`),
  };
}

function inWords(status, problem) {
  if (status === 0) return "Can't reach the server. Try again.";
  if (status === 403) return "This user's profile and posts aren't available to you.";
  if (status === 404) return "User or post not found.";
  if (status === 413) return "This is too long.";
  if (status === 429) return "Too many requests. Wait a moment, then try again.";
  const detail = String(problem?.detail ?? "");
  return status === 400 && detail !== "" ? `${detail}.` : "Something went wrong. Try again.";
}
