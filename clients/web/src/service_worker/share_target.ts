// The share target of the installed application: stores content that another application shares.
//
// Bounds: one share with at most `FILES_MAX` files and `BYTES_MAX` bytes in total.

// The same names as in `share/shared_content.ts`.
const CACHE_NAME = "shared-content";
const INDEX_PATH = "/shared-content";
const FILES_MAX = 10;
const BYTES_MAX = 200_000_000;

/**
 * Return whether a page of another site has sent the form.
 *
 * Forms of pages without an address, such as a sandboxed frame, look like shares of the system: the
 * page accepts content only in the window of the installed application, which no form can open.
 */
export function isFromAnotherSite(request: Request, origin: string): boolean {
  const { referrer, referrerPolicy } = request;
  if (referrerPolicy === "no-referrer") return true; // the page hides its address
  return referrer.startsWith("http") && new URL(referrer).origin !== origin;
}

/** Store the form of a share; return a redirect to the page that asks for the chat. */
export async function receiveShare(request: Request, page: URL): Promise<Response> {
  const form = await request.formData();
  const lines = ["title", "text", "url"].map((name) => form.get(name));
  // Some applications repeat the link in the text.
  const texts = lines.filter((line, position): line is string => {
    if (typeof line !== "string" || line.trim() === "") return false;
    return !lines.some((other, otherPosition) => {
      return otherPosition !== position && isPart(line, other, otherPosition < position);
    });
  });
  const files: File[] = [];
  let bytes = 0;
  for (const file of form.getAll("files")) {
    if (!(file instanceof File) || file.size === 0 || files.length === FILES_MAX) continue;
    bytes += file.size;
    if (bytes <= BYTES_MAX) files.push(file);
  }
  await caches.delete(CACHE_NAME);
  const cache = await caches.open(CACHE_NAME);
  for (const [number, file] of files.entries()) {
    const headers = { "content-type": file.type || "application/octet-stream" };
    await cache.put(`${INDEX_PATH}/${number}`, new Response(file, { headers }));
  }
  const index = { text: texts.join("\n"), names: files.map(({ name }) => name) };
  await cache.put(INDEX_PATH, new Response(JSON.stringify(index)));
  return Response.redirect(page, 303);
}

/** Return whether a line is part of another line. Of two equal lines, the first is not. */
function isPart(line: string, other: unknown, isBefore: boolean): boolean {
  return typeof other === "string" && (line === other ? isBefore : other.includes(line));
}
