// The response that an AI companion is writing.

import type { ReactElement, ReactNode } from "react";

import { useCompanionResponse } from "../hooks.js";
import { useTexts } from "../provider.js";

/** Properties of {@link CompanionView}. */
export interface CompanionViewProps {
  chat: string;
  /** Renders the text so far, for example as Markdown. */
  renderText?: (text: string) => ReactNode;
}

/** A response in progress with a stop button. Class: `tierchat-response`. */
export function CompanionView({ chat, renderText }: CompanionViewProps): ReactElement | null {
  const { labels } = useTexts();
  const response = useCompanionResponse(chat);
  if (response === null) return null;
  const { text, isRunning, tool, stop } = response;
  return (
    <article className="tierchat-response" aria-busy={isRunning} data-tool={tool || undefined}>
      {renderText === undefined ? <p>{text}</p> : renderText(text)}
      {isRunning && (
        <button type="button" onClick={() => void stop().catch(() => {})}>
          {labels.stop}
        </button>
      )}
    </article>
  );
}
