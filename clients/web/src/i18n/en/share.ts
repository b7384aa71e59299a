/** The page that receives content from other applications. */
export const share = {
  title: "Share to",
  files: (count: number) => (count === 1 ? "1 file" : `${count} files`),
  nothing: "There is nothing to share.",
  refused: "Open the installed app to share. Content from other websites isn't accepted.",
  missed: "The app wasn't ready to receive this. Please share it again.",
  anotherChat: "Choose another chat",
} as const;
