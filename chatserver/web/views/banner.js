// Banner with the connection status and the time of the next reconnect.

import { isCatchingUp } from "../selectors.js";
import { h, setText } from "./dom.js";

const SHOW_DELAY_MS = 900; // shorter interruptions are not shown

export function createBanner({ store, client, onLogin }) {
  const status = h("span", { class: "banner-text", role: "status" });
  const countdown = h("span", { class: "banner-count", aria: { hidden: true } });
  const button = h("button", {
    type: "button",
    class: "banner-button",
    hidden: true,
    on: { click: act },
  });
  const inner = h(
    "div",
    { class: "banner-inner" },
    h("span", { class: "banner-dot" }),
    h("span", { class: "banner-words" }, status, countdown),
    button,
  );
  const element = h("div", { class: "banner" }, inner);
  let troubleSince = null;
  let timer = 0;

  function act() {
    if (store.state.link.isExpired) onLogin();
    else client.connection.start();
  }

  function update(state) {
    clearTimeout(timer);
    const { link } = state;
    const isCalm = (link.status === "open" && !isCatchingUp(state)) || link.status === "idle";
    if (isCalm) {
      troubleSince = null;
      element.classList.remove("is-shown");
      inner.inert = true;
      return;
    }
    troubleSince ??= Date.now();
    const isShown = link.status === "stopped" || Date.now() - troubleSince >= SHOW_DELAY_MS;
    element.classList.toggle("is-shown", isShown);
    inner.inert = !isShown;
    element.dataset.status = link.status;
    if (isShown) draw(state);
    timer = setTimeout(() => update(store.state), isShown ? 500 : SHOW_DELAY_MS);
  }

  function draw(state) {
    const { text, until = null, action = null } = words(state);
    setText(status, text);
    const seconds = until === null ? 0 : Math.ceil((until - Date.now()) / 1000);
    setText(countdown, seconds > 0 ? ` Retrying in ${seconds} s.` : "");
    button.hidden = action === null;
    setText(button, action ?? "");
  }

  return { element, update };
}

function words(state) {
  const { link, me } = state;
  if (link.status === "open") return { text: "Loading missed messages…" };
  if (link.status === "connecting") {
    return { text: me === null ? "Connecting…" : "Reconnecting… New messages will be sent once you're back online." };
  }
  if (link.status === "stopped") {
    const text = link.reason ?? "The server closed the connection.";
    return { text, action: link.isExpired ? "Log in again" : "Try again" };
  }
  const isOffline = globalThis.navigator?.onLine === false;
  const why = isOffline ? "You're offline." : (link.reason ?? "Connection lost.");
  return {
    text: `${why} New messages will be sent once you're back online.`,
    until: link.retryAt,
    action: "Try now",
  };
}
