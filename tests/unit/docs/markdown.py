"""What readers of the documents see: code, links, headings, taken out of Markdown.

Enough of Markdown for our own documents, no more: fences of backticks, inline code of single
backticks, inline links.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The web client's and other people's pages are not ours to check.
_PLACES = ("README.md", "SECURITY.md", "CHANGELOG.md", "docs", "deploy")
_FENCE = re.compile(r"^(```+)[ ]*(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_INDENTED = re.compile(r"^ {4}\$ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """One Markdown file. `blocks` are its fences, `prose` is what is outside of them."""

    path: Path
    blocks: tuple[tuple[str, str], ...]
    prose: str

    @property
    def name(self) -> str:
        """The path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def inline(self) -> list[str]:
        """All inline code, with line ends as spaces."""
        return [" ".join(code.split()) for code in _CODE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        """Where links and pictures lead, but for addresses of the web."""
        found = _LINK.findall(_CODE.sub("", self.prose))
        return [link for link in found if not re.match(r"[a-z]+:", link)]

    @property
    def anchors(self) -> set[str]:
        """Anchors of headings, as GitHub creates them."""
        found: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            anchor = base = re.sub(r"[^\w -]", "", plain).replace(" ", "-")
            number = 0
            while anchor in found:
                number += 1
                anchor = f"{base}-{number}"
            found.add(anchor)
        return found

    def text_without(self, language: str) -> str:
        """Return everything but the blocks of a language."""
        return "\n".join([self.prose, *(text for of, text in self.blocks if of != language)])

    def lines_of_shell(self) -> Iterator[str]:
        """Yield each command line of the blocks, continued lines joined, without prompts."""
        for language, text in self.blocks:
            if language in ("", "sh", "bash", "console"):
                for line in text.replace("\\\n", " ").splitlines():
                    yield line.strip().removeprefix("$ ")
        yield from _INDENTED.findall(self.prose)


def read_document(path: Path) -> Document:
    """Split a file into its parts."""
    text = path.read_text(encoding="utf-8")
    blocks = tuple((language, body) for _, language, body in _FENCE.findall(text))
    return Document(path, blocks, _FENCE.sub("", text))


@functools.cache
def documents() -> tuple[Document, ...]:
    """Return all documents of the project."""
    paths: list[Path] = []
    for place in _PLACES:
        found = ROOT / place
        paths += sorted(found.rglob("*.md")) if found.is_dir() else [found]
    return tuple(read_document(path) for path in paths if "node_modules" not in path.parts)
