// What can be done about somebody: a person's dialog, the list of blocked users, the report of a
// message. What went wrong is said in the dialog.

import { ModerationFailed } from "../moderation.js";
import { fullTime } from "../format.js";
import { userAvatar } from "./avatar.js";
import { createDialog } from "./dialog.js";
import { fill, h, setText } from "./dom.js";
import { createGroupCare } from "./groupcare.js";

const HOUR_S = 3600;
const REASON_MAX = 500;

/** Return `{elements, openPerson, openBlocks, openInvitations, …, isManager}`. */
export function createModerationViews({ store, moderation }) {
  const person = createPerson(store, moderation);
  const blocks = createUserList({
    title: "Blocked users",
    none: "You block nobody.",
    label: "Unblock",
    list: moderation.listBlocks,
    undo: (_, user) => moderation.unblock(user),
    done: (user) => `${user} is not blocked.`,
  });
  const invitations = createInvitations(moderation);
  const bans = createUserList({
    title: "Banned users",
    none: "Nobody is banned from this group.",
    label: "Unban",
    list: moderation.listBans,
    undo: moderation.unban,
    done: (user) => `${user} may come back.`,
  });
  const report = createReport(store, moderation);
  const care = createGroupCare(moderation);

  /** Whether the user runs a group; false while that cannot be said. */
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
    elements: [person, blocks, invitations, bans, report, care].map(({ element }) => element),
    openPerson: person.open,
    openBlocks: blocks.open,
    openInvitations: invitations.open,
    countInvitations: invitations.count,
    /** `show` is called with how many invitations there are. */
    onInvitations: (show) => (invitations.onCount = show),
    openBans: bans.open,
    openCare: care.open,
    openReport: report.open,
    isManager,
  };
}

/** A dialog whose deeds may fail: `attempt` runs one, with all buttons off meanwhile. */
export function createForm(title) {
  const dialog = createDialog({ title, class: "dialog-moderation" });
  const error = h("p", { class: "form-error", role: "alert", hidden: true });
  const note = h("p", { class: "form-note", role: "status", hidden: true });
  const content = h("div", { class: "moderation" });
  dialog.body.append(error, note, content);

  async function attempt(deed) {
    setBusy(true);
    error.hidden = true;
    try {
      await deed();
    } catch (problem) {
      if (!(problem instanceof ModerationFailed)) throw problem;
      setText(error, problem.message);
      error.hidden = false;
    } finally {
      setBusy(false);
    }
  }

  function setBusy(isBusy) {
    for (const button of content.querySelectorAll("button")) button.disabled = isBusy;
  }

  function say(text) {
    setText(note, text);
    note.hidden = text === "";
    error.hidden = true;
  }

  return { ...dialog, content, attempt, say };
}

export function button(label, onClick, kind = "button-quiet") {
  const props = { type: "button", class: `button ${kind}`, on: { click: onClick } };
  return h("button", props, label);
}

function createPerson(store, moderation) {
  const form = createForm("Person");

  function open(chat, user) {
    setText(form.heading, user);
    form.say("");
    fill(form.content, h("p", { class: "hint" }, "One moment."));
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
    const again = (deed, text) =>
      form.attempt(async () => {
        await deed();
        await draw(chat, user);
        form.say(text);
      });
    fill(
      form.content,
      h("div", { class: "moderation-who" }, userAvatar(user, "l"), h("bdi", {}, profile?.name ?? user)),
      profile?.about ? h("p", { class: "moderation-said", dir: "auto" }, profile.about) : null,
      isBlocked
        ? button("Unblock", () => again(() => moderation.unblock(user), `${user} is not blocked.`))
        : button(
            "Block",
            () => again(() => moderation.block(user), `${user} is blocked.`),
            "button-danger",
          ),
      h(
        "p",
        { class: "hint" },
        isBlocked
          ? "You cannot write to each other, nor invite each other."
          : "Then you cannot write to each other directly, nor invite each other.",
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
      isMuted ? h("p", {}, `May not write ${duration(until)}.`) : null,
      isMuted
        ? button("Let write again", () => mute(0, `${user} may write again.`))
        : button("Mute for an hour", () => mute(HOUR_S, `${user} may not write for an hour.`)),
      isMuted ? null : button("Mute for good", () => mute(null, `${user} may not write any more.`)),
      button(
        "Ban from the group",
        () => again(() => moderation.ban(chat, user), `${user} is out and cannot come back.`),
        "button-danger",
      ),
    ];
  }

  function unban(chat, user, again) {
    return [
      h("p", {}, "Is banned, and cannot come back."),
      button("Unban", () => again(() => moderation.unban(chat, user), `${user} may come back.`)),
    ];
  }

  return { element: form.element, open };
}

function duration(until) {
  return until === 0 ? "for good" : `until ${fullTime(until * 1000)}`;
}

/** A list of users, each with what takes back that he is on it. `list` and `undo` get the chat. */
function createUserList({ title, none, label, list, undo, done }) {
  const form = createForm(title);

  function open(chat) {
    form.say("");
    fill(form.content, h("p", { class: "hint" }, "One moment."));
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
        form.say(done(user));
      }),
    );
    back.setAttribute("aria-label", `${label} ${user}`);
    return h("li", {}, userAvatar(user, "s"), h("bdi", {}, user), back);
  }

  return { element: form.element, open };
}

/** The groups that others invited the user to. `onCount` is set by whoever shows how many. */
function createInvitations(moderation) {
  const form = createForm("Invitations");
  const self = { element: form.element, open, count, onCount: () => {} };

  function open() {
    form.say("");
    fill(form.content, h("p", { class: "hint" }, "Loading…"));
    form.open();
    return form.attempt(draw);
  }

  async function count() {
    try {
      self.onCount((await moderation.listInvitations()).length);
    } catch (problem) {
      if (!(problem instanceof ModerationFailed)) throw problem; // shown when it is opened
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
    const answer = (label, deed, text, kind) => {
      const made = button(
        label,
        () =>
          form.attempt(async () => {
            await deed(chat);
            await draw();
            form.say(text);
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
    form.say("");
    fill(
      form.content,
      h("p", {}, `Those who run ${runs(chat)} are told. Its sender is not.`),
      h(
        "div",
        { class: "field" },
        h("label", { for: "report-reason" }, "Why? (may be left out)"),
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

  function runs(chat) {
    const isGroup = store.state.chats.get(chat)?.kind === "group";
    return isGroup ? "the group and the server" : "the server";
  }

  function send() {
    return form.attempt(async () => {
      await moderation.report(about.chat, about.seq, reason.value);
      fill(form.content, button("Close", () => form.close()));
      form.say("Thank you. The message was reported.");
      form.content.querySelector("button").focus();
    });
  }

  return { element: form.element, open };
}
