// Password accounts, by REST. The short-lived access token is kept in memory only; the login is
// continued by an HttpOnly cookie. An injected script finds nothing that outlives the page.

import { SessionFailed } from "./session.js";

const TIMEOUT_MS = 10_000;

/** Server error details and their texts for users. */
const WORDS = new Map([
  ["user name or password is wrong", "Wrong username or password."],
  ["user: this name is already taken", "This username is already taken."],
  [
    "password: was changed by another request",
    "Your password was just changed elsewhere. Try again.",
  ],
  ["current: wrong password", "Your current password is incorrect."],
  ["password: wrong password", "The password is incorrect."],
  ["export: one is already running", "An export is already in progress."],
  [
    "export: the daily limit is reached; try again tomorrow",
    "Daily export limit reached. Try again tomorrow.",
  ],
]);

/** `expect`: error statuses that resolve to null. */
export async function call(method, path, { body, token, expect = [] } = {}) {
  const headers = { "x-chat-client": "web" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token !== undefined) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch {
    throw new SessionFailed(
      "Can't reach the server. Check that it is running, then try again.",
    );
  }
  if (response.status === 204 || expect.includes(response.status)) return null;
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new SessionFailed(explain(answer, response.status));
}

function explain(problem, status) {
  const words = WORDS.get(problem?.detail);
  if (words !== undefined) return words;
  if (status === 429) {
    const seconds = Math.max(1, Math.ceil((problem?.retry_after_ms ?? 1000) / 1000));
    return `Too many attempts. Try again in ${seconds} s.`;
  }
  const detail = String(problem?.detail ?? `status ${status}`);
  return `${detail.charAt(0).toUpperCase()}${detail.slice(1)}.`;
}

function sessionOf(granted) {
  return {
    token: granted.token,
    user: granted.user,
    expiresAt: Date.now() + granted.expires_in_s * 1000, // the clocks may differ
    isDemo: false,
    isAccount: true,
  };
}

/** The name of this device in the list of devices. */
function deviceName() {
  const { userAgent } = navigator;
  const find = (names) => names.find(([mark]) => userAgent.includes(mark))?.[1];
  const browser = find([
    ["Firefox/", "Firefox"],
    ["Edg/", "Edge"],
    ["Chrome/", "Chrome"],
    ["Safari/", "Safari"],
  ]);
  const system = find([
    ["Android", "Android"],
    ["iPhone", "iPhone"],
    ["iPad", "iPad"],
    ["Windows", "Windows"],
    ["Mac OS", "macOS"],
    ["Linux", "Linux"],
  ]);
  return [browser ?? "Browser", system].filter(Boolean).join(" on ");
}

export async function register(user, password) {
  const body = { user, password, device: deviceName(), cookie: true };
  return sessionOf(await call("POST", "/v1/auth/register", { body }));
}

export async function logIn(user, password) {
  const body = { user, password, device: deviceName(), cookie: true };
  return sessionOf(await call("POST", "/v1/auth/login", { body }));
}

/** Continue the login with the cookie; null if there is no valid one. */
export async function refreshLogin() {
  const granted = await call("POST", "/v1/auth/refresh", { body: {}, expect: [401, 403, 404] });
  return granted === null ? null : sessionOf(granted);
}

/** End this login, in all windows of this browser. */
export async function logOut() {
  await call("POST", "/v1/auth/logout", { body: {} });
}

export async function logOutEverywhere(token) {
  await call("POST", "/v1/auth/logout-everywhere", { token });
}

/** The user's own profile: `{user, name, about}`; null for what is not set. */
export async function getProfile(token) {
  return call("GET", "/v1/me", { token });
}

/** Update the profile; an empty text clears a field. */
export async function putProfile(token, { name, about }) {
  return call("PATCH", "/v1/me", { token, body: { name, about } });
}

/** The user's devices: `[{device, name, seen, is_current}]`. */
export async function listDevices(token) {
  const found = [];
  let cursor = "";
  do {
    const page = await call("GET", `/v1/me/devices?limit=200${cursor}`, { token });
    found.push(...page.items);
    cursor = page.next === null ? "" : `&cursor=${encodeURIComponent(page.next)}`;
  } while (cursor !== "");
  return found;
}

export async function endDevice(token, device) {
  await call("DELETE", `/v1/me/devices/${encodeURIComponent(device)}`, { token });
}

export async function changePassword(token, current, password) {
  await call("PUT", "/v1/me/password", { token, body: { current, password } });
}
