// Attachments of a message: thumbnails, or the file name. Only thumbnails made by the server are
// displayed; everything else is downloaded.

import { fileSize } from "../format.js";
import { h, icon, setText } from "./dom.js";

const WIDTH_MAX = 320; // px of a thumbnail in the timeline
const HEIGHT_MAX = 260;

/**
 * The elements for `attachments` of a row. `link(id, isThumb)` returns URLs; `late(file)` returns an
 * image's metadata with its thumbnail if that was made after the message was sent, else null.
 */
export function fileNodes(attachments, link, late) {
  return attachments.map((file) => {
    if (file.thumb) return pictureNode(file, link);
    const node = plainNode(file, link);
    late(file).then((found) => found !== null && node.replaceWith(pictureNode(found, link)));
    return node;
  });
}

function pictureNode(file, link) {
  const image = h("img", {
    class: "file-picture",
    alt: file.name,
    ...fitted(file),
    decoding: "async",
    draggable: "false",
  });
  const trouble = h("span", { class: "file-trouble", role: "status" });
  const element = saveButton("file-thumb", file, link, trouble, image);
  link(file.id, true)
    .then((url) => (image.src = url))
    .catch(() => element.classList.add("is-missing"));
  image.addEventListener("error", () => element.classList.add("is-missing"), { once: true });
  return h("div", { class: "file" }, element, trouble);
}

function plainNode(file, link) {
  const trouble = h("span", { class: "file-trouble", role: "status" });
  const about = h(
    "span",
    { class: "file-about" },
    h("bdi", { class: "file-name" }, file.name),
    h("span", { class: "file-size" }, fileSize(file.size)),
  );
  return h("div", { class: "file" }, saveButton("file-plain", file, link, trouble, icon("file"), about), trouble);
}

function saveButton(kind, file, link, trouble, ...children) {
  const save = async () => {
    setText(trouble, "");
    try {
      const url = await link(file.id, false);
      const anchor = h("a", { href: url, download: file.name, rel: "noopener noreferrer" });
      document.body.append(anchor);
      anchor.click(); // S3 sends a download, so the page stays
      anchor.remove();
    } catch (problem) {
      setText(trouble, problem.message);
    }
  };
  const label = `Download ${file.name}, ${fileSize(file.size)}`;
  return h(
    "button",
    { type: "button", class: kind, title: label, aria: { label }, on: { click: save } },
    ...children,
  );
}

/** The size in the timeline, known before the image loads, so that nothing shifts. */
function fitted({ width = WIDTH_MAX, height = HEIGHT_MAX }) {
  const scale = Math.min(1, WIDTH_MAX / width, HEIGHT_MAX / height);
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
}
