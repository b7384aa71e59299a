"""The steps of the README, and a `make run` on separate ports.

The tests follow the text of the README: its commands are run unchanged, in a folder like a
checkout, and tests click only on labels that it has in **bold**.
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
    """The text of a step of the README's first hour, or of a section."""

    text: str

    def bold(self, label: str) -> str:
        """Check that the step has this label in bold, and return it."""
        assert f"**{label}**" in " ".join(self.text.split()), f"the README does not have {label!r}"
        return label

    def code(self, text: str) -> str:
        """Check that the step has this text as code, and return it."""
        assert f"`{text}`" in " ".join(self.text.split()), f"the README does not have {text!r}"
        return text

    @property
    def commands(self) -> list[str]:
        return re.findall(r"^```(?:sh)?\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


def section(heading: str) -> Step:
    """Return the text below a heading of the README."""
    _, found, rest = README.partition(f"\n## {heading}\n")
    assert found, f"the README has no section {heading}"
    return Step(re.split(r"\n## ", rest)[0])


def first_hour_step(title: str) -> Step:
    """Return the step of the first hour with this title."""
    steps = re.split(r"^\*\*\d+\. ", section("The first hour").text, flags=re.MULTILINE)[1:]
    (found,) = [step for step in steps if step.startswith(f"{title}.**")]
    return Step(found)


class MakeRun(DevRun):
    """A run of the README's first command. `home` is the folder of the other commands.

    Nothing is downloaded: make uses the environment of the tests, and `.dev` and `.venv/bin` in
    `home` refer to the data of the run and to the programs of that environment.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home / ".dev")
        self.home = home
        (home / ".venv").mkdir(parents=True)
        (home / ".venv" / "bin").symlink_to(Path(sys.executable).parent)

    def command(self, *options: str) -> list[str]:
        """Return the README's first command with the paths of the test."""
        first, *_ = section("Two people chatting in sixty seconds").commands
        make, *goals = shlex.split(first)
        assert (make, goals) == ("make", ["run"])
        unchanged = ["--old-file=.venv/.ready", "--old-file=.tools/.ready"]  # not rebuilt
        arguments = shlex.join([*self.flags, *options])
        return [
            make,
            f"--directory={ROOT}",
            *unchanged,
            *goals,
            f"BIN={self.home}/.venv/bin",
            f"ARGS={arguments}",
        ]

    @property
    def pid(self) -> int:
        """The process id of `chatserver dev`, which is a child process of make."""
        (dev,) = psutil.Process(super().pid).children()
        return dev.pid

    def press_ctrl_c(self, deadline_s: float = DEADLINE_S) -> None:
        """Send SIGINT to the process group, like a terminal."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(deadline_s)

    def find_process(self, pattern: str) -> list[int]:
        """Return the process ids in the output lines that match a pattern, in order."""
        return [int(number) for number in re.findall(rf"{pattern}, process (\d+)", self.text())]

    async def shell(self, commands: str) -> str:
        """Run commands of the README in a shell; return their output."""
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
