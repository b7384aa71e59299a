// Renders components with a client, and counts their renders.

import "./dom.js";

import { act, type ReactElement, StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ChatProvider } from "tierchat/react";

import type { StateClient } from "./state_client.js";

/** A rendered tree. */
export interface Rendered {
  readonly text: () => string;
  readonly find: (selector: string) => HTMLElement;
  /** Run `change` and wait until it is rendered. */
  readonly run: (change: () => void) => Promise<void>;
  readonly unmount: () => Promise<void>;
}

/** Render an element below a provider of a client. */
export async function render(
  client: StateClient,
  element: ReactElement,
  options: { isStrict?: boolean } = {},
): Promise<Rendered> {
  const container = document.createElement("div");
  document.body.append(container);
  const root = createRoot(container);
  const tree = <ChatProvider client={client.asClient}>{element}</ChatProvider>;
  await act(async () => root.render(options.isStrict ? <StrictMode>{tree}</StrictMode> : tree));
  return {
    text: () => container.textContent ?? "",
    find: (selector) => {
      const element = container.querySelector(selector);
      if (element === null) throw new Error(`no ${selector} in ${container.textContent}`);
      return element as HTMLElement;
    },
    run: (change) => act(async () => change()),
    unmount: async () => {
      await act(async () => root.unmount());
      container.remove();
    },
  };
}

/** Counts by name. */
export class Counts {
  readonly #counts = new Map<string, number>();

  /** Increase a count by one. */
  add(name: string): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
  }

  /** Return the counts since the last call. */
  popAll(): Record<string, number> {
    const counts = Object.fromEntries(this.#counts);
    this.#counts.clear();
    return counts;
  }
}
