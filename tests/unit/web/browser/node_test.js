// Stands in for `node:test` where the tests run in a browser: collects them, runs them in turn.

const collected = [];

export function test(name, work) {
  collected.push({ name, work });
}

/** Run all tests and return what failed, as `[name, reason]`. */
export async function runAll() {
  const failed = [];
  for (const { name, work } of collected) {
    try {
      await work();
    } catch (error) {
      failed.push([name, String(error?.stack ?? error)]);
    }
  }
  return { count: collected.length, failed };
}
