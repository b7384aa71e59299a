"""Line editor for the terminal client: keys in, text and cursor out. Pure; no terminal I/O."""

from __future__ import annotations

import enum
import re

CHARS_MAX = 4_000  # the maximum message length

_KEYS = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z]|)|[\s\S]")
_BEGUN = re.compile(r"\x1b(?:\[[0-9;]*|O)?\Z")
_LEFT, _RIGHT = ("\x1b[D", "\x1bOD", "\x02"), ("\x1b[C", "\x1bOC", "\x06")
_HOME = ("\x1b[H", "\x1bOH", "\x1b[1~", "\x01")
_END = ("\x1b[F", "\x1bOF", "\x1b[4~", "\x05")
_BACKSPACE, _DELETE = ("\x7f", "\x08"), ("\x1b[3~",)
_ENTER = ("\r", "\n")


class Key(enum.Enum):
    """A command key that does not edit the line."""

    QUIT = "quit"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"


_COMMANDS = {
    "\x03": Key.QUIT,
    "\x04": Key.QUIT,
    "\x1b[5~": Key.PAGE_UP,
    "\x1b[6~": Key.PAGE_DOWN,
}


class LineEditor:
    """The line being edited. `cursor` is an index into `text`."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._begun = ""

    def feed(self, keys: str) -> list[str | Key]:
        """Process typed characters; return finished lines and commands, in order."""
        happened: list[str | Key] = []
        # A multi-character key may arrive in pieces; Escape alone has no meaning here.
        keys = self._begun + keys
        begun = _BEGUN.search(keys[-16:])
        self._begun = begun[0] if begun else ""
        keys = keys.removesuffix(self._begun) if self._begun else keys
        for key in _KEYS.findall(keys):
            if key in _ENTER:
                line, self.text, self.cursor = self.text, "", 0
                if line.strip():
                    happened.append(line)
            elif key in _COMMANDS:
                happened.append(_COMMANDS[key])
            else:
                self._edit(key)
        return happened

    def _edit(self, key: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        if key in _LEFT:
            self.cursor = max(0, self.cursor - 1)
        elif key in _RIGHT:
            self.cursor = min(len(self.text), self.cursor + 1)
        elif key in _HOME:
            self.cursor = 0
        elif key in _END:
            self.cursor = len(self.text)
        elif key in _BACKSPACE:
            self._set(before[:-1], after)
        elif key in _DELETE:
            self._set(before, after[1:])
        elif key == "\x15":  # Ctrl-U: all before the cursor
            self._set("", after)
        elif key == "\x0b":  # Ctrl-K: all after it
            self._set(before, "")
        elif key == "\x17":  # Ctrl-W: the word before it
            self._set(re.sub(r"\S*\s*$", "", before), after)
        elif key == "\t" or key.isprintable():
            self._set((before + key)[: CHARS_MAX - len(after)], after)

    def _set(self, before: str, after: str) -> None:
        self.text, self.cursor = before + after, len(before)
