// A list of posts on the page: reads pages, joins in what is new, and lets one like.

import {
  emptyFeed,
  withFirstPage,
  withLike,
  withPage,
  withPost,
  withoutPost,
} from "../state/feed.js";
import { fill, h, hidden, setChildren } from "./dom.js";
import { createPost } from "./post.js";

const AGAIN_MS = 5000; // edits, and likes of others

/** `attempt(deed)` does what may fail and says what went wrong; `empty`: the words where none is. */
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
    take(emptyFeed);
    reload();
    timer = setInterval(() => document.hidden || reload({ isQuiet: true }), AGAIN_MS);
  }

  function close() {
    clearInterval(timer);
    read = null;
  }

  async function reload({ isQuiet = false } = {}) {
    const mine = read;
    const work = async () => {
      const page = await mine(null);
      if (read === mine) take(withFirstPage(feed, page, Date.now()));
    };
    if (isQuiet) await work().catch(() => {});
    else await attempt(work);
  }

  function onMore() {
    const mine = read;
    attempt(async () => {
      const page = await mine(feed.next);
      if (read === mine) take(withPage(feed, page, Date.now()));
    });
  }

  function take(next) {
    feed = next;
    const now = Date.now();
    for (const id of cards.keys()) if (!feed.posts.some((post) => post.id === id)) cards.delete(id);
    setChildren(
      list,
      feed.posts.map((post) => {
        const card = cards.get(post.id) ?? createPost({ me, onLike, onPerson, onRemove });
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

  /** What one did shows at once; if it fails it is taken back, and said. */
  async function onLike(post, isLiked) {
    take(withLike(feed, post.id, isLiked, Date.now()));
    const isDone = await attempt(() => social.setLiked(post, isLiked));
    if (!isDone) take(withLike(feed, post.id, !isLiked, 0));
  }

  async function onRemove(post) {
    if (await attempt(() => social.remove(post.id))) take(withoutPost(feed, post.id));
  }

  return { element, open, close, add: (post) => take(withPost(feed, post, Date.now())) };
}
