// `useUpload` with an HTTP server that stands for the API and S3.

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";

import { render } from "./react/rendering.js";
import { StateClient } from "./react/state_client.js";

import { act } from "react";
import { HttpClient } from "tierchat";
import { useUpload, type Uploads } from "tierchat/react";

const REFUSED = "type: is not allowed";
let server: Server;
let url = "";
let held: (() => void) | null = null; // ends the wait of the next stored file
let isHolding = false;
const stored: string[] = [];

async function bodyOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

before(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? "";
    const answer = (status: number, body: unknown): void => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    void bodyOf(request).then(async (body) => {
      if (path.endsWith("/attachments")) {
        const { name } = JSON.parse(body) as { name: string };
        if (name === "bad.exe") {
          answer(400, { status: 400, code: "bad_request", detail: REFUSED, temporary: false });
        } else answer(200, { id: name, url: `${url}/s3`, fields: { key: name } });
      } else if (path === "/s3") {
        if (isHolding) await new Promise<void>((resolve) => (held = resolve));
        stored.push(body.includes("name=\"file\"") ? (/\r\n\r\n(\w+)/.exec(body)?.[1] ?? "") : "");
        answer(200, {});
      } else {
        const id = path.split("/")[3] ?? "";
        const attachment = { id, name: id, type: "text/plain", size: 4 };
        answer(200, { attachment, looked_at: true });
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
  isHolding = false;
  held = null;
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

/** Wait until requests have led to a state. */
async function until(isDone: () => boolean): Promise<void> {
  const endMs = Date.now() + 20_000;
  while (!isDone()) {
    if (Date.now() > endMs) throw new Error("the state is not reached");
    await act(async () => new Promise((resolve) => setTimeout(resolve, 5)));
  }
}

const file = (name: string): File => new File(["text"], name, { type: "text/plain" });

test("files are uploaded, and their attachments are returned once", async () => {
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("a.txt"), file("b.txt")]));
  assert.equal(uploads().isUploading, true);
  assert.deepEqual(uploads().popAttachments(), []);
  await until(() => !uploads().isUploading);

  for (const { share, error } of uploads().uploads) assert.deepEqual([share, error], [1, null]);
  let taken: string[] = [];
  await act(async () => {
    taken = uploads().popAttachments().map(({ id }) => id);
  });
  assert.deepEqual(taken.sort(), ["a.txt", "b.txt"]);
  assert.deepEqual(uploads().uploads, []);
  assert.deepEqual(stored.sort(), ["a", "b"]);
  await unmount();
});

test("a refused file has an error and can be tried again; others are not affected", async () => {
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("bad.exe"), file("good.txt")]));
  await until(() => !uploads().isUploading);

  const [bad, good] = uploads().uploads;
  assert.equal(bad?.error?.message, REFUSED);
  assert.equal(good?.attachment?.id, "good.txt");
  await act(async () => bad?.retry());
  assert.equal(uploads().uploads[0]?.error, null);
  await until(() => !uploads().isUploading);
  assert.equal(uploads().uploads[0]?.error?.message, REFUSED);
  await unmount();
});

test("removing an upload cancels it, and unmounting cancels the others", async () => {
  isHolding = true;
  const { uploads, unmount } = await open();
  await act(async () => uploads().add([file("slow.txt")]));
  await until(() => held !== null);
  await act(async () => uploads().uploads[0]?.remove());
  assert.deepEqual(uploads().uploads, []);
  held?.();
  await act(async () => uploads().add([file("later.txt")]));
  await until(() => uploads().uploads[0]?.share === 0 && held !== null);
  await unmount();
  held?.();
  assert.equal(uploads().uploads.every(({ attachment }) => attachment === null), true);
});

test("at most 20 files are uploaded", async () => {
  const { uploads, unmount } = await open();
  const names = Array.from({ length: 25 }, (_, index) => `n${index}.txt`);
  await act(async () => uploads().add(names.map(file)));
  assert.equal(uploads().uploads.length, 20);
  await until(() => !uploads().isUploading);
  assert.equal(stored.length, 20);
  await unmount();
});
