// API reference (/docs): renders the server's OpenAPI document. No third-party code; the document's
// content only becomes text nodes.

const METHODS = ["get", "post", "put", "patch", "delete"];
const DEPTH_MAX = 6;
const root = document.getElementById("docs");

async function main() {
  try {
    const answer = await fetch("/v1/openapi.json");
    if (!answer.ok) throw new Error(`The server returned status ${answer.status}.`);
    const spec = await answer.json();
    root.replaceChildren(...page(spec));
    showTarget();
    addEventListener("hashchange", showTarget);
  } catch (problem) {
    const text = `Couldn't load the API reference. ${problem.message}`;
    root.replaceChildren(h("p", { role: "alert" }, text));
  }
  root.removeAttribute("aria-busy");
}

/** Return a new element with attributes; children that are null are left out. */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Open the operation in the URL's fragment: a closed one cannot be scrolled to. */
function showTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
  target?.scrollIntoView();
}

function page(spec) {
  const groups = groupByTag(spec);
  return [
    h(
      "header",
      {},
      h("h1", {}, `${spec.info.title} HTTP API `, h("small", {}, spec.info.version)),
      ...paragraphs(spec.info.description ?? ""),
      h("p", {}, "OpenAPI document: ", h("a", { href: "/v1/openapi.json" }, "openapi.json")),
    ),
    h(
      "nav",
      { "aria-label": "Operations" },
      ...[...groups].map(([tag, operations]) => index(tag, operations)),
    ),
    h(
      "main",
      { id: "operations", tabindex: "-1" },
      ...[...groups].map(([tag, operations]) => section(tag, operations, spec)),
    ),
  ];
}

function groupByTag(spec) {
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const method of METHODS) {
      const operation = item[method];
      if (operation === undefined) continue;
      const tag = operation.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push({ path, method, ...operation });
    }
  }
  return new Map([...groups].sort(([a], [b]) => a.localeCompare(b)));
}

function index(tag, operations) {
  return h(
    "section",
    {},
    h("h2", {}, tag),
    h(
      "ul",
      {},
      ...operations.map((each) =>
        h("li", {}, h("a", { href: `#${each.operationId}` }, each.summary ?? each.path)),
      ),
    ),
  );
}

function section(tag, operations, spec) {
  const id = `tag-${tag}`;
  return h(
    "section",
    { "aria-labelledby": id },
    h("h2", { id }, tag),
    ...operations.map((each) => operation(each, spec)),
  );
}

function operation(each, spec) {
  return h(
    "details",
    { id: each.operationId, class: "operation" },
    h(
      "summary",
      {},
      h("span", { class: `method method-${each.method}` }, each.method.toUpperCase()),
      h("code", { class: "path" }, each.path),
      h("span", { class: "title" }, each.summary ?? ""),
    ),
    ...paragraphs(each.description ?? ""),
    h("p", { class: "rule" }, "Access: ", h("strong", {}, each["x-rule"] ?? "anyone")),
    parameters(each.parameters ?? []),
    body(each.requestBody, spec),
    h("h3", {}, "Responses"),
    ...Object.entries(each.responses).map(([status, answer]) => response(status, answer, spec)),
  );
}

function parameters(list) {
  if (list.length === 0) return null;
  const rows = list.map((each) => {
    const { name, required, schema, description } = each;
    return [name, each.in, required, schema, description];
  });
  return h("div", {}, h("h3", {}, "Parameters"), table("Parameters", rows));
}

/** `rows`: name, location (null for a field of a body), whether required, schema, description. */
function table(label, rows) {
  const hasPlaces = rows.some(([, where]) => where !== null);
  const heads = ["Name", ...(hasPlaces ? ["In"] : []), "Type", "Description"];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h(
        "tbody",
        {},
        ...rows.map(([name, where, required, schema, meaning]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, h("code", {}, name), required ? " (required)" : null),
            hasPlaces ? h("td", {}, where) : null,
            h("td", {}, h("code", {}, typeOf(schema)), limits(schema)),
            h("td", {}, meaning ?? schema?.description ?? ""),
          ),
        ),
      ),
    ),
  );
}

function body(request, spec) {
  const schema = request?.content?.["application/json"]?.schema;
  if (schema === undefined) return null;
  return h("div", {}, h("h3", {}, "Request body"), shape(schema, spec));
}

function response(status, answer, spec) {
  const schema = Object.values(answer.content ?? {})[0]?.schema;
  return h(
    "div",
    { class: "answer" },
    h("p", {}, h("strong", {}, status), ` ${answer.description ?? ""}`),
    schema === undefined ? null : shape(schema, spec),
  );
}

/** The fields of an object as a table, or the type of anything else. */
function shape(schema, spec, depth = 0) {
  const { name, schema: found } = resolve(schema, spec);
  if (found?.properties === undefined || depth > DEPTH_MAX)
    return h("p", {}, h("code", {}, typeOf(schema)), limits(schema));
  const required = new Set(found.required ?? []);
  const rows = Object.entries(found.properties).map(([field, type]) => {
    const inner = resolve(type, spec).schema;
    const meaning = type.description ?? inner?.description ?? "";
    return [field, null, required.has(field), type, meaning];
  });
  return h(
    "div",
    {},
    name === "" ? null : h("p", {}, h("code", {}, name), " ", found.description ?? ""),
    table(name || "Fields", rows),
  );
}

function resolve(schema, spec) {
  if (schema?.$ref === undefined) return { name: "", schema };
  const name = schema.$ref.split("/").at(-1);
  return { name, schema: spec.components.schemas[name] };
}

function typeOf(schema) {
  if (schema === undefined) return "";
  if (schema.$ref !== undefined) return schema.$ref.split("/").at(-1);
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices !== undefined) return choices.map(typeOf).join(" | ");
  if (schema.enum !== undefined) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `${typeOf(schema.items)}[]`;
  return schema.type ?? "any";
}

const END = "(?![\\s\\S])"; // portable spelling of the end of a string
const LIMITS = {
  minimum: "min",
  maximum: "max",
  minLength: "min length",
  maxLength: "max length",
  minItems: "min items",
  maxItems: "max items",
  pattern: "pattern",
  default: "default",
};

function limits(schema) {
  const texts = Object.entries(LIMITS)
    .filter(([key]) => schema?.[key] !== undefined && schema[key] !== null)
    .map(([key, words]) => `${words} ${String(schema[key]).replace(END, "$")}`);
  return texts.length === 0 ? null : h("span", { class: "limits" }, texts.join("; "));
}

/** Text with blank lines between paragraphs and `code` in backticks. */
function paragraphs(text) {
  return text
    .split(/\n\s*\n/)
    .filter((part) => part.trim() !== "")
    .map((part) =>
      h(
        "p",
        {},
        ...part.split("`").map((piece, at) => (at % 2 === 1 ? h("code", {}, piece) : piece)),
      ),
    );
}

await main();
