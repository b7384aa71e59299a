// Writes src/generated from docs/asyncapi.json and docs/openapi.json.
//
//   node scripts/generate_types.mjs            write the files
//   node scripts/generate_types.mjs --check    exit with 1 if a file is not up to date

import { readFileSync, writeFileSync } from "node:fs";

const DOCS = new URL("../../../docs/", import.meta.url);
const TARGET = new URL("../src/generated/", import.meta.url);
const WIDTH = 98;

const asyncapi = JSON.parse(readFileSync(new URL("asyncapi.json", DOCS), "utf8"));
const openapi = JSON.parse(readFileSync(new URL("openapi.json", DOCS), "utf8"));

function header(source) {
  return `// Generated from docs/${source} by scripts/generate_types.mjs. Do not edit.\n`;
}

/** `Page_chatserver.api.routes.chats.Member_` → `MemberPage`. */
function nameOf(schema) {
  const generic = /^Page_.*?(\w+?)_$/.exec(schema);
  return generic === null ? schema : `${generic[1]}Page`;
}

function comment(text, indent = "") {
  const words = text.split(/\s+/).filter(Boolean);
  if (words.length === 0) return "";
  const lines = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last === undefined || indent.length + 3 + last.length + 1 + word.length > WIDTH) {
      lines.push(word);
    } else {
      lines[lines.length - 1] = `${last} ${word}`;
    }
  }
  if (lines.length === 1 && lines[0].length + indent.length < WIDTH - 8) {
    return `${indent}/** ${lines[0]} */\n`;
  }
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join("")}${indent} */\n`;
}

function firstParagraph(text = "") {
  return text.split("\n\n")[0];
}

function union(types) {
  return [...new Set(types)].join(" | ");
}

function typeOf(schema) {
  if (schema.$ref !== undefined) return nameOf(schema.$ref.split("/").at(-1));
  if (schema.enum !== undefined) return union(schema.enum.map((value) => JSON.stringify(value)));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return union(choices.map(typeOf));
  if (Array.isArray(schema.type)) return union(schema.type.map((type) => typeOf({ type })));
  switch (schema.type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "array": {
      const item = schema.items === undefined ? "unknown" : typeOf(schema.items);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      if (schema.properties !== undefined) return inlineObject(schema);
      return `Record<string, ${valueType(schema.additionalProperties)}>`;
    default:
      return "unknown";
  }
}

function valueType(schema) {
  return typeof schema === "object" && Object.keys(schema).length > 0 ? typeOf(schema) : "unknown";
}

function inlineObject(schema) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(
    ([name, field]) => `${key(name)}${required.has(name) ? "" : "?"}: ${typeOf(field)}`,
  );
  return `{ ${fields.join("; ")} }`;
}

function key(name) {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

function declare(name, schema) {
  const doc = comment(firstParagraph(schema.description) || `Schema \`${name}\` of the API.`);
  if (schema.type !== "object" || schema.properties === undefined) {
    return `${doc}export type ${nameOf(name)} = ${typeOf(schema)};\n`;
  }
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties)
    .map(([field, inner]) => {
      const optional = required.has(field) ? "" : "?";
      return wrapField(`  ${key(field)}${optional}:`, typeOf(inner));
    })
    .join("");
  return `${doc}export interface ${nameOf(name)} {\n${fields}}\n`;
}

function wrapField(start, type) {
  if (start.length + type.length + 2 <= WIDTH) return `${start} ${type};\n`;
  const lines = type.split(" | ").map((part) => `    | ${part}`);
  return `${start}\n${lines.join("\n")};\n`;
}

function listOf(values) {
  return values.map((value) => `  ${JSON.stringify(value)},\n`).join("");
}

