// Stands in for `node:assert/strict` where the tests run in a browser: the few checks they use.

function fail(message, detail) {
  throw new Error(`${message ?? "assertion failed"}: ${detail}`);
}

function show(value) {
  return JSON.stringify(plain(value));
}

/** Maps and sets as arrays, keys in order, so that equal values give equal texts. */
function plain(value) {
  if (value instanceof Map) return { map: [...value].map(plain) };
  if (value instanceof Set) return { set: [...value].map(plain) };
  if (Array.isArray(value)) return value.map(plain);
  if (value === undefined) return { undefined: true };
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).map(([key, each]) => [key, plain(each)]);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

export function ok(value, message) {
  if (!value) fail(message, "is not true");
}

export function equal(actual, expected, message) {
  if (!Object.is(actual, expected)) fail(message, `${show(actual)} is not ${show(expected)}`);
}

export function notEqual(actual, expected, message) {
  if (Object.is(actual, expected)) fail(message, `is ${show(actual)}`);
}

export function deepEqual(actual, expected, message) {
  if (show(actual) !== show(expected)) fail(message, `${show(actual)} is not ${show(expected)}`);
}

export function match(text, pattern, message) {
  if (!pattern.test(text)) fail(message, `${show(text)} does not match ${pattern}`);
}

export function throws(work, pattern) {
  try {
    work();
  } catch (error) {
    match(String(error), pattern);
    return;
  }
  fail(null, "nothing was thrown");
}

export async function rejects(promise, expected) {
  let error = null;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  ok(error !== null, "nothing was rejected");
  for (const [name, value] of Object.entries(expected)) equal(error[name], value, name);
}

export default { ok, equal, notEqual, deepEqual, match, throws, rejects };
