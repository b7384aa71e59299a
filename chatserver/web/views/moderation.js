// Moderation dialogs: user details, blocked and banned users, invitations, and message reports.

import { ModerationFailed } from "../moderation.js";
import { fullTime } from "../format.js";
import { userAvatar } from "./avatar.js";
import { fill, h, setText } from "./dom.js";
import { button, createForm } from "./form_dialog.js";
import { createGroupSettings } from "./group_settings.js";

const HOUR_S = 3600;
const REASON_MAX = 500;

/** Return `{elements, openPerson, openBlocks, openInvitations, …, isManager}`. */
export function createModerationViews({ store, moderation }) {
  const person = createPerson(store, moderation);
  const blocks = createUserList({
    title: "Blocked users",
    none: "You haven't blocked anyone.",
    label: "Unblock",
    list: moderation.listBlocks,
    undo: (_, user) => moderation.unblock(user),
    done: (user) => `${user} is unblocked.`,
  });
  const invitations = createInvitations(moderation);
  const bans = createUserList({
    title: "Banned users",
    none: "No one is banned from this group.",
    label: "Unban",
    list: moderation.listBans,
    undo: moderation.unban,
    done: (user) => `${user} is unbanned.`,
  });
  const report = createReport(store, moderation);
  const groupSettings = createGroupSettings(moderation);

  /** Return whether the user is an owner or admin of a group; false if unknown. */
  async function isManager(chat) {
    try {
      const { roles } = await moderation.describe(chat);
      return ["owner", "admin"].includes(roles?.[store.state.me]);
    } catch (problem) {
      if (problem instanceof ModerationFailed) return false;
      throw problem;
    }
  }

  return {
    elements: [person, blocks, invitations, bans, report, groupSettings].map(({ element }) => element),
    openPerson: person.open,
    openBlocks: blocks.open,
    openInvitations: invitations.open,
    countInvitations: invitations.count,
    /** `show` is called with the number of invitations. */
    onInvitations: (show) => (invitations.onCount = show),
    openBans: bans.open,
    openGroupSettings: groupSettings.open,
    openReport: report.open,
    isManager,
  };
}

function createPerson(store, moderation) {
  const form = createForm("User");

  function open(chat, user) {
    setText(form.heading, user);
    form.showStatus("");
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
    form.open();
    return form.attempt(() => draw(chat, user));
  }

  async function draw(chat, user) {
    const [info, blocked, profile] = await Promise.all([
      moderation.describe(chat),
      moderation.listBlocks(),
      moderation.profile(user),
    ]);
    const isBlocked = blocked.includes(user);
    const mayModerate = canModerate(info, user);
    const isBanned = mayModerate && (await moderation.listBans(chat)).includes(user);
    const again = (action, text) =>
      form.attempt(async () => {
        await action();
        await draw(chat, user);
        form.showStatus(text);
      });
    fill(
      form.content,
      h("div", { class: "moderation-who" }, userAvatar(user, "l"), h("bdi", {}, profile?.name ?? user)),
      profile?.about ? h("p", { class: "moderation-text", dir: "auto" }, profile.about) : null,
      isBlocked
        ? button("Unblock", () => again(() => moderation.unblock(user), `${user} is unblocked.`))
        : button(
            "Block",
            () => again(() => moderation.block(user), `${user} is blocked.`),
            "button-danger",
          ),
      h(
        "p",
        { class: "hint" },
        isBlocked
          ? "You can't message or invite each other."
          : "If you block someone, you can't message or invite each other.",
      ),
      mayModerate ? h("h3", {}, "In this group") : null,
      ...(mayModerate && isBanned ? unban(chat, user, again) : []),
      ...(mayModerate && !isBanned ? moderate(chat, user, info, again) : []),
    );
  }

  function canModerate(info, user) {
    const mine = info.roles?.[store.state.me] ?? "member";
    const theirs = info.roles?.[user] ?? "member";
    if (info.kind !== "group" || user === store.state.me) return false;
    return mine === "owner" || (mine === "admin" && theirs === "member");
  }

  function moderate(chat, user, info, again) {
    const until = info.muted?.[user];
    const isMuted = until === 0 || until * 1000 > Date.now();
    const mute = (seconds, text) => again(() => moderation.mute(chat, user, seconds), text);
    return [
      isMuted ? h("p", {}, `Muted ${duration(until)}.`) : null,
      isMuted
        ? button("Unmute", () => mute(0, `${user} is unmuted.`))
        : button("Mute for 1 hour", () => mute(HOUR_S, `${user} is muted for 1 hour.`)),
      isMuted ? null : button("Mute indefinitely", () => mute(null, `${user} is muted.`)),
      button(
        "Ban from group",
        () => again(() => moderation.ban(chat, user), `${user} is banned from the group.`),
        "button-danger",
      ),
    ];
  }

  function unban(chat, user, again) {
    return [
      h("p", {}, "Banned from this group."),
      button("Unban", () => again(() => moderation.unban(chat, user), `${user} is unbanned.`)),
    ];
  }

  return { element: form.element, open };
}

