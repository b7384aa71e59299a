// A list of posts: loads pages, adds new posts, and handles likes.

import {
  emptyFeed,
  withFirstPage,
  withLike,
  withPage,
  withPost,
  withSaved,
  withoutPost,
} from "../state/feed.js";
import { fill, h, hidden, setChildren } from "./dom.js";
import { createPost } from "./post.js";

const REFRESH_MS = 5000; // for edits, and likes by others

/** `attempt(action)` runs an action and shows its failure; `empty()` returns the empty-state text. */
export function createFeed({ me, social, attempt, onPerson, label, empty }) {
  const list = h("div", { class: "feed", role: "feed", aria: { label } });
  const more = h("button", { type: "button", class: "button button-quiet", on: { click: onMore } }, "Show more");
  const note = h("div", { class: "feed-note" });
  const element = h("div", { class: "feed-box" }, list, note, more);
  const cards = new Map(); // id → card
  let feed = emptyFeed;
  let read = null; // cursor → a page
  let timer = null;

  /** Show another list; `readPage(cursor)` reads a page of it. */
  function open(readPage) {
    close();
    read = readPage;
    update(emptyFeed);
    reload();
    timer = setInterval(() => document.hidden || reload({ isQuiet: true }), REFRESH_MS);
  }

  function close() {
    clearInterval(timer);
    read = null;
  }

  async function reload({ isQuiet = false } = {}) {
    const mine = read;
    const work = async () => {
      const page = await mine(null);
      if (read === mine) update(withFirstPage(feed, page, Date.now()));
    };
    if (isQuiet) await work().catch(() => {});
    else await attempt(work);
  }

  function onMore() {
    const mine = read;
    attempt(async () => {
      const page = await mine(feed.next);
      if (read === mine) update(withPage(feed, page, Date.now()));
    });
  }

  function update(next) {
    feed = next;
    const now = Date.now();
    for (const id of cards.keys()) if (!feed.posts.some((post) => post.id === id)) cards.delete(id);
    setChildren(
      list,
      feed.posts.map((post) => {
        const card = cards.get(post.id) ?? createPost({ me, onLike, onSave, onPerson, onRemove });
        cards.set(post.id, card);
        card.update(post, now);
        return card.element;
      }),
    );
    list.setAttribute("aria-busy", String(!feed.isLoaded));
    more.hidden = feed.next === null;
    if (!feed.isLoaded) fill(note, h("span", { class: "spinner" }), hidden("Loading posts"));
    else if (feed.posts.length === 0) fill(note, h("p", {}, empty()));
    else fill(note);
  }

  /** Optimistic update: shown at once, reverted if the request fails. */
  async function onLike(post, isLiked) {
    update(withLike(feed, post.id, isLiked, Date.now()));
    const isDone = await attempt(() => social.setLiked(post, isLiked));
    if (!isDone) update(withLike(feed, post.id, !isLiked, 0));
  }

  async function onSave(post, isSaved) {
    update(withSaved(feed, post.id, isSaved));
    const isDone = await attempt(() => social.setSaved(post, isSaved));
    if (!isDone) update(withSaved(feed, post.id, !isSaved));
  }

  async function onRemove(post) {
    if (await attempt(() => social.remove(post.id))) update(withoutPost(feed, post.id));
  }

  return { element, open, close, add: (post) => update(withPost(feed, post, Date.now())) };
}
