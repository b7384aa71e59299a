// The share target of the installed application: stores content that another application shares.
//
// Bounds: one share with at most `FILES_MAX` files and `BYTES_MAX` bytes in total.

// The same names as in `share/shared_content.ts`.
const SHARED = "shared-content";
const ABOUT = "/shared-content";
const FILES_MAX = 10;
const BYTES_MAX = 200_000_000;

/** Store the form of a share; return a redirect to the page that asks for the chat. */
export async function receiveShare(request: Request, page: URL): Promise<Response> {
  const form = await request.formData();
  const lines = ["title", "text", "url"].map((name) => form.get(name));
  // Some applications repeat the link in the text.
  const texts = lines.filter((line, index): line is string => {
    const isText = typeof line === "string" && line.trim() !== "";
    return isText && !lines.some((other, at) => at !== index && isPart(line, other, at < index));
  });
  const files: File[] = [];
  let bytes = 0;
  for (const file of form.getAll("files")) {
    if (!(file instanceof File) || file.size === 0 || files.length === FILES_MAX) continue;
    bytes += file.size;
    if (bytes <= BYTES_MAX) files.push(file);
  }
  await caches.delete(SHARED);
  const cache = await caches.open(SHARED);
  for (const [index, file] of files.entries()) {
    const headers = { "content-type": file.type || "application/octet-stream" };
    await cache.put(`${ABOUT}/${index}`, new Response(file, { headers }));
  }
  const about = { text: texts.join("\n"), names: files.map(({ name }) => name) };
  await cache.put(ABOUT, new Response(JSON.stringify(about)));
  return Response.redirect(page, 303);
}

/** Return whether a line is part of another line. Of two equal lines, the first one is kept. */
function isPart(line: string, other: unknown, isBefore: boolean): boolean {
  return typeof other === "string" && (line === other ? isBefore : other.includes(line));
}
