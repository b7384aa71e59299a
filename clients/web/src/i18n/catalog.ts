// The type of a catalog: the structure of the English one, with any texts.

import type { en } from "./en";

type Texts<T> = {
  readonly [Key in keyof T]: T[Key] extends string
    ? string
    : T[Key] extends (...args: infer Args) => string
      ? (...args: Args) => string
      : Texts<T[Key]>;
};

/** All texts of the client in one language. An incomplete translation does not compile. */
export type Catalog = Texts<typeof en>;
