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

function buildHeader(source) {
  return `// Generated from docs/${source} by scripts/generate_types.mjs. Do not edit.\n`;
}

function buildComment(text, indent = "") {
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

function getFirstParagraph(text = "") {
  return text.split("\n\n")[0];
}

function buildUnion(types) {
  return [...new Set(types)].join(" | ");
}

function buildType(schema) {
  if (schema.$ref !== undefined) return schema.$ref.split("/").at(-1);
  if (schema.enum !== undefined) return buildUnion(schema.enum.map((item) => JSON.stringify(item)));
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return buildUnion(choices.map(buildType));
  if (Array.isArray(schema.type)) return buildUnion(schema.type.map((type) => buildType({ type })));
  switch (schema.type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "array": {
      const item = schema.items === undefined ? "unknown" : buildType(schema.items);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      if (schema.properties !== undefined) return buildInlineObject(schema);
      return `Record<string, ${buildValueType(schema.additionalProperties)}>`;
    default:
      return "unknown";
  }
}

function buildValueType(schema) {
  const isTyped = typeof schema === "object" && Object.keys(schema).length > 0;
  return isTyped ? buildType(schema) : "unknown";
}

function buildInlineObject(schema) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(
    ([name, field]) => `${quoteKey(name)}${required.has(name) ? "" : "?"}: ${buildType(field)}`,
  );
  return `{ ${fields.join("; ")} }`;
}

function quoteKey(name) {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

function declare(name, schema) {
  const text = getFirstParagraph(schema.description) || `Schema \`${name}\` of the API.`;
  const doc = buildComment(text);
  if (schema.type !== "object" || schema.properties === undefined) {
    return `${doc}export type ${name} = ${buildType(schema)};\n`;
  }
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties)
    .map(([field, inner]) => {
      const optional = required.has(field) ? "" : "?";
      return wrapField(`  ${quoteKey(field)}${optional}:`, buildType(inner));
    })
    .join("");
  return `${doc}export interface ${name} {\n${fields}}\n`;
}

function wrapField(start, type) {
  if (start.length + type.length + 2 <= WIDTH) return `${start} ${type};\n`;
  const lines = type.split(" | ").map((part) => `    | ${part}`);
  return `${start}\n${lines.join("\n")};\n`;
}

function buildList(values) {
  return values.map((value) => `  ${JSON.stringify(value)},\n`).join("");
}

function buildFrames() {
  const { schemas, messages } = asyncapi.components;
  const sides = { receive: new Set(), send: new Set() };
  for (const { action, messages: requests = [], reply } of Object.values(asyncapi.operations)) {
    const other = action === "receive" ? "send" : "receive";
    for (const { $ref } of requests) sides[action].add($ref.split("/").at(-1));
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
    buildHeader("asyncapi.json"),
    ...Object.entries(schemas).map(([name, schema]) => declare(name, schema)),
    "/** A frame that a client sends. */",
    `export type ClientFrame =\n${buildAlternatives(payloads(sides.receive))}`,
    "/** A frame that the server sends. */",
    `export type ServerFrame =\n${buildAlternatives(payloads(sides.send))}`,
    "/** Requests of `ChatClient.request` by type: the frame, and its reply unless it fails. */",
    `export interface Requests {\n${buildRequests(messages)}}\n`,
    "/** The version of the protocol. */",
    `export const PROTOCOL_VERSION = ${Hello.v.enum[0]};\n`,
    "/** Kinds of entries that are changes and not messages. */",
    `export const CHANGE_KINDS: ReadonlySet<string> = new Set([\n${buildList(changes)}]);\n`,
    "/** Most users in one `watch` frame. */",
    `export const WATCH_MAX = ${schemas.Watch.properties.users.maxItems};\n`,
    "/** Most chats in `large` of `hello`. */",
    `export const LARGE_MAX = ${getBound(Hello.large)};\n`,
    "/** Most chats in `unstored` of `hello`. */",
    `export const UNSTORED_MAX = ${getBound(Hello.unstored)};\n`,
    "/** Close codes by name. */",
    `export const CLOSE_CODES = {\n${closes.join("")}} as const;\n`,
    "/** The error codes of the server: whether the same request may succeed later. */",
    `export const ERROR_CODES = {\n${errors.join("")}} as const;\n`,
  ]);
}

