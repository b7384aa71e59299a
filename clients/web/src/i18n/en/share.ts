/** Texts of the page for content that another application shares. */
export const share = {
  title: "Share to",
  files: (count: number) => (count === 1 ? "1 file" : `${count} files`),
  nothing: "There is nothing to share.",
} as const;
