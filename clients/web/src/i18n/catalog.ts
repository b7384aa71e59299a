// The type of a catalog: that of the English one, with any text in its place.

import type { en } from "./en";

type Texts<T> = {
  readonly [Key in keyof T]: T[Key] extends string
    ? string
    : T[Key] extends (...args: infer Args) => string
      ? (...args: Args) => string
      : Texts<T[Key]>;
};

/** All texts of the client in one language. A translation that lacks one does not compile. */
export type Catalog = Texts<typeof en>;