/** Frames that the client itself sends, because they change its state. */
const OWN_FRAMES = new Set(["auth", "delete", "edit", "hello", "react", "send", "sync"]);

function buildRequests(messages) {
  const name = ({ $ref }) => messages[$ref.split("/").at(-1)].payload.$ref.split("/").at(-1);
  return Object.entries(asyncapi.operations)
    .filter(([type, { reply }]) => reply !== undefined && !OWN_FRAMES.has(type))
    .map(
      ([
        type,
        {
          messages: [frame],
          reply,
        },
      ]) => {
        const replies = reply.messages.map(name).filter((each) => each !== "Error");
        return `  ${type}: { frame: ${name(frame)}; reply: ${buildUnion(replies)} };\n`;
      },
    )
    .join("");
}

/** Join parts: a blank line between declarations, none between a comment and its declaration. */
function join(parts) {
  return `${parts
    .map((part) => `${part}\n`)
    .join("")
    .trimEnd()}\n`;
}

function buildAlternatives(names) {
  return `${names.map((name) => `  | ${name}`).join("\n")};\n`;
}

function getBound(schema) {
  return schema.anyOf.find((choice) => choice.maxProperties !== undefined).maxProperties;
}

function buildHttp() {
  const operations = [];
  for (const [path, methods] of Object.entries(openapi.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (method !== "parameters") operations.push(buildOperation(method, path, operation));
    }
  }
  operations.sort((a, b) => (a.id < b.id ? -1 : 1));
  const ids = new Set(operations.map(({ id }) => id));
  if (ids.size !== operations.length) throw new Error("operation ids are not unique");
  return join([
    buildHeader("openapi.json"),
    ...Object.entries(openapi.components.schemas).map(([name, schema]) => declare(name, schema)),
    "/** All operations of the HTTP API: their parameters, body and result. */",
    `export interface Operations {\n${operations.map(({ type }) => type).join("")}}\n`,
    "/** Method, path and query parameters of each operation. */",
    "export const OPERATIONS: {",
    "  readonly [Id in keyof Operations]: readonly [string, string, readonly string[]];",
    `} = {\n${operations.map(({ route }) => route).join("")}};\n`,
  ]);
}

function buildOperation(method, path, operation) {
  const parameters = operation.parameters ?? [];
  const listIn = (location) => parameters.filter((parameter) => parameter.in === location);
  const body = operation.requestBody?.content["application/json"]?.schema;
  const success = Object.entries(operation.responses).find(([code]) => code.startsWith("2"));
  const content = success?.[1].content?.["application/json"]?.schema;
  const member = (parameter) => {
    const optional = parameter.required ? "" : "?";
    return `      ${quoteKey(parameter.name)}${optional}: ${buildType(parameter.schema)};\n`;
  };
  const named = [...listIn("path"), ...listIn("query")];
  const hasKey = listIn("header").some(({ name }) => name === "Idempotency-Key");
  const type = [
    buildComment(operation.summary ?? operation.operationId, "  "),
    `  ${operation.operationId}: {\n`,
    `    params: {${named.length > 0 ? `\n${named.map(member).join("")}    ` : ""}};\n`,
    `    body: ${body === undefined ? "undefined" : buildType(body)};\n`,
    `    result: ${content === undefined ? "null" : buildType(content)};\n`,
    `    isIdempotent: ${hasKey};\n  };\n`,
  ].join("");
  const query = listIn("query").map(({ name }) => JSON.stringify(name));
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
for (const [name, text] of [
  ["frames.ts", buildFrames()],
  ["http.ts", buildHttp()],
]) {
  const file = new URL(name, TARGET);
  let current = "";
  try {
    current = readFileSync(file, "utf8");
  } catch {
    // not written yet
  }
  if (current === text) continue;
  isStale = true;
  if (isCheck) {
    console.error(`src/generated/${name} is not up to date; run \`make docs\``);
  } else {
    writeFileSync(file, text);
  }
}
process.exitCode = isCheck && isStale ? 1 : 0;
