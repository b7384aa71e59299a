// Link previews: which results are cached, and which are requested again.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { load } from "./load.mjs";

const { HttpClient, loadLinkPreview } = await load("../tests/link_previews.ts");

test("a missing preview is cached, but not a temporary error", async () => {
  const asked = [];
  let isBusy = true;
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://server").searchParams.get("url");
    asked.push(url);
    const answer = (status, body) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (url.endsWith("/none")) answer(404, { status: 404, code: "not_found", detail: "none" });
    else if (isBusy) answer(503, { status: 503, code: "overloaded", detail: "busy" });
    else answer(200, { url, title: "Tea", description: "", site: "", picture: null });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const apiUrl = `http://127.0.0.1:${server.address().port}`;
    const client = { http: new HttpClient({ apiUrl }) };
    const [page, none] = ["https://site.example/page", "https://site.example/none"];
    for (const url of [page, none, none]) assert.equal(await loadLinkPreview(client, url), null);
    isBusy = false;

    const found = await loadLinkPreview(client, page);
    await loadLinkPreview(client, page);

    assert.deepEqual(found, { title: "Tea", description: "", site: "site.example", picture: null });
    assert.deepEqual(asked, [page, none, page]);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
