// Keeping tokens new: when, and what happens when it fails.

import assert from "node:assert/strict";
import { test } from "node:test";
import { startTokenRenewal } from "../../../chatserver/web/token_renewal.js";

/** A clock whose timers a test runs by hand. */
function makeEnv() {
  const timers = new Map();
  let ids = 0;
  const env = {
    at: 1_000_000,
    now: () => env.at,
    setTimeout(work, ms) {
      ids += 1;
      timers.set(ids, { work, ms });
      return ids;
    },
    clearTimeout: (id) => timers.delete(id),
    waits: () => [...timers.values()].map(({ ms }) => ms),
    async fire() {
      const [[id, { work, ms }]] = timers;
      timers.delete(id);
      env.at += ms;
      await work();
    },
  };
  return env;
}

function setUp({ life = 100_000, refresh } = {}) {
  const env = makeEnv();
  const told = [];
  let session = { token: "t1", expiresAt: life === null ? null : env.at + life };
  const renew = () => {
    session = { token: `t${told.length + 2}`, expiresAt: env.at + life };
    return true;
  };
  const renewal = startTokenRenewal({
    env,
    session: () => session,
    refresh: async () => (refresh === undefined ? renew() : refresh(renew)),
    sendToken: async (token) => told.push(token),
  });
  return { env, told, renewal };
}

test("a token is replaced before it ends, again and again", async () => {
  const { env, told } = setUp();

  assert.deepEqual(env.waits(), [80_000]);
  await env.fire();
  await env.fire();

  assert.deepEqual(told, ["t2", "t3"]);
  assert.deepEqual(env.waits(), [80_000]);
});

test("a failure is tried again while the token holds", async () => {
  let tries = 0;
  const refresh = (renew) => {
    tries += 1;
    if (tries < 3) throw new Error("not reached");
    return renew();
  };
  const { env, told } = setUp({ refresh });

  await env.fire();
  assert.deepEqual(env.waits(), [16_000]);
  await env.fire();
  await env.fire();

  assert.deepEqual(told, ["t2"]);
});

test("a token without an end, or one that cannot be replaced, tells nobody", async () => {
  assert.deepEqual(setUp({ life: null }).env.waits(), []);
  const { env, told } = setUp({ refresh: () => false });

  await env.fire();

  assert.deepEqual(told, []);
});

test("nothing happens any more once it is stopped", async () => {
  const { env, renewal } = setUp();

  renewal.stop();

  assert.deepEqual(env.waits(), []);
});
