// The text of a message as elements. Nothing is parsed as HTML.

import { memo, type ReactNode, useMemo } from "react";
import { useClient } from "tierchat/react";
import { buildPath, Link } from "../page/router";
import { CodeBlock } from "./CodeBlock";
import styles from "./content.module.css";
import { findHiddenTarget } from "./link_hosts";
import { type Block, getInlineText, type Inline, parseMarkdown } from "./markdown";

interface MarkdownTextProps {
  text: string;
  /** Content after the last word. */
  tail?: ReactNode;
}

/** Formatted text. */
export const MarkdownText = memo(function MarkdownText({ text, tail }: MarkdownTextProps) {
  const me = useClient().user; // mentions of them are highlighted
  const blocks = useMemo(() => parseMarkdown(text), [text]);
  const isInline = blocks.at(-1)?.type === "paragraph";
  return (
    <>
      {blocks.map((block, index) =>
        renderBlock(block, index, me, isInline && index === blocks.length - 1 ? tail : null),
      )}
      {!isInline && tail}
    </>
  );
});

function renderBlock(block: Block, key: number, me: string, tail: ReactNode = null): ReactNode {
  switch (block.type) {
    case "paragraph":
      return (
        <p key={key} dir="auto">
          {renderInlines(block.children, me)}
          {tail}
        </p>
      );
    case "code":
      return <CodeBlock key={key} language={block.language} text={block.text} />;
    case "quote":
      return (
        <blockquote key={key}>
          {block.children.map((child, index) => renderBlock(child, index, me))}
        </blockquote>
      );
    case "list": {
      const items = block.items.map((item, index) => (
        <li key={index}>{item.map((child, position) => renderBlock(child, position, me))}</li>
      ));
      if (block.start === null) return <ul key={key}>{items}</ul>;
      return (
        <ol key={key} start={block.start}>
          {items}
        </ol>
      );
    }
  }
}

function renderInlines(inlines: readonly Inline[], me: string): ReactNode[] {
  return inlines.map((inline, index) => renderInline(inline, index, me));
}

function renderInline(inline: Inline, key: number, me: string): ReactNode {
  switch (inline.type) {
    case "text":
      return inline.text;
    case "code":
      return (
        <code key={key} className={styles["code"]}>
          {inline.text}
        </code>
      );
    case "break":
      return <br key={key} />;
    case "strong":
      return <strong key={key}>{renderInlines(inline.children, me)}</strong>;
    case "emphasis":
      return <em key={key}>{renderInlines(inline.children, me)}</em>;
    case "strike":
      return <s key={key}>{renderInlines(inline.children, me)}</s>;
    case "link": {
      const target = findHiddenTarget(inline.href, inline.children.map(getInlineText).join(""));
      return (
        <a key={key} href={inline.href} target="_blank" rel="noopener noreferrer nofollow">
          {renderInlines(inline.children, me)}
          {target !== null && <bdi className={styles["target"]}> ({target})</bdi>}
        </a>
      );
    }
    case "mention":
      return (
        <Link
          key={key}
          className={styles["mention"]}
          data-me={inline.user === me || undefined}
          to={buildPath("/people/:user", { user: inline.user })}
        >
          @{inline.user}
        </Link>
      );
  }
}