function duration(until) {
  return until === 0 ? "indefinitely" : `until ${fullTime(until * 1000)}`;
}

/** A list of users, each with an undo button. `list` and `undo` receive the chat. */
function createUserList({ title, none, label, list, undo, done }) {
  const form = createForm(title);

  function open(chat) {
    form.showStatus("");
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
    form.open();
    return form.attempt(() => draw(chat));
  }

  async function draw(chat) {
    const users = await list(chat);
    if (users.length === 0) fill(form.content, h("p", { class: "hint" }, none));
    else {
      const lines = users.map((user) => line(chat, user));
      fill(form.content, h("ul", { class: "moderation-list" }, ...lines));
    }
  }

  function line(chat, user) {
    const back = button(label, () =>
      form.attempt(async () => {
        await undo(chat, user);
        await draw(chat);
        form.showStatus(done(user));
      }),
    );
    back.setAttribute("aria-label", `${label} ${user}`);
    return h("li", {}, userAvatar(user, "s"), h("bdi", {}, user), back);
  }

  return { element: form.element, open };
}

/** Invitations to groups. `onCount` is called with their number. */
function createInvitations(moderation) {
  const form = createForm("Invitations");
  const self = { element: form.element, open, count, onCount: () => {} };

  function open() {
    form.showStatus("");
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
    form.open();
    return form.attempt(draw);
  }

  async function count() {
    try {
      self.onCount((await moderation.listInvitations()).length);
    } catch (problem) {
      if (!(problem instanceof ModerationFailed)) throw problem; // shown when the dialog is opened
    }
  }

  async function draw() {
    const found = await moderation.listInvitations();
    self.onCount(found.length);
    if (found.length === 0) {
      fill(form.content, h("p", { class: "hint" }, "You don't have any invitations."));
    } else fill(form.content, h("ul", { class: "moderation-list" }, ...found.map(line)));
  }

  function line({ chat, name, inviter }) {
    const group = name ?? "a group";
    const answer = (label, action, text, kind) => {
      const made = button(
        label,
        () =>
          form.attempt(async () => {
            await action(chat);
            await draw();
            form.showStatus(text);
          }),
        kind,
      );
      made.setAttribute("aria-label", `${label} invitation to ${group}`);
      return made;
    };
    return h(
      "li",
      { class: "invitation" },
      userAvatar(inviter, "s"),
      h("span", { class: "invitation-text" }, h("bdi", {}, inviter), " invited you to ", h("b", { dir: "auto" }, group)),
      h(
        "span",
        { class: "invitation-answers" },
        answer("Accept", moderation.acceptInvitation, `You joined ${group}.`, ""),
        answer("Decline", moderation.declineInvitation, "Invitation declined."),
      ),
    );
  }

  return self;
}

function createReport(store, moderation) {
  const form = createForm("Report this message?");
  const reason = h("textarea", {
    class: "field-input",
    id: "report-reason",
    rows: 3,
    maxlength: REASON_MAX,
  });
  let about = null; // {chat, seq}

  function open(chat, seq) {
    about = { chat, seq };
    reason.value = "";
    form.showStatus("");
    fill(
      form.content,
      h("p", {}, `${moderatorsOf(chat)} will be notified. The sender won't be.`),
      h(
        "div",
        { class: "field" },
        h("label", { for: "report-reason" }, "Reason (optional)"),
        reason,
      ),
      h(
        "div",
        { class: "dialog-foot" },
        button("Cancel", () => form.close()),
        button("Report", send, ""),
      ),
    );
    form.open();
    reason.focus();
  }

  function moderatorsOf(chat) {
    const isGroup = store.state.chats.get(chat)?.kind === "group";
    return isGroup ? "The group's admins and the server's moderators" : "The server's moderators";
  }

  function send() {
    return form.attempt(async () => {
      await moderation.report(about.chat, about.seq, reason.value);
      fill(form.content, button("Close", () => form.close()));
      form.showStatus("Message reported. Thank you.");
      form.content.querySelector("button").focus();
    });
  }

  return { element: form.element, open };
}
