// Logic of the pages: posts, search queries, roles, links, metrics and companions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const feed = await load("social/feed.ts");
const query = await load("search/query.ts");
const roles = await load("directory/roles.ts");
const { listLinks } = await load("group/message_links.ts");
const { addCurrent } = await load("group/setting_choices.ts");
const contacts = await load("directory/contacts.ts");
const { listContacts, isMatch } = contacts;
const { canShowResults } = await load("directory/people_search.ts");
const { listAlerts } = await load("operations/alerts.ts");
const metrics = await load("operations/metrics.ts");
const units = await load("operations/units.ts");
const draft = await load("companions/companion_draft.ts");
const { choosePage } = await load("data/use_pages.ts");

const post = (id, more = {}) => ({ id, user: "ann", likes: 0, liked: false, ...more });
const ids = (posts) => posts.map(({ id }) => id);

test("a failed request is repeated, then the next page is loaded", () => {
  const idle = { isLoading: false, isInitial: false, error: null, next: "2" };
  const failed = { ...idle, error: new Error("unavailable") };

  assert.equal(choosePage(failed, true), "first"); // else the first page would be listed twice
  assert.equal(choosePage(failed, false), "next");
  assert.equal(choosePage({ ...idle, isInitial: true, next: null }, true), "first");
  assert.equal(choosePage(idle, true), "next");
  assert.equal(choosePage({ ...idle, next: null }, true), null);
  assert.equal(choosePage({ ...idle, isLoading: true }, true), null);
});

test("posts are listed once, newest first; newer copies replace older ones", () => {
  const posts = feed.mergePosts([post("3"), post("1")], [post("2"), post("3", { likes: 2 })], 0);

  assert.deepEqual(ids(posts), ["3", "2", "1"]);
  assert.equal(posts[0].likes, 2);
});

test("a reload removes deleted posts in its range and returns new posts separately", () => {
  const page = { items: [post("5"), post("3")], next: "more" };

  const { posts, added } = feed.applyReload([post("4"), post("3"), post("1")], page, 0);

  assert.deepEqual(ids(posts), ["3", "1"]);
  assert.deepEqual(ids(added), ["5"]);
});

test("a like is shown until the server has counted it", () => {
  const liked = feed.applyLike([post("1", { likes: 1 })], "1", true, 1_000);

  const soon = feed.mergePosts(liked, [post("1", { likes: 1 })], 2_000);
  const later = feed.mergePosts(liked, [post("1", { likes: 1 })], 60_000);

  assert.deepEqual([soon[0].likes, soon[0].liked], [2, true]);
  assert.deepEqual([later[0].likes, later[0].liked], [1, false]);
});

test("a query is split into chips and words, and formatted again", () => {
  const parsed = query.parseQuery('from:ann "in: two" has:file lunch');

  assert.deepEqual(parsed.chips, [
    { name: "from", value: "ann" },
    { name: "has", value: "file" },
  ]);
  assert.equal(parsed.text, '"in: two" lunch');
  assert.equal(query.formatQuery(parsed), 'from:ann has:file "in: two" lunch');
});

test("a qualifier becomes a chip when a space follows; each name has one value", () => {
  const typing = { chips: [], text: "lunch from:an" };

  assert.equal(query.extractChips(typing), typing);
  const first = query.extractChips({ chips: [], text: "lunch from:ann " });
  assert.deepEqual(first, { chips: [{ name: "from", value: "ann" }], text: "lunch" });
  const second = query.extractChips({ ...first, text: "from:ben " });
  assert.deepEqual(second.chips, [{ name: "from", value: "ben" }]);
});

test("an open phrase is closed; a single letter is not searched", () => {
  assert.equal(query.formatQuery({ chips: [], text: '"at one' }), '"at one"');
  assert.equal(query.isSearchable({ chips: [], text: "a" }), false);
  assert.equal(query.isSearchable({ chips: [{ name: "has", value: "file" }], text: "" }), true);
});

test("owners moderate everyone, admins only members, members no one", () => {
  assert.deepEqual(
    ["owner", "admin", "member"].map((ownRole) =>
      ["owner", "admin", "member"].map((memberRole) => roles.canModerate(ownRole, memberRole)),
    ),
    [
      [true, true, true],
      [false, false, true],
      [false, false, false],
    ],
  );
  assert.deepEqual(roles.listAssignableRoles("owner", "admin"), ["owner", "member"]);
  assert.deepEqual(roles.listAssignableRoles("admin", "member"), []);
});

test("usernames are separated by spaces, commas or newlines; invalid ones are refused", () => {
  assert.deepEqual(contacts.parseUsers(" ann, @ben\nann "), ["ann", "ben"]);
  assert.equal(contacts.parseUsers("ann b!n"), null);
});

