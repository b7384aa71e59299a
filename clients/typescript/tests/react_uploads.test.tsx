// `useUpload` with an HTTP server that fakes the API and S3.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { act } from "react";
import { HttpClient } from "tierchat";
import { type Uploads, useUpload } from "tierchat/react";
import { render } from "./react/rendering.js";
import { StateClient } from "./react/state_client.js";

const REFUSED = "type: is not allowed";
let server: Server;
let url = "";
let resume: (() => void) | null = null; // completes the upload that waits
let isPaused = false;
const stored: string[] = [];

async function readBody(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

before(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? "";
    const respond = (status: number, body: unknown): void => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    void readBody(request).then(async (body) => {
      if (path.endsWith("/attachments")) {
        const { name } = JSON.parse(body) as { name: string };
        if (name === "bad.exe") {
          respond(400, { status: 400, code: "bad_request", detail: REFUSED, temporary: false });
        } else respond(200, { id: name, url: `${url}/s3`, fields: { key: name } });
      } else if (path === "/s3") {
        if (isPaused) await new Promise<void>((resolve) => (resume = resolve));
        stored.push(body.includes('name="file"') ? (/\r\n\r\n(\w+)/.exec(body)?.[1] ?? "") : "");
        respond(200, {});
      } else {
        const id = path.split("/")[3] ?? "";
        const attachment = { id, name: id, type: "text/plain", size: 4 };
        respond(200, { attachment, looked_at: true });
      }
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

beforeEach(() => {
  stored.length = 0;
  isPaused = false;
  resume = null;
});

/** Render a component with uploads; return its uploads. */
async function open(): Promise<{ uploads: () => Uploads; unmount: () => Promise<void> }> {
  const client = new StateClient();
  client.http = new HttpClient({ apiUrl: url, getToken: () => "token" });
  client.connect();
  let current: Uploads | null = null;
  function Files() {
    current = useUpload("g1");
    return null;
  }
  const { unmount } = await render(client, <Files />);
  return { uploads: () => current as unknown as Uploads, unmount };
}

/** Wait until `isDone` returns true. */
async function waitUntil(isDone: () => boolean): Promise<void> {
  const deadlineMs = Date.now() + 20_000;
  while (!isDone()) {
    if (Date.now() > deadlineMs) throw new Error("timeout while waiting for an upload");
    await act(async () => new Promise((resolve) => setTimeout(resolve, 5)));
  }
}

const file = (name: string): File => new File(["text"], name, { type: "text/plain" });

test("files are uploaded, and their attachments are returned once", async () => {
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("a.txt"), file("b.txt")]));
  assert.equal(uploads().isUploading, true);
  assert.deepEqual(uploads().popAttachments(), []);
  await waitUntil(() => !uploads().isUploading);

  for (const { share, error } of uploads().uploads) assert.deepEqual([share, error], [1, null]);
  let attachments: string[] = [];
  await act(async () => {
    attachments = uploads()
      .popAttachments()
      .map(({ id }) => id);
  });
  assert.deepEqual(attachments.sort(), ["a.txt", "b.txt"]);
  assert.deepEqual(uploads().uploads, []);
  assert.deepEqual(stored.sort(), ["a", "b"]);
  await unmount();
});

test("a refused file has an error and can be tried again; others are not affected", async () => {
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("bad.exe"), file("good.txt")]));
  await waitUntil(() => !uploads().isUploading);

  const [bad, good] = uploads().uploads;
  assert.equal(bad?.error?.message, REFUSED);
  assert.equal(good?.attachment?.id, "good.txt");
  await act(async () => bad?.retry());
  assert.equal(uploads().uploads[0]?.error, null);
  await waitUntil(() => !uploads().isUploading);
  assert.equal(uploads().uploads[0]?.error?.message, REFUSED);
  await unmount();
});

test("removing an upload cancels it, and unmounting cancels the others", async () => {
  isPaused = true;
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("slow.txt")]));
  await waitUntil(() => resume !== null);
  await act(async () => uploads().uploads[0]?.remove());
  assert.deepEqual(uploads().uploads, []);
  resume?.();
  await act(async () => uploads().add([file("later.txt")]));
  await waitUntil(() => uploads().uploads[0]?.share === 0 && resume !== null);
  await unmount();
  resume?.();
  assert.equal(
    uploads().uploads.every(({ attachment }) => attachment === null),
    true,
  );
});

test("at most 20 files are uploaded", async () => {
  const { uploads, unmount } = await open();
  const names = Array.from({ length: 25 }, (_, index) => `n${index}.txt`);
  await act(async () => uploads().add(names.map(file)));
  assert.equal(uploads().uploads.length, 20);
  await waitUntil(() => !uploads().isUploading);
  assert.equal(stored.length, 20);
  await unmount();
});
