"""Parses the project's documents: code, links and headings.

Supports only the Markdown that these documents use: fences of backticks, inline code in single
backticks, inline links.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
# The documents of the clients and of dependencies are not checked here.
_PATHS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "deploy")
_FENCE = re.compile(r"^(```+)[ ]*(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_INDENTED = re.compile(r"^ {4}\$ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """One Markdown file. `blocks` are its code blocks, `prose` is the rest."""

    path: Path
    blocks: tuple[tuple[str, str], ...]
    prose: str

    @property
    def name(self) -> str:
        """Return the path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def inline(self) -> list[str]:
        """Return all inline code, with line ends as spaces."""
        return [" ".join(code.split()) for code in _CODE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        """Return the targets of links and images, without web addresses."""
        found = _LINK.findall(_CODE.sub("", self.prose))
        return [link for link in found if not re.match(r"[a-z]+:", link)]

    @property
    def anchors(self) -> set[str]:
        """Return the anchors of headings, as GitHub creates them."""
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
        return "\n".join([self.prose, *(text for kind, text in self.blocks if kind != language)])

    def shell_lines(self) -> Iterator[str]:
        """Yield each command line of the code blocks: continuations joined, prompts removed."""
        for language, text in self.blocks:
            if language in ("", "sh", "bash", "console"):
                for line in text.replace("\\\n", " ").splitlines():
                    yield line.strip().removeprefix("$ ")
        yield from _INDENTED.findall(self.prose)


def read_document(path: Path) -> Document:
    """Parse a file."""
    text = path.read_text(encoding="utf-8")
    blocks = tuple((language, body) for _, language, body in _FENCE.findall(text))
    return Document(path, blocks, _FENCE.sub("", text))


@functools.cache
def documents() -> tuple[Document, ...]:
    """Return all documents of the project."""
    paths: list[Path] = []
    for name in _PATHS:
        path = ROOT / name
        paths += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return tuple(read_document(path) for path in paths if "node_modules" not in path.parts)
