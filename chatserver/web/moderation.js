// Blocks, invitations, group settings, mutes, bans and reports, by REST.

import { createCaller } from "./http_client.js";

const LISTED_MAX = 2_000;
const READ_MAX = 20; // reported messages loaded with the reports

/** A failed request; the message is shown to users. */
export class ModerationFailed extends Error {}

/** `session()` returns `{token}`. */
export function createModeration({ session }) {
  const call = createCaller(session, (status) =>
    Object.assign(
      new ModerationFailed(status === 0 ? "Can't reach the server." : inWords(status)),
      { status },
    ),
  );

  /** Return all pages of a list, up to `LISTED_MAX` items. */
  async function listAll(path) {
    const found = [];
    let cursor = "";
    do {
      const page = await call("GET", `${path}?limit=200${cursor}`);
      found.push(...page.items);
      cursor = page.next === null ? "" : `&cursor=${encodeURIComponent(page.next)}`;
    } while (cursor !== "" && found.length < LISTED_MAX);
    return found;
  }

  const listUsers = async (path) => (await listAll(path)).map((item) => item.user);

  const chatPath = (chat) => `/v1/chats/${encodeURIComponent(chat)}`;
  const blockPath = (user) => `/v1/me/blocks/${encodeURIComponent(user)}`;
  const invitationPath = (chat) => `/v1/invitations/${encodeURIComponent(chat)}`;
  const banPath = (chat, user) => `${chatPath(chat)}/bans/${encodeURIComponent(user)}`;
  const memberPath = (chat, user) => `${chatPath(chat)}/members/${encodeURIComponent(user)}`;

  return {
    listBlocks: () => listUsers("/v1/me/blocks"),
    listBans: (chat) => listUsers(`${chatPath(chat)}/bans`),
    block: (user) => call("PUT", blockPath(user)),
    /** Groups that others invited the user to: `[{chat, name, inviter, at}]`. */
    listInvitations: () => listAll("/v1/invitations"),
    acceptInvitation: (chat) => call("POST", `${invitationPath(chat)}/accept`, {}),
    declineInvitation: (chat) => call("DELETE", invitationPath(chat)),
    unblock: (user) => call("DELETE", blockPath(user)),
    describe: (chat) => call("GET", chatPath(chat)),
    /** Return a user's profile; undefined if it is not visible. */
    profile: async (user) =>
      (await call("GET", `/v1/users?user=${encodeURIComponent(user)}`)).items[0],
    /** Set slow mode: `seconds` between two messages of a member; 0 turns it off. */
    setSlowMode: (chat, seconds) => call("PATCH", chatPath(chat), { slow_s: seconds }),
    /** Make new messages disappear after `seconds`; 0 turns it off. */
    setRetention: (chat, seconds) => call("PATCH", chatPath(chat), { retention_s: seconds }),
    /** List open reports: `[{seq, reporter, reason, message}]`. The first `READ_MAX` messages are
     * loaded, if they still exist; else `message` is null. */
    listReports: async (chat) => {
      const reports = await listAll(`${chatPath(chat)}/reports`);
      const open = reports.filter(({ state }) => state === "open");
      const read = async (seq) => {
        try {
          return await call("GET", `${chatPath(chat)}/messages/${seq}`);
        } catch (problem) {
          if (problem.status === 404) return null;
          throw problem;
        }
      };
      const seqs = [...new Set(open.map(({ seq }) => seq))].slice(0, READ_MAX);
      const messages = new Map(
        await Promise.all(seqs.map(async (seq) => [seq, await read(seq)])),
      );
      return open.map((report) => ({ ...report, message: messages.get(report.seq) ?? null }));
    },
    resolve: (chat, seq, reporter) =>
      call("POST", `${chatPath(chat)}/reports/${seq}/${encodeURIComponent(reporter)}/resolve`),
    /** `seconds`: 0 unmutes, null mutes indefinitely. */
    mute: (chat, user, seconds) =>
      call("PUT", `${memberPath(chat, user)}/mute`, seconds === null ? {} : { mute_s: seconds }),
    ban: (chat, user) => call("PUT", banPath(chat, user)),
    unban: (chat, user) => call("DELETE", banPath(chat, user)),
    report: (chat, seq, reason) =>
      call("PUT", `${chatPath(chat)}/messages/${seq}/report`, { reason }),
  };
}

function inWords(status) {
  if (status === 403) return "You don't have permission to do this.";
  if (status === 404) {
    return "Not found. It may have been deleted. Close this dialog and open it again to refresh.";
  }
  if (status === 413) return "This is too long.";
  if (status === 429) return "Too many requests. Wait a moment, then try again.";
  return "Something went wrong. Try again.";
}
