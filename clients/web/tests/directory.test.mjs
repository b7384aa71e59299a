// The directory of people: what it reloads, when, and at most how much.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { load } from "./load.mjs";

const { getDirectory } = await load("directory/directory.ts");
const MINUTE_MS = 60_000;
const START_MS = 1_800_000_000_000;

/** Return a client that records its calls; `profiles`: names and pictures on the server. */
function makeClient(profiles = new Map()) {
  const calls = [];
  const getProfile = (user) => ({ user, name: null, avatar: null, ...profiles.get(user) });
  const responses = {
    list_users: ({ user }) => ({ items: user.map(getProfile) }),
    get_profile: ({ user }) => getProfile(user),
    get_avatar: ({ user, thumb }) => {
      const { avatar, isThumbMissing } = getProfile(user);
      const isThumb = thumb === 1 && !isThumbMissing;
      const url = `/files/${avatar}${isThumb ? "" : "/full"}`;
      return { url, expires_s: 900, attachment: { thumb: isThumb } };
    },
  };
  const call = async (name, fields) => {
    calls.push({ name, fields });
    return responses[name](fields);
  };
  const popCalls = (name) => {
    const users = calls.filter((call) => call.name === name).map(({ fields }) => fields.user);
    const others = calls.filter((call) => call.name !== name);
    calls.splice(0, calls.length, ...others);
    return users;
  };
  return { user: "me", http: { call }, popCalls };
}

/** Advance the clock; responses arrive immediately. */
async function advance(ms) {
  for (let step = 0; step < ms; step += 50) {
    mock.timers.tick(50);
    for (let count = 0; count < 20; count += 1) await Promise.resolve();
  }
}

/** Show people and load them; return the directory. */
async function show(client, ids) {
  const directory = getDirectory(client);
  for (const id of ids) {
    directory.get(id);
    directory.subscribe(id, () => {});
  }
  await advance(2_000);
  for (const name of ["list_users", "get_profile", "get_avatar"]) client.popCalls(name);
  return directory;
}

test.beforeEach(() => {
  globalThis.document = { visibilityState: "visible" };
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: START_MS });
});
test.afterEach(() => {
  mock.timers.reset();
  delete globalThis.document;
});

test("changed names and pictures are shown after the user returns", async () => {
  const profiles = new Map([["ann", { name: "Ann", avatar: "a1" }]]);
  const client = makeClient(profiles);
  const directory = await show(client, ["ann", "ben"]);
  assert.deepEqual(directory.get("ann"), { id: "ann", name: "Ann", picture: "/files/a1" });
  profiles.set("ann", { name: "Anna", avatar: "a2" });
  await advance(MINUTE_MS);

  let updates = 0;
  directory.subscribe("ann", () => (updates += 1));
  directory.refresh();
  await advance(1_000);

  assert.deepEqual(directory.get("ann"), { id: "ann", name: "Anna", picture: "/files/a2" });
  assert.equal(updates, 2);
  profiles.set("ann", { name: null, avatar: null });
  await advance(MINUTE_MS);
  directory.refresh();
  await advance(1_000);
  assert.deepEqual(directory.get("ann"), { id: "ann", name: "ann", picture: null });
});

test("the original picture is shown until there is a thumbnail", async () => {
  const profiles = new Map([["ann", { name: "Ann", avatar: "a1", isThumbMissing: true }]]);
  const client = makeClient(profiles);
  const directory = await show(client, ["ann"]);
  assert.equal(directory.get("ann").picture, "/files/a1/full");
  profiles.set("ann", { name: "Ann", avatar: "a1" });
  await advance(MINUTE_MS);

  directory.refresh();
  await advance(1_000);

  assert.equal(directory.get("ann").picture, "/files/a1");
});

test("a refresh is bounded and rate-limited, and starts with the oldest", async () => {
  const ids = Array.from({ length: 60 }, (_, number) => `user-${number}`);
  const client = makeClient(new Map(ids.map((id) => [id, { name: id, avatar: `of-${id}` }])));
  const directory = await show(client, ids);
  await advance(MINUTE_MS);

  for (let times = 0; times < 10; times += 1) directory.refresh();
  await advance(1_000);
  const first = client.popCalls("get_profile"); // with their names
  assert.equal(new Set(first).size, 20);
  assert.equal(first.length, 20);
  assert.deepEqual(client.popCalls("get_avatar"), []); // the pictures have not changed

  directory.refresh();
  await advance(50_000);
  assert.deepEqual(client.popCalls("get_profile"), []);
  await advance(MINUTE_MS);
  const second = client.popCalls("get_profile");
  assert.equal(second.length, 20);
  assert.equal(new Set([...first, ...second]).size, 40);
  assert.deepEqual(client.popCalls("list_users"), []);
});

test("messages from many senders reload visible people once per minute", async () => {
  const client = makeClient();
  const directory = await show(client, ["ann", "ben", "cy"]);
  await advance(MINUTE_MS);

  for (let number = 0; number < 1_000; number += 1) directory.refresh(`user-${number}`);
  await advance(5_000);
  assert.deepEqual(client.popCalls("list_users"), []);
  for (let times = 0; times < 100; times += 1) {
    directory.refresh("ann");
    directory.refresh("ben");
    await advance(100);
  }
  assert.deepEqual(client.popCalls("list_users"), [["ann", "ben"]]);
});

test("a hidden window loads nothing until the user returns", async () => {
  const client = makeClient();
  const directory = await show(client, ["ann"]);
  globalThis.document.visibilityState = "hidden";
  await advance(MINUTE_MS);

  directory.refresh("ann");
  await advance(MINUTE_MS);
  assert.deepEqual(client.popCalls("list_users"), []);
  globalThis.document.visibilityState = "visible";
  directory.refresh();
  await advance(1_000);

  assert.deepEqual(client.popCalls("list_users"), [["ann"]]);
});
