// A text of the catalog in which backticks enclose code, such as a command.

interface TextWithCodeProps {
  children: string;
}

/** Shows the text. */
export function TextWithCode({ children }: TextWithCodeProps) {
  return children
    .split("`")
    .map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}
