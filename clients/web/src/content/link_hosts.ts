// Links whose text shows one address and that lead to another. Pure functions.

const ADDRESS =
  /(?:^|[^\p{L}\p{N}.@-])(?:[^\s/@]*@)?((?:[\p{L}\p{N}-]+[.。．｡])+[\p{L}\p{N}-]{2,})/gu;
const PATH = /(?<=[^\s/:])[/?#]\S*/gu;
const INVISIBLE = /[\p{Cf}\p{Cc}\p{Mn}]/gu;

/**
 * Return the host or mail address to which a link leads, if its text shows another one or hides it;
 * otherwise null.
 */
export function findHiddenTarget(href: string, text: string): string | null {
  const target = parseUrl(href);
  if (target === null) return null;
  if (target.protocol === "mailto:") {
    const address = decodeText(target.pathname);
    const isShown = text.replace(INVISIBLE, "").toLowerCase().includes(address.toLowerCase());
    return isShown || findHosts(text).length === 0 ? null : address;
  }
  const host = trimHost(target.hostname);
  const isShown = findHosts(text).every((shown) => shown === host);
  // Everything before an "@" looks like the host, but is a user name.
  return isShown && target.username === "" ? null : target.host;
}

/** Return the hosts of all addresses in a text. */
function findHosts(text: string): string[] {
  // The path of an address may contain others, such as a file name.
  const visible = text.replace(INVISIBLE, "").replace(PATH, " ");
  return [...visible.matchAll(ADDRESS)]
    .map(([, host]) => parseUrl(`https://${host}`)?.hostname)
    .filter((host) => host !== undefined)
    .map(trimHost);
}

const trimHost = (host: string): string => host.replace(/^www\./, "").replace(/\.$/, "");

function parseUrl(text: string): URL | null {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}

function decodeText(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
