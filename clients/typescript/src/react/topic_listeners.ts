// Listeners by topic: a change calls only the listeners of its topic.

/** Listeners of topics such as `chat:<id>`. */
export class Topics {
  readonly #listeners = new Map<string, Set<() => void>>();

  /** Call `listener` when `topic` changes; return a function that removes it. */
  subscribe(topic: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    const entry = (): void => listener(); // so that the same listener can subscribe twice
    this.#listeners.set(topic, listeners.add(entry));
    return () => {
      listeners.delete(entry);
      if (listeners.size === 0 && this.#listeners.get(topic) === listeners) {
        this.#listeners.delete(topic);
      }
    };
  }

  /** Return the number of listeners of a topic, or of all topics. */
  count(topic?: string): number {
    if (topic !== undefined) return this.#listeners.get(topic)?.size ?? 0;
    return [...this.#listeners.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /** Return the ids of the topics `kind:id` that have listeners. */
  listIds(kind: string): string[] {
    const names = [...this.#listeners.keys()].filter((name) => name.startsWith(`${kind}:`));
    return names.map((name) => name.slice(kind.length + 1));
  }

  /** Call the listeners of a topic. */
  notify(topic: string): void {
    for (const listener of [...(this.#listeners.get(topic) ?? [])]) listener();
  }
}
