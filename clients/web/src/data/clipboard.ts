// Copies text. `navigator.clipboard` exists only on pages with HTTPS, or on localhost.

/** Copy a text to the clipboard; return whether the browser did it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

function copySelection(text: string): boolean {
  const opener = document.activeElement;
  const parent = opener?.closest("dialog") ?? document.body; // the rest of the page is inert
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true;
  parent.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (opener instanceof HTMLElement) opener.focus();
  return isCopied;
}
