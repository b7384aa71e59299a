// Puts the client together: the configuration, the login, the page. The only place that knows all
// the parts.

import { logOut, refreshLogin } from "./account.js";
import { createAdmin } from "./admin.js";
import { ChatClient } from "./client.js";
import { createFiles } from "./files.js";
import { isId } from "./format.js";
import { createModeration } from "./moderation.js";
import { createPush, drawBadge } from "./push.js";
import { keepFresh } from "./renewal.js";
import { demoLogin, fetchConfig, isExpired } from "./session.js";
import {
  deviceId,
  forgetUser,
  loadDrafts,
  loadFacts,
  loadHasAccount,
  loadOutbox,
  loadSession,
  newId,
  saveDrafts,
  saveFacts,
  saveHasAccount,
  saveOutbox,
  saveSession,
} from "./storage.js";
import { createSocial } from "./social.js";
import { createStore } from "./store.js";
import { createAccount } from "./views/account.js";
import { fill, h } from "./views/dom.js";
import { createLogin } from "./views/login.js";
import { createShell } from "./views/shell.js";

const root = document.getElementById("app");
const ENDED = "Your session has ended. Log in again to go on; what you wrote is kept.";
const STILL_IN = "The server cannot be reached, so you may still be logged in.";
const REFUSED = "The token was not accepted. Check that it is whole and has not expired.";

const env = {
  openSocket: (url, protocols) => new WebSocket(url, protocols),
  setTimeout: (work, ms) => setTimeout(work, ms),
  clearTimeout: (timer) => clearTimeout(timer),
  now: () => Date.now(),
  random: () => Math.random(),
  newId,
};

async function main() {
  let config;
  try {
    config = await fetchConfig();
  } catch (problem) {
    showProblem(problem.message);
    return;
  }
  const session = loadSession() ?? (await goOn(config));
  if (session === null) showLogin(config, null);
  else showChats(config, session);
}

/** A new tab of a browser that is logged in with a password needs no second log in. */
async function goOn(config) {
  if (!config.hasAccounts || !loadHasAccount()) return null;
  try {
    const session = await refreshLogin();
    if (session === null) saveHasAccount(false);
    else saveSession(session);
    return session;
  } catch {
    return null; // the way in is there, and says what is wrong
  }
}

function showProblem(text) {
  showCard("Not there yet", text, "Try again", () => location.reload());
}

/** A page with one sentence and one way on. */
function showCard(title, text, label, onClick) {
  const card = h(
    "div",
    { class: "login-card" },
    h("img", { class: "login-logo", src: "icon.svg", alt: "", width: 64, height: 64 }),
    h("h1", {}, title),
    h("p", { class: "login-lead", role: "alert" }, text),
    h("button", { type: "button", class: "button", on: { click: onClick } }, label),
  );
  fill(root, h("main", { class: "login" }, card));
}

function showLogin(config, notice) {
  document.title = "chatserver";
  const login = createLogin({
    demoUsers: config.demoUsers,
    hasAccounts: config.hasAccounts,
    canRegister: config.canRegister,
    notice,
    onSession: (session) => {
      saveSession(session);
      saveHasAccount(session.isAccount === true);
      showChats(config, session);
    },
  });
  fill(root, login.element);
  if (notice !== null) login.focus();
}

/** Run the client for a session until it ends. */
function showChats(config, first) {
  let session = first;
  let shell = null;
  const store = createStore();
  const device = { id: deviceId(), renew: () => (device.id = deviceId({ renew: true })) };

  async function refresh() {
    if (!session.isDemo && !session.isAccount) return false;
    const next = session.isDemo ? await demoLogin(session.user) : await refreshLogin();
    // Another tab may have logged in as somebody else: this one is that user's no more.
    if (next === null || next.user !== session.user) return false;
    session = next;
    saveSession(session);
    return true;
  }

  async function currentSession() {
    if ((session.isDemo || session.isAccount) && isExpired(session, Date.now())) await refresh();
    return session;
  }

  const client = new ChatClient({
    store,
    env,
    device,
    refresh,
    url: config.gatewayUrl,
    session: currentSession,
    onUser: restore,
  });

  const push = createPush({
    key: config.pushKey,
    session: currentSession,
    onChange: (state) => shell?.updatePush(state),
    onOpen: (chat) => isId(chat) && shell?.go(chat),
  });

  const renewal = keepFresh({
    env,
    session: () => session,
    refresh,
    tell: (token) => client.connection.request({ type: "auth", token }),
  });

  const account = session.isAccount
    ? createAccount({
        token: async () => (await currentSession()).token,
        onOut: () => leave("You are logged out on all devices."),
        onErased() {
          leave("Your account is deleted. What you wrote is being removed.");
          forgetUser(session.user);
        },
      })
    : null;

  /** The server has said who we are: take up what this user left behind in this tab. */
  function restore(user) {
    session = { ...session, user };
    saveSession(session);
    const { outbox, unstored } = loadOutbox(user);
    const kept = { outbox, unstored, drafts: loadDrafts(user), facts: loadFacts(user) };
    store.dispatch({ type: "restore", ...kept, now: Date.now() });
    show();
  }

  function show() {
    if (shell !== null) return;
    shell = createShell({
      store,
      client,
      files: createFiles({ session: currentSession, newId, bytesMax: config.fileBytesMax }),
      push,
      user: session.user,
      account,
      moderation: createModeration({ session: currentSession }),
      social: createSocial({ session: currentSession, newId }),
      admin: createAdmin({ session: currentSession }),
      demoUsers: config.demoUsers,
      newId,
      onLeave: logOutHere,
      onLogin: () => leave(ENDED),
    });
    fill(root, shell.element);
    shell.start();
    push.start();
  }

  /** The page goes away, for a reload perhaps: what no server tells again is kept in the tab. */
  function keepFacts() {
    if (store.state.me !== null) saveFacts(store.state.me, store.state.chats);
  }

  /** Leave, and end the login for good: in all windows of this browser. */
  async function logOutHere() {
    const isOut = session.isAccount;
    leave(null);
    if (!isOut) return;
    saveHasAccount(false);
    await logOut().catch(() => showProblem(STILL_IN));
  }

  function leave(notice) {
    renewal.stop();
    removeEventListener("pagehide", keepFacts);
    unsubscribe();
    client.stop();
    shell?.stop();
    // Who logs out is told nothing here any more; who was logged out may come back.
    if (notice === null) push.turnOff();
    push.stop();
    drawBadge(0);
    saveSession(null);
    history.replaceState(null, "", "#/");
    showLogin(config, notice);
  }

  const unsubscribe = store.subscribe((state, before) => {
    const { link } = state;
    if (link.status === "stopped" && link.isExpired) {
      leave(state.me === null ? REFUSED : ENDED);
      return;
    }
    if (shell === null && link !== before.link && link.reason) showWait(link.reason);
    if (state.me === null) return;
    if (state.outbox !== before.outbox || state.unstored !== before.unstored) {
      saveOutbox(state.me, state.outbox, state.unstored);
    }
    if (state.drafts !== before.drafts) saveDrafts(state.me, state.drafts);
  });

  /** Until the server has said whose the token is, there is no page to show. */
  function showWait(text) {
    showCard("Connecting…", text, "Cancel", () => leave(null));
  }

  addEventListener("pagehide", keepFacts);
  if (session.user === null) showWait("One moment.");
  else show();
  client.start();
}

main();
