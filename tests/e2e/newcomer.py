"""The README, step by step, and a `make run` of it on ports of its own.

What a test does is taken from what the README says: its commands are run as they stand, in a folder
that looks like a checkout, and only what it has in **bold** is clicked on or waited for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import psutil

from tests.support.devrun import DEADLINE_S, DevRun

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND_S = 90.0


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A step of the README's first hour, or a section: what is written there."""

    text: str

    def bold(self, label: str) -> str:
        """Return the label of a README step's link or button; the step has to name it."""
        assert f"**{label}**" in " ".join(self.text.split()), f"the README does not name {label!r}"
        return label

    def code(self, words: str) -> str:
        """Return words that the step quotes as code."""
        assert f"`{words}`" in " ".join(self.text.split()), f"the README does not quote {words!r}"
        return words

    @property
    def commands(self) -> list[str]:
        """The blocks of commands, in their order."""
        return re.findall(r"^```(?:sh)?\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


def section(heading: str) -> Step:
    """Return what is below a heading of the README."""
    _, found, rest = README.partition(f"\n## {heading}\n")
    assert found, f"the README has no section {heading}"
    return Step(re.split(r"\n## ", rest)[0])


def step_of_the_hour(title: str) -> Step:
    """Return a step by the words with which it begins."""
    steps = re.split(r"^\*\*\d+\. ", section("The first hour").text, flags=re.MULTILINE)[1:]
    (found,) = [step for step in steps if step.startswith(f"{title}.**")]
    return Step(found)


class MakeRun(DevRun):
    """A run of the README's first command. `home` is where its other commands are run.

    Nothing is fetched for it: the environment that the tests run in is the one that make would
    have made, and `.dev` and `.venv/bin` of `home` lead to our data and to its programs.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home / ".dev")
        self.home = home
        (home / ".venv").mkdir(parents=True)
        (home / ".venv" / "bin").symlink_to(Path(sys.executable).parent)

    def command(self, *options: str) -> list[str]:
        """Return the README's first command, with the paths of the test."""
        first, *_ = section("Two people chatting in sixty seconds").commands
        make, *goals = shlex.split(first)
        assert (make, goals) == ("make", ["run"])
        made = ["--old-file=.venv/.ready", "--old-file=.tools/.ready"]  # so they are not made anew
        arguments = shlex.join([*self.flags, *options])
        return [
            make,
            f"--directory={ROOT}",
            *made,
            *goals,
            f"BIN={self.home}/.venv/bin",
            f"ARGS={arguments}",
        ]

    @property
    def pid(self) -> int:
        """The process of `chatserver dev` itself, which make waits for."""
        (dev,) = psutil.Process(super().pid).children()
        return dev.pid

    def press_ctrl_c(self, deadline_s: float = DEADLINE_S) -> None:
        """Do what a terminal does then: everybody in it gets the signal."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(deadline_s)

    def find_process(self, pattern: str) -> list[int]:
        """Return the numbers of processes that it has printed in lines of a kind, in order."""
        return [int(number) for number in re.findall(rf"{pattern}, process (\d+)", self.text())]

    async def shell(self, commands: str) -> str:
        """Run lines of the README as one types them, and return all that they print."""
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-euc",
            commands,
            cwd=self.home,
            env={name: value for name, value in os.environ.items() if not name.startswith("CHAT_")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
        except TimeoutError:
            process.kill()
            raise AssertionError(f"{commands!r} took more than {COMMAND_S:g} s") from None
        assert process.returncode == 0, output.decode()
        return output.decode()
