// A client with the types of the OpenAPI document sends, repeats and deletes messages.
// Usage: node journey.js API_URL

import assert from "node:assert/strict";
import process from "node:process";

import createClient from "openapi-fetch";

import type { paths } from "./schema.js";

const api = process.argv[2];

async function register(user: string) {
  const anonymous = createClient<paths>({ baseUrl: api });
  const { data, response } = await anonymous.POST("/v1/auth/register", {
    body: { user, password: `a long password of ${user}` },
  });
  assert.equal(response.status, 201);
  assert.ok(data);
  return createClient<paths>({
    baseUrl: api,
    headers: { Authorization: `Bearer ${data.token}` },
  });
}

const alice = await register("ts-alice");
await register("ts-bob");
const opened = await alice.PUT("/v1/direct-chats/{user}", { params: { path: { user: "ts-bob" } } });
assert.ok(opened.data);
const chat = opened.data.chat;

const send = (body: string, ref?: string, key?: string) =>
  alice.POST("/v1/chats/{chat}/messages", {
    params: { path: { chat }, header: key === undefined ? {} : { "Idempotency-Key": key } },
    body: ref === undefined ? { body } : { body, ref },
  });
const sent = await send("hello", "r-1");
assert.equal(sent.response.status, 201);
const repeated = await send("hello", "r-1");
assert.equal(repeated.response.status, 200);
assert.ok(sent.data && repeated.data);
assert.equal(repeated.data.seq, sent.data.seq);
assert.equal(repeated.data.dup, true);
const refused = await send("other", "r-1");
assert.equal(refused.response.status, 409);
assert.equal(refused.error?.code, "conflict");

const [first, second] = [
  await send("with a key", undefined, "key-1"),
  await send("with a key", undefined, "key-1"),
];
assert.deepEqual([first.response.status, second.response.status], [201, 201]);
assert.equal(first.data?.seq, second.data?.seq);

const params = { params: { path: { chat, seq: sent.data.seq } } };
const edited = await alice.PATCH("/v1/chats/{chat}/messages/{seq}", {
  ...params,
  body: { body: "hello again" },
});
assert.equal(edited.response.status, 200);
for (const dup of [false, true]) {
  const deleted = await alice.DELETE("/v1/chats/{chat}/messages/{seq}", params);
  assert.deepEqual([deleted.response.status, deleted.data?.dup], [200, dup]);
}

const absent = await alice.GET("/v1/chats/{chat}", { params: { path: { chat: "no-such-chat" } } });
assert.deepEqual([absent.response.status, absent.error?.code], [404, "not_found"]);
