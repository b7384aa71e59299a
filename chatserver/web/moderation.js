// Blocks, mutes, bans and reports, by REST: what one asks for seldom needs no frame of the socket.

import { createCaller } from "./rest.js";

const LISTED_MAX = 2_000;
const READ_MAX = 20; // messages that were reported, read along with the reports

/** A request failed; the message is for people. */
export class ModerationFailed extends Error {}

/** `session()` gives `{token}`. */
export function createModeration({ session }) {
  const call = createCaller(session, (status) =>
    Object.assign(
      new ModerationFailed(status === 0 ? "The server cannot be reached." : inWords(status)),
      { status },
    ),
  );

  /** Return what is on all pages of a list, up to `LISTED_MAX`. */
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
    /** Ids of whom the user blocks, and of whom is banned from a chat. */
    listBlocks: () => listUsers("/v1/me/blocks"),
    listBans: (chat) => listUsers(`${chatPath(chat)}/bans`),
    block: (user) => call("PUT", blockPath(user)),
    /** Groups that others invited the user to: `[{chat, name, inviter, at}]`. */
    listInvitations: () => listAll("/v1/invitations"),
    acceptInvitation: (chat) => call("POST", `${invitationPath(chat)}/accept`, {}),
    declineInvitation: (chat) => call("DELETE", invitationPath(chat)),
    unblock: (user) => call("DELETE", blockPath(user)),
    describe: (chat) => call("GET", chatPath(chat)),
    /** What somebody is called and says of himself; undefined: one may not know. */
    profile: async (user) =>
      (await call("GET", `/v1/users?user=${encodeURIComponent(user)}`)).items[0],
    /** `seconds` between two messages of a member; 0 ends slow mode. */
    slowDown: (chat, seconds) => call("PATCH", chatPath(chat), { slow_s: seconds }),
    /** New messages disappear `seconds` after they were sent; 0: they stay. */
    keepFor: (chat, seconds) => call("PATCH", chatPath(chat), { retention_s: seconds }),
    /** The reports that nobody has looked at yet: `[{seq, reporter, reason, message}]`, those of
     * the first `READ_MAX` with the message, if it is still there. */
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
    /** `seconds`: 0 lets the member write again, null mutes for ever. */
    mute: (chat, user, seconds) =>
      call("PUT", `${memberPath(chat, user)}/mute`, seconds === null ? {} : { mute_s: seconds }),
    ban: (chat, user) => call("PUT", banPath(chat, user)),
    unban: (chat, user) => call("DELETE", banPath(chat, user)),
    report: (chat, seq, reason) =>
      call("PUT", `${chatPath(chat)}/messages/${seq}/report`, { reason }),
  };
}

function inWords(status) {
  if (status === 403) return "You may not do this. Ask the owner of the group.";
  if (status === 404) return "This is not there any more. Close this and look again.";
  if (status === 413) return "This is too much.";
  if (status === 429) return "Too much at once. Wait a moment, then try again.";
  return "The server could not do this. Try again.";
}
