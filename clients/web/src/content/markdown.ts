// A parser for the subset of Markdown in messages, without HTML and images. The resulting tree can
// be rendered to elements without `innerHTML`.

import MarkdownIt, { type Token } from "markdown-it";
import { truncate } from "../i18n/graphemes";

/** An inline element. */
export type Inline =
  | { type: "text" | "code"; text: string }
  | { type: "break" }
  | { type: "strong" | "emphasis" | "strike"; children: Inline[] }
  | { type: "link"; href: string; children: Inline[] }
  | { type: "mention"; user: string };

/** A block element, such as a paragraph. */
export type Block =
  | { type: "paragraph"; children: Inline[] }
  | { type: "code"; language: string; text: string }
  | { type: "quote"; children: Block[] }
  | { type: "list"; start: number | null; items: Block[][] };

const NESTING_MAX = 12;
const LANGUAGE = /^[\w#+.-]{1,20}/;
const LINK = /^(https?:|mailto:)/i;
const MENTION = /@([A-Za-z0-9_-]{1,64})/y;
const WORD = /[\p{L}\p{N}_@/.]/u;

const parser = createParser();

function createParser() {
  const created = new MarkdownIt("zero", {
    html: false,
    linkify: true,
    breaks: true,
    maxNesting: NESTING_MAX,
  });
  created.enable([
    ...["fence", "blockquote", "list", "linkify", "newline", "escape"],
    ...["backticks", "emphasis", "strikethrough", "link", "autolink"],
  ]);
  // Texts such as "notes.md" and "node.js" are not links.
  created.linkify.set({ fuzzyLink: false, fuzzyEmail: true });
  // Leading spaces of a line are kept, except in quotes and lists.
  created.core.ruler.before("inline", "indent", ({ src, tokens }) => {
    const lines = src.split("\n");
    for (const token of tokens) {
      if (token.type !== "inline" || token.level !== 1) continue;
      const indent = /^[ \t]*/.exec(lines[token.map?.[0] ?? 0] ?? "")?.[0] ?? "";
      token.content = indent + token.content;
    }
  });
  created.inline.ruler.at("newline", (state, isSilent) => {
    if (state.src[state.pos] !== "\n") return false;
    if (!isSilent) state.push("softbreak", "br", 0);
    state.pos += 1;
    return true;
  });
  created.validateLink = (href) => LINK.test(href.trim());
  created.inline.ruler.before("emphasis", "mention", (state, isSilent) => {
    MENTION.lastIndex = state.pos;
    const match = MENTION.exec(state.src);
    if (match === null || WORD.test(state.src[state.pos - 1] ?? "")) return false;
    if (!isSilent) state.push("mention", "", 0).content = match[1] as string;
    state.pos += match[0].length;
    return true;
  });
  return created;
}

/** Parse the text of a message. */
export function parseMarkdown(text: string): Block[] {
  return readBlocks(new Reader(parser.parse(text, {})));
}

class Reader {
  readonly #tokens: readonly Token[];
  #next = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  /** Return the next token; null at the end, or after the token that closes the current element. */
  next(): Token | null {
    const token = this.#tokens[this.#next];
    this.#next += 1;
    return token === undefined || token.nesting < 0 ? null : token;
  }
}

function readBlocks(reader: Reader): Block[] {
  const blocks: Block[] = [];
  for (let token = reader.next(); token !== null; token = reader.next()) {
    switch (token.type) {
      case "paragraph_open":
        blocks.push({ type: "paragraph", children: readParagraph(reader) });
        break;
      case "fence":
        blocks.push({
          type: "code",
          language: LANGUAGE.exec(token.info.trim())?.[0] ?? "",
          text: token.content.replace(/\n$/, ""),
        });
        break;
      case "blockquote_open":
        blocks.push({ type: "quote", children: readBlocks(reader) });
        break;
      case "bullet_list_open":
        blocks.push({ type: "list", start: null, items: readItems(reader) });
        break;
      case "ordered_list_open":
        blocks.push({
          type: "list",
          start: Number(token.attrGet("start") ?? 1),
          items: readItems(reader),
        });
        break;
      default:
        throw new Error(`unexpected token ${token.type}`);
    }
  }
  return blocks;
}

function readParagraph(reader: Reader): Inline[] {
  const children: Inline[] = [];
  for (let token = reader.next(); token !== null; token = reader.next()) {
    children.push(...readInlines(new Reader(token.children ?? [])));
  }
  return children;
}

function readItems(reader: Reader): Block[][] {
  const items: Block[][] = [];
  while (reader.next() !== null) items.push(readBlocks(reader));
  return items;
}

const SPANS = { strong_open: "strong", em_open: "emphasis", s_open: "strike" } as const;

function readInlines(reader: Reader): Inline[] {
  const inlines: Inline[] = [];
  for (let token = reader.next(); token !== null; token = reader.next()) {
    switch (token.type) {
      case "strong_open":
      case "em_open":
      case "s_open":
        inlines.push({ type: SPANS[token.type], children: readInlines(reader) });
        break;
      case "link_open":
        inlines.push({
          type: "link",
          href: String(token.attrGet("href") ?? ""),
          children: readInlines(reader),
        });
        break;
      case "softbreak":
      case "hardbreak":
        inlines.push({ type: "break" });
        break;
      case "mention":
        inlines.push({ type: "mention", user: token.content });
        break;
      case "code_inline":
        inlines.push({ type: "code", text: token.content });
        break;
      default:
        if (token.content !== "") addText(inlines, token.content);
    }
  }
  return inlines;
}

function addText(inlines: Inline[], text: string): void {
  const last = inlines.at(-1);
  if (last?.type === "text") last.text += text;
  else inlines.push({ type: "text", text });
}

/** Return the text of a message without its formatting, on one line. For quotes and lists. */
export function getPlainText(text: string, charsMax = 200): string {
  const texts = parseMarkdown(text.slice(0, charsMax * 2)).map(getBlockText);
  return truncate(texts.join(" ").replace(/\s+/g, " ").trim(), charsMax);
}

function getBlockText(block: Block): string {
  switch (block.type) {
    case "paragraph":
      return block.children.map(getInlineText).join("");
    case "code":
      return block.text;
    case "quote":
      return block.children.map(getBlockText).join(" ");
    case "list":
      return block.items.map((item) => item.map(getBlockText).join(" ")).join(" ");
  }
}

/** Return the text of an inline without its formatting. */
export function getInlineText(inline: Inline): string {
  switch (inline.type) {
    case "text":
    case "code":
      return inline.text;
    case "break":
      return " ";
    case "mention":
      return `@${inline.user}`;
    default:
      return inline.children.map(getInlineText).join("");
  }
}

/** Return the first web link of a message, or null. */
export function findFirstLink(text: string): string | null {
  return text.includes("://") ? findLink(parseMarkdown(text)) : null;
}

function findLink(blocks: Block[]): string | null {
  for (const block of blocks) {
    if (block.type !== "paragraph") continue; // links in quotes, lists and code do not count
    const link = findInlineLink(block.children);
    if (link !== null) return link;
  }
  return null;
}

function findInlineLink(inlines: Inline[]): string | null {
  for (const inline of inlines) {
    if (inline.type === "link" && /^https?:/i.test(inline.href)) return inline.href;
    const link = "children" in inline ? findInlineLink(inline.children) : null;
    if (link !== null) return link;
  }
  return null;
}

/** Return whether a message mentions a user. */
export function hasMention(text: string, user: string): boolean {
  if (!text.includes(`@${user}`)) return false;
  const includes = (inlines: Inline[]): boolean =>
    inlines.some(
      (inline) =>
        (inline.type === "mention" && inline.user === user) ||
        ("children" in inline && includes(inline.children)),
    );
  const inBlocks = (blocks: Block[]): boolean =>
    blocks.some((block) => {
      if (block.type === "paragraph") return includes(block.children);
      if (block.type === "quote") return inBlocks(block.children);
      return block.type === "list" && block.items.some(inBlocks);
    });
  return inBlocks(parseMarkdown(text));
}
