// Push messages with hostile content: nothing throws, and each text is shown in one line.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { isChatId, parseNotice } = await load("service_worker/push_notification.ts");
const NOW_MS = 1_800_000_000_000;
const GOOD = {
  v: 1,
  chat: "d-ann~ben",
  seq: 7,
  ts: 1_799_999_999_000_000,
  sender: "ann",
  name: "Ann",
  title: "",
  text: "Are you there?",
  unread: 1,
  badge: 3,
};
const CONTROL = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]|\p{Cs}/u;
const VALUES = [
  ...[undefined, null, true, 0, -1, 1.5, NaN, Infinity, 2 ** 60, [], ["a"], {}, { length: 9 }],
  ...["", " \n\t ", "\u0000\u001b[31m", "<img src=x onerror=alert(1)>", "javascript:alert(1)"],
  ...["https://evil.example/", "//evil.example", "../../v1/me", "\u202egpj.exe\u2066", "\ud800"],
  ...["🏳️‍🌈".repeat(200), "x".repeat(1_000_000), "\u202e".repeat(5_000), "toString", "__proto__"],
];

test("a push message becomes a notification", () => {
  assert.deepEqual(parseNotice(GOOD, NOW_MS), {
    chat: "d-ann~ben",
    title: "Ann",
    body: "Are you there?",
    timeMs: 1_799_999_999_000,
    badge: 3,
  });
  const other = parseNotice({ ...GOOD, name: "", title: "Trip", text: "", badge: null }, NOW_MS);
  assert.deepEqual([other.title, other.body, other.badge], ["ann · Trip", "…", null]);
});

test("texts are one short line without control or direction characters", () => {
  const title = "Trip\u2066\n\n\u0007 to\u2028Rome";
  const hostile = { ...GOOD, name: "\u202eAnn\u0000", title, text: `<b>hi</b>${"y".repeat(500)}` };
  const notice = parseNotice(hostile, NOW_MS);

  assert.equal(notice.title, "Ann · Trip to Rome");
  assert.equal(notice.body, `<b>hi</b>${"y".repeat(190)}…`);
  const family = "👨‍👩‍👧 نمی‌خواهم"; // joiners must be kept
  assert.equal(parseNotice({ ...GOOD, text: family }, NOW_MS).body, family);
});

test("each field can have any value", () => {
  for (const field of Object.keys(GOOD)) {
    for (const value of VALUES) {
      const notice = parseNotice({ ...GOOD, [field]: value }, NOW_MS);
      if (field === "chat" && !isChatId(value)) {
        assert.equal(notice, null);
        continue;
      }
      const { title, body, timeMs, badge } = notice;
      assert.ok(title.length > 0 && [...title].length <= 163, `${field} ${title}`);
      assert.ok(body.length > 0 && [...body].length <= 200, `${field} ${body}`);
      assert.doesNotMatch(title + body, CONTROL);
      assert.ok(timeMs > 0 && timeMs <= NOW_MS + 86_400_000 && Number.isSafeInteger(timeMs));
      assert.ok(badge === null || (Number.isSafeInteger(badge) && badge >= 0));
    }
  }
  for (const data of [...VALUES, () => GOOD]) assert.equal(parseNotice(data, NOW_MS), null);
});

test("a chat id links to a page of this origin", () => {
  for (const value of VALUES.filter(isChatId)) {
    const url = new URL(`/chats/${encodeURIComponent(value)}`, "https://chat.example");
    assert.equal(url.origin, "https://chat.example");
    assert.equal(url.pathname, `/chats/${value}`);
  }
  const wrong = ["", ".", "..", "a/b", "//evil.example", "a?b", "a#b", "%2e%2e", "a".repeat(141)];
  assert.deepEqual(wrong.filter(isChatId), []);
});
