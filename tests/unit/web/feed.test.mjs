// Lists of posts: pages, news, what is gone, and likes that show before they are counted.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  TRUSTED_MS,
  emptyFeed,
  withFirstPage,
  withLike,
  withPage,
  withPost,
  withSaved,
  withoutPost,
} from "../../../chatserver/web/state/feed.js";

const post = (id, more = {}) => ({ id, user: "u", content: id, likes: 0, liked: false, ...more });
const ids = (feed) => feed.posts.map(({ id }) => id).join("");
const pageOf = (text, next = null) => ({ items: [...text].map((id) => post(id)), next });

test("pages and news are one list, newest first, each post once", () => {
  let feed = withPage(emptyFeed, pageOf("FED", "c1"), 0);
  feed = withPage(feed, pageOf("CB"), 0);
  feed = withPost(feed, post("G"), 0);
  feed = withPost(feed, post("D", { content: "edited" }), 0);

  assert.equal(ids(feed), "GFEDCB");
  assert.equal(feed.next, null);
  assert.equal(feed.posts[3].content, "edited");
  assert.equal(ids(withoutPost(feed, "D")), "GFECB");
});

test("a first page that is read again takes away what is gone, and keeps what is below", () => {
  const feed = withPage(withPage(emptyFeed, pageOf("FED", "c1"), 0), pageOf("CB", "c2"), 0);
  const again = withFirstPage(feed, pageOf("GFD", "c9"), 0);

  assert.equal(ids(again), "GFDCB");
  assert.equal(again.next, "c2");
  assert.equal(ids(withFirstPage(feed, pageOf("FD"), 0)), "FD");
  assert.equal(withFirstPage(emptyFeed, pageOf("FD", "c1"), 0).next, "c1");
});

test("a like shows at once, and the server's older count does not take it back", () => {
  const feed = withLike(withPage(emptyFeed, pageOf("A"), 0), "A", true, 1000);
  assert.deepEqual([feed.posts[0].likes, feed.posts[0].liked], [1, true]);

  const early = withFirstPage(feed, { items: [post("A", { liked: true })], next: null }, 2000);
  assert.equal(early.posts[0].likes, 1);
  const late = { items: [post("A", { liked: true, likes: 7 })], next: null };
  assert.equal(withFirstPage(early, late, 1001 + TRUSTED_MS).posts[0].likes, 7);
  assert.deepEqual(withLike(feed, "A", true, 1001), feed);
  assert.equal(withLike(feed, "A", false, 1002).posts[0].likes, 0);
});

test("saved posts are sorted by the time of saving", () => {
  const saved = (id, order) => post(id, { order, favorite: true });
  let feed = withFirstPage(emptyFeed, { items: [saved("A", "9"), saved("C", "8")], next: "c1" }, 0);
  feed = withPage(feed, { items: [saved("B", "7")], next: null }, 0);
  feed = withFirstPage(feed, { items: [saved("A", "9")], next: "c1" }, 0);

  assert.equal(ids(feed), "ACB");
  assert.equal(withSaved(feed, "C", false).posts[1].favorite, false);
});