function frames() {
  const { schemas, messages } = asyncapi.components;
  const sides = { receive: new Set(), send: new Set() };
  for (const { action, messages: own = [], reply } of Object.values(asyncapi.operations)) {
    const other = action === "receive" ? "send" : "receive";
    for (const { $ref } of own) sides[action].add($ref.split("/").at(-1));
    for (const { $ref } of reply?.messages ?? []) sides[other].add($ref.split("/").at(-1));
  }
  const payloads = (names) =>
    [...names].map((name) => messages[name].payload.$ref.split("/").at(-1)).sort();
  const changes = schemas.Event.properties.kind.enum.filter(
    (kind) => !["chat", "hidden", "message", "read"].includes(kind),
  );
  const closes = Object.entries(asyncapi["x-close-codes"]).map(
    ([code, { name }]) => `  ${name}: ${code},\n`,
  );
  const errors = Object.entries(asyncapi["x-error-codes"]).map(
    ([code, { temporary }]) => `  ${code}: ${temporary},\n`,
  );
  const Hello = schemas.Hello.properties;
  return join([
    header("asyncapi.json"),
    ...Object.entries(schemas).map(([name, schema]) => declare(name, schema)),
    "/** A frame that a client sends. */",
    `export type ClientFrame =\n${alternatives(payloads(sides.receive))}`,
    "/** A frame that the server sends. */",
    `export type ServerFrame =\n${alternatives(payloads(sides.send))}`,
    "/** The version of the protocol. */",
    `export const PROTOCOL_VERSION = ${Hello.v.enum[0]};\n`,
    "/** Kinds of entries that are changes and not messages. */",
    `export const CHANGE_KINDS: ReadonlySet<string> = new Set([\n${listOf(changes)}]);\n`,
    "/** Most users in one `watch` frame. */",
    `export const WATCH_MAX = ${schemas.Watch.properties.users.maxItems};\n`,
    "/** Most chats in `large` of `hello`. */",
    `export const LARGE_MAX = ${boundOf(Hello.large)};\n`,
    "/** Most chats in `unstored` of `hello`. */",
    `export const UNSTORED_MAX = ${boundOf(Hello.unstored)};\n`,
    "/** Close codes by name. */",
    `export const CLOSE_CODES = {\n${closes.join("")}} as const;\n`,
    "/** The error codes of the server: whether the same request may succeed later. */",
    `export const ERROR_CODES = {\n${errors.join("")}} as const;\n`,
  ]);
}

/** Join declarations with blank lines between them, and comments with what they describe. */
function join(parts) {
  return `${parts.map((part) => `${part}\n`).join("").trimEnd()}\n`;
}

function alternatives(names) {
  return `${names.map((name) => `  | ${name}`).join("\n")};\n`;
}

function boundOf(schema) {
  return schema.anyOf.find((choice) => choice.maxProperties !== undefined).maxProperties;
}

function http() {
  const operations = [];
  for (const [path, methods] of Object.entries(openapi.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (method !== "parameters") operations.push(describe(method, path, operation));
    }
  }
  operations.sort((a, b) => (a.id < b.id ? -1 : 1));
  const seen = new Set(operations.map(({ id }) => id));
  if (seen.size !== operations.length) throw new Error("operation ids are not unique");
  return join([
    header("openapi.json"),
    ...Object.entries(openapi.components.schemas).map(([name, schema]) => declare(name, schema)),
    "/** All operations of the HTTP API: their parameters, body and result. */",
    `export interface Operations {\n${operations.map(({ type }) => type).join("")}}\n`,
    "/** Method, path and query parameters of each operation. */",
    "export const OPERATIONS: {",
    "  readonly [Id in keyof Operations]: readonly [string, string, readonly string[]];",
    `} = {\n${operations.map(({ route }) => route).join("")}};\n`,
  ]);
}

function describe(method, path, operation) {
  const parameters = operation.parameters ?? [];
  const inside = (place) => parameters.filter((parameter) => parameter.in === place);
  const body = operation.requestBody?.content["application/json"]?.schema;
  const success = Object.entries(operation.responses).find(([code]) => code.startsWith("2"));
  const content = success?.[1].content?.["application/json"]?.schema;
  const member = (parameter) => {
    const optional = parameter.required ? "" : "?";
    return `      ${key(parameter.name)}${optional}: ${typeOf(parameter.schema)};\n`;
  };
  const named = [...inside("path"), ...inside("query")];
  const hasKey = inside("header").some(({ name }) => name === "Idempotency-Key");
  const type = [
    comment(operation.summary ?? operation.operationId, "  "),
    `  ${operation.operationId}: {\n`,
    `    params: {${named.length > 0 ? `\n${named.map(member).join("")}    ` : ""}};\n`,
    `    body: ${body === undefined ? "undefined" : typeOf(body)};\n`,
    `    result: ${content === undefined ? "null" : typeOf(content)};\n`,
    `    isIdempotent: ${hasKey};\n  };\n`,
  ].join("");
  const query = inside("query").map(({ name }) => JSON.stringify(name));
  const names = `[${query.join(", ")}]`;
  const start = `  ${operation.operationId}: [`;
  const values = [JSON.stringify(method.toUpperCase()), JSON.stringify(path), names];
  const oneLine = `${start}${values.join(", ")}],\n`;
  const lines = values.map((value) => `    ${value},\n`).join("");
  const route = oneLine.length <= WIDTH ? oneLine : `${start}\n${lines}  ],\n`;
  return { id: operation.operationId, type, route };
}

const isCheck = process.argv.includes("--check");
let isStale = false;
for (const [name, text] of [["frames.ts", frames()], ["http.ts", http()]]) {
  const file = new URL(name, TARGET);
  let known = "";
  try {
    known = readFileSync(file, "utf8");
  } catch {
    // not written yet
  }
  if (known === text) continue;
  isStale = true;
  if (isCheck) {
    console.error(`src/generated/${name} is not up to date; run \`make docs\``);
  } else {
    writeFileSync(file, text);
  }
}
process.exitCode = isCheck && isStale ? 1 : 0;