test("links keep their brackets but not trailing punctuation", () => {
  const body = "(see https://a.example/x_(y)), https://b.example/. ftp://c.example";

  const links = listLinks([{ seq: 4, ts: 1, body }]);

  assert.deepEqual(
    links.map(({ url }) => url),
    ["https://a.example/x_(y)", "https://b.example/"],
  );
  assert.deepEqual(listLinks([{ seq: 1, ts: 1, body, deleted: true }]), []);
});

test("the choices of a setting include its current value", () => {
  assert.deepEqual(addCurrent([0, 5, 30], 10), [0, 5, 10, 30]);
  assert.deepEqual(addCurrent([0, 5, 30], 5), [0, 5, 30]);
});

test("contacts are the people of the chats, without duplicates, the user and companions", () => {
  const chats = [
    { kind: "direct", peer: "cy", members: null },
    { kind: "companion", peer: "ai-ada", members: null },
    { kind: "group", peer: null, members: { ben: "owner", ann: "member", cy: "member" } },
  ];

  assert.deepEqual(listContacts(chats, "ann"), ["cy", "ben"]);
  assert.ok(isMatch("zoe", "z1", "Zoë Ångström"));
  assert.ok(isMatch("ang", "z1", "Zoë Ångström"));
  assert.ok(!isMatch("ng", "z1", "Zoë Ångström"));
  assert.ok(isMatch("@Z1", "z1", "Zoë Ångström"));
  assert.ok(isMatch(" ang zo", "z1", "Zoë Ångström"));
  assert.ok(!isMatch("ang x", "z1", "Zoë Ångström"));
  assert.ok(isMatch(" ", "z1", "Zoë Ångström"));
});

test("results for a text are shown until those of a longer or shorter text are loaded", () => {
  assert.ok(canShowResults("anna", "ann"));
  assert.ok(canShowResults("an", "ann"));
  assert.ok(!canShowResults("ben", "ann"));
  assert.ok(!canShowResults("", "ann"));
});

test("a period without points is a gap in the chart", () => {
  const points = [
    { at_ms: 1_000, sessions: 1 },
    { at_ms: 3_000, sessions: null },
    { at_ms: 20_000, sessions: 4 },
  ];

  const columns = metrics.buildColumns(points, ["sessions"], 2_000);

  assert.deepEqual(columns, [
    [1, 3, 5, 20],
    [1, null, null, 4],
  ]);
});

test("values between two gaps are split from the lines", () => {
  const columns = [
    [1, 2, 3, 4, 5],
    [7, null, 8, null, null],
    [1, 2, null, null, 3],
  ];

  assert.deepEqual(metrics.splitLonePoints(columns), [
    [1, 2, 3, 4, 5],
    [null, null, null, null, null],
    [1, 2, null, null, null],
    [7, null, 8, null, null],
    [null, null, null, null, 3],
  ]);
});

test("alerts report missing processes, a backlog and old metrics", () => {
  const latest = { now_ms: 9_000, processes: [], backlog: { age_s: 40, entries: 3 } };

  const alerts = listAlerts({ points: [], latest, receivedAtMs: 0 }, null, 30_000);

  assert.deepEqual(alerts, [
    { kind: "noGateway" },
    { kind: "backlog", seconds: 40, hasPersist: false },
    { kind: "stale", seconds: 30 },
  ]);
});

test("numbers are short and have units", () => {
  assert.equal(units.count(1_420), "1.42 k");
  assert.equal(units.bytes(3 * 2 ** 20), "3 MB");
  assert.equal(units.millis(1_250), "1.25 s");
  assert.equal(units.seconds(7_200), "2 h");
  assert.equal(units.dollars(0.00123), "$0.0012");
  assert.equal(units.perSecond(null), "–");
});

test("a companion is unchanged by the form; invalid numbers and schemas are found", () => {
  const persona = {
    id: "ai-ada",
    name: "Ada",
    provider: "bedrock",
    model: "m",
    prompt: "Be kind.",
    context_tokens_max: 4096,
    answer_tokens_max: 512,
    options: {
      memory: false,
      temperature: 0.5,
      tools: [
        { name: "t", description: "d", url: "https://a.example", input_schema: { type: "object" } },
      ],
    },
  };

  const edited = draft.buildDraft(persona);
  const sent = draft.buildRequest(edited);

  assert.equal(draft.findProblem(edited), null);
  assert.equal(sent.options.temperature, 0.5);
  assert.equal(sent.options.top_p, null);
  assert.equal(sent.options.memory, false);
  assert.deepEqual(sent.options.tools, persona.options.tools);
  assert.deepEqual(draft.findProblem({ ...edited, topP: "warm" }), { field: "topP" });
  const [tool] = edited.tools;
  assert.deepEqual(draft.findProblem({ ...edited, tools: [{ ...tool, schema: "[]" }] }), {
    field: "schema",
    tool: 0,
  });
});
