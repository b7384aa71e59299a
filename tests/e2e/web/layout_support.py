"""Messages of every kind, and the measurement of their rows in the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from playwright.async_api import Page

from chatserver.client import ChatClient
from chatserver.protocol.frames import Attachment
from tests.e2e.web.pages_support import SCHEMES, make_picture

WIDTHS: Final = (320, 390, 720, 1440)
HEIGHT: Final = 900
WORD = "longword" * 40
SENTENCES = "The train leaves at nine, and nobody has seen the tickets yet. " * 5
HEBREW = "שלום לכולם, הרכבת יוצאת בשעה תשע מהתחנה המרכזית בתל אביב. "
TEXTS: Final = {
    "short": "Ok",
    "long": SENTENCES,
    "shortened": SENTENCES * 12,
    "unbroken": WORD,
    "short link": "https://chat.example/a",
    "long link": f"See https://chat.example/{WORD}?q={WORD}",
    "inline code": f"Call `{WORD}` and then `short()`",
    "code": f"```js\nconst x = '{WORD}';\n```",
    "code of 60 columns": f"```\n{'0123456789' * 6}\n```",
    "code in text": f"Before\n```\n{WORD}\n```\nafter",
    "code in a list": f"- one\n- two\n  ```\n  {WORD}\n  ```",
    "quotation": f"> {SENTENCES}\n> {WORD}\n\nreally?",
    "list": f"1. {SENTENCES}\n2. {WORD}\n   - nested {WORD}",
    "formatted": f"**{WORD}** _{SENTENCES}_ ~~gone~~",
    "lines": "one\ntwo\nthree",
    "one emoji": "😂",
    "six emoji": "😂😮😢👍🎉🚂",
    "emoji in text": "That was fun 😂😮😢 indeed ❤️",
    "right to left": HEBREW * 4,
    "right to left, short": "שלום",
    "both directions": f"{HEBREW} The meeting is in room 4 {HEBREW}",
    "wide characters": "今天下午三点在车站见面。不要忘记带票。" * 6,
}
PICTURES: Final = {
    "landscape.png": (640, 400),
    "portrait.png": (300, 900),
    "panorama.png": (1600, 200),
    "small.png": (24, 24),
    "square-1.png": (300, 300),
    "square-2.png": (320, 320),
}
LONG_NAME = f"Minutes of the meeting about {'the new timetable ' * 3}, final-final.txt"
FILES: Final = {
    LONG_NAME: "text/plain",
    f"{WORD[:80]}.txt": "text/plain",
    "a.txt": "text/plain",
    "clip.webm": "video/webm",
    "voice-1795880117067-73s.webm": "audio/webm",
    f"Recording of {'the evening ' * 5}.webm": "audio/webm",
}
# The files and the text of messages with files.
ALBUMS: Final = (
    (("landscape.png",), ""),
    (("landscape.png",), SENTENCES),
    (("portrait.png",), SENTENCES),
    (("panorama.png",), "A view"),
    (("small.png",), SENTENCES),
    (("square-1.png", "square-2.png"), SENTENCES),
    (("landscape.png", "portrait.png", "panorama.png"), ""),
    (tuple(PICTURES), "Six"),
    ((*PICTURES, "clip.webm"), ""),
    (("clip.webm",), "A film"),
    (("voice-1795880117067-73s.webm",), ""),
    ((f"Recording of {'the evening ' * 5}.webm",), "With text"),
    ((LONG_NAME,), ""),
    ((f"{WORD[:80]}.txt",), SENTENCES),
    (("a.txt",), ""),
    (("a.txt", LONG_NAME, "landscape.png"), "Three"),
)
REACTIONS = "👍❤🎉😂😮😢🚂🍰🎈🌍"
# Scrolls from the end to the beginning. Returns the keys of the measured rows and the problems.
MEASURE = """async () => {
  const list = document.querySelector('[role="log"]');
  const bounds = list.getBoundingClientRect();
  const isOutside = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1;
  const clip = (a, b) => new DOMRect(
    Math.max(a.left, b.left), Math.max(a.top, b.top),
    Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)),
    Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)));
  const problems = [], seen = new Set();

  /** The visible part of a box; reports a text that is cut without an ellipsis. */
  const show = (box, element, row, report) => {
    for (let each = element; each !== row; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (style.visibility === "hidden" || style.clipPath !== "none") return null;
      if (style.overflowX === "visible") continue;
      const outer = each.getBoundingClientRect();
      const isScrolled = ["auto", "scroll"].includes(style.overflowX);
      const hasMark = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
      if (!isScrolled && !hasMark && isOutside(box, outer)) report("is cut");
      box = clip(box, outer);
    }
    return box.width > 0.5 && box.height > 0.5 ? box : null;
  };
  const measureRow = (row) => {
    const name = row.getAttribute("aria-label") ?? row.textContent;
    const label = `${row.dataset.key} ${name.slice(0, 60)}`;
    const texts = [];
    const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const range = document.createRange();
      range.selectNodeContents(node);
      const report = (what) =>
        problems.push(`${what}: "${node.data.slice(0, 30)}" in ${label}`);
      for (const line of range.getClientRects()) {
        const box = show(line, node.parentElement, row, report);
        if (box === null) continue;
        texts.push({ box, element: node.parentElement, text: node.data });
        if (isOutside(box, bounds)) report("leaves the list");
        const bubble = node.parentElement.closest("[data-first]");
        if (bubble !== null && isOutside(box, bubble.getBoundingClientRect())) {
          report("leaves its bubble");
        }
      }
    }
    for (const element of row.querySelectorAll("[data-first], button, img, input, figure, a")) {
      const box = show(element.getBoundingClientRect(), element, row, () => {});
      if (box !== null && isOutside(box, bounds)) {
        problems.push(`leaves the list: <${element.localName}> in ${label}`);
      }
      if (!["img", "input"].includes(element.localName) || box === null) continue;
      for (const each of texts) {
        if (element.closest("button")?.contains(each.element)) continue; // text on a picture
        const common = clip(box, each.box);
        if (common.width > 1 && common.height > 2) {
          problems.push(`<${element.localName}> covers "${each.text.slice(0, 30)}" in ${label}`);
        }
      }
    }
    texts.forEach((one, index) => {
      for (const other of texts.slice(index + 1)) {
        if (one.element === other.element) continue;
        const common = clip(one.box, other.box);
        if (common.width > 1 && common.height > 3) {
          problems.push(`"${one.text.slice(0, 30)}" and "${other.text.slice(0, 30)}" in ${label}`);
        }
      }
    });
  };
  const measure = () => {
    for (const row of list.querySelectorAll("[data-key]")) {
      if (seen.has(row.dataset.key) || row.getBoundingClientRect().height === 0) continue;
      seen.add(row.dataset.key);
      measureRow(row);
    }
    for (const row of list.querySelectorAll("[data-seq]")) seen.add(Number(row.dataset.seq));
  };
  const frame = () => new Promise(requestAnimationFrame);
  // A jump ends when all rows at its target have been measured.
  for (let still = 0, top = -1; still < 10; ) {
    await frame();
    still = list.scrollTop === top ? still + 1 : 0;
    top = list.scrollTop;
  }
  const isAtEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 2;
  for (let tries = 0; tries < 200 && !isAtEnd(); tries += 1) {
    list.scrollTop = list.scrollHeight;
    await frame();
  }
  for (let still = 0; still < 8; ) {
    await frame();
    measure();
    const before = list.scrollTop;
    list.scrollTop -= list.clientHeight / 2;
    still = before === list.scrollTop ? still + 1 : 0;
  }
  if (list.scrollWidth > list.clientWidth) problems.push("the list scrolls sideways");
  return { seqs: [...seen].filter(Number.isInteger), problems };
}"""
# Returns what the hover tools of a message cover, and whether they leave the list; null: no tools.
MEASURE_TOOLS = """() => {
  const list = document.querySelector('[role="log"]');
  const bounds = list.getBoundingClientRect();
  const buttons = [...list.querySelectorAll('[aria-haspopup="menu"], [aria-haspopup="dialog"]')];
  const tools = buttons.find((each) => each.checkVisibility())?.parentElement;
  if (tools === undefined) return null;
  const box = tools.getBoundingClientRect();
  const problems = [];
  if (box.left < bounds.left - 1 || box.right > bounds.right + 1) problems.push("leave the list");
  for (const bubble of list.querySelectorAll("[data-first]")) {
    const other = bubble.getBoundingClientRect();
    const width = Math.min(box.right, other.right) - Math.max(box.left, other.left);
    const height = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
    if (width > 1 && height > 3) problems.push(`cover ${bubble.textContent.slice(0, 40)}`);
  }
  return problems;
}"""


async def measure_everywhere(page: Page) -> tuple[set[int], list[str]]:
    """Measure all rows in each width and scheme; return the seqs of all rows, and the problems."""
    seqs: set[int] | None = None
    problems: list[str] = []
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": HEIGHT})
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found: dict[str, Any] = await page.evaluate(MEASURE)
            measured = set(found["seqs"])
            seqs = measured if seqs is None else seqs & measured
            problems += [f"{width} px, {scheme}: {problem}" for problem in found["problems"]]
    return seqs or set(), problems


async def send_every_kind(sender: ChatClient, chat: str, video: bytes, link: str) -> dict[str, int]:
    """Send messages of every kind as one user; return their seqs by name."""
    seqs: dict[str, int] = {}

    async def send(
        name: str, text: str, files: Sequence[Attachment] = (), target: str | None = None
    ) -> int:
        reply_to = None if target is None else seqs[target]
        sent = await sender.send(chat, text, attachments=files, reply_to=reply_to)
        seqs[name] = sent.seq
        return sent.seq

    for name, text in TEXTS.items():
        await send(name, text)
    await send("preview", f"Read {link}")
    await send("mention", f"Ask @{sender.user} about it")
    contents = {name: make_picture("teal", size) for name, size in PICTURES.items()}
    contents |= {name: video if "webm" in name else b"some notes" for name in FILES}
    files = {
        name: await sender.upload(chat, content, name=name, type=FILES.get(name, "image/png"))
        for name, content in contents.items()
    }
    for number, (names, text) in enumerate(ALBUMS):
        await send(f"album {number}", text, [files[name] for name in names])
    for target in ("long", "unbroken", "code", "album 0", "album 12"):
        await send(f"reply to {target}", "Yes", target=target)
    await send("long reply", SENTENCES, target="short")
    await sender.edit(chat, await send("edited", "Before"), f"{SENTENCES} {WORD}")
    await sender.edit(chat, await send("edited, short", "Befor"), "After")
    await sender.delete(chat, await send("deleted", "Oops"))
    return seqs
