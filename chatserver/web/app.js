// Entry point and composition root of the web client: configuration, login, app shell.

import { logOut, refreshLogin } from "./account.js";
import { createAdmin } from "./admin.js";
import { ChatClient } from "./client.js";
import { createFiles } from "./files.js";
import { isId } from "./format.js";
import { createModeration } from "./moderation.js";
import { createCompanionMemory } from "./companion_memory.js";
import { createPins } from "./pins.js";
import { createSearch } from "./search.js";
import { createPush, drawBadge } from "./push.js";
import { startTokenRenewal } from "./token_renewal.js";
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
import { createShell } from "./views/app_shell.js";

const root = document.getElementById("app");
const ENDED = "Your session has ended. Log in again to continue. Your drafts are saved.";
const STILL_IN = "Can't reach the server. You may still be logged in.";
const REFUSED = "The token was not accepted. Check that it is complete and has not expired.";

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
  const session = loadSession() ?? (await continueLogin(config));
  if (session === null) showLogin(config, null);
  else showChats(config, session);
}

/** Continue the browser's password login in a new tab. */
async function continueLogin(config) {
  if (!config.hasAccounts || !loadHasAccount()) return null;
  try {
    const session = await refreshLogin();
    if (session === null) saveHasAccount(false);
    else saveSession(session);
    return session;
  } catch {
    return null; // the login page is shown
  }
}

function showProblem(text) {
  showCard("Can't connect", text, "Try again", () => location.reload());
}

/** Show a page with one sentence and one button. */
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
    // Another tab may have logged in as another user.
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

  const renewal = startTokenRenewal({
    env,
    session: () => session,
    refresh,
    sendToken: (token) => client.connection.request({ type: "auth", token }),
  });

  const account = session.isAccount
    ? createAccount({
        token: async () => (await currentSession()).token,
        onOut: () => leave("You're logged out on all devices."),
        onErased() {
          leave("Your account was deleted. Your messages are being removed.");
          forgetUser(session.user);
        },
      })
    : null;

  /** The server has confirmed the user: restore what they left in this tab. */
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
      pins: createPins({ session: currentSession, newId }),
      memories: createCompanionMemory({ session: currentSession }),
      search: createSearch({ session: currentSession }),
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

  /** Save state that no server sends again, before the page is unloaded. */
  function saveFactsOfUser() {
    if (store.state.me !== null) saveFacts(store.state.me, store.state.chats);
  }

  /** Log out in all windows of this browser. */
  async function logOutHere() {
    const isOut = session.isAccount;
    leave(null);
    if (!isOut) return;
    saveHasAccount(false);
    await logOut().catch(() => showProblem(STILL_IN));
  }

  function leave(notice) {
    renewal.stop();
    removeEventListener("pagehide", saveFactsOfUser);
    unsubscribe();
    client.stop();
    shell?.stop();
    // After a logout by the user, notifications stop; after a forced one, they may return.
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

  /** Shown until the server has confirmed whose token it is. */
  function showWait(text) {
    showCard("Connecting…", text, "Cancel", () => leave(null));
  }

  addEventListener("pagehide", saveFactsOfUser);
  if (session.user === null) showWait("Logging you in…");
  else show();
  client.start();
}

main();
