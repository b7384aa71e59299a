"""Child processes of `chatserver dev`: output, readiness and exit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from chatserver.dev.child import LINE_BYTES_MAX, TAIL_LINES, Child, ChildFailed
from chatserver.dev.servers import Launch
from tests.support.servers.processes import eventually, is_running

Make = Callable[..., Child]


@pytest.fixture
def lines() -> list[str]:
    """Output lines of the test's child processes."""
    return []


@pytest.fixture
async def make(tmp_path: Path, lines: list[str]) -> AsyncIterator[Make]:
    """Return a function that starts children with a shell script; kill them at the end."""
    made: list[Child] = []

    def make_child(script: str, ready_line: str = "", stop_s: float = 5.0) -> Child:
        launch = Launch(
            "child",
            ["sh", "-c", script],
            0,
            tmp_path / "folder",
            lambda: True,
            ready_line=ready_line,
            stop_s=stop_s,
        )
        made.append(Child(launch, lambda name, text: lines.append(f"{name}: {text}")))
        return made[-1]

    yield make_child
    for child in made:
        child.kill()
        await child.stop()


async def test_lines_of_a_child_are_prefixed_with_its_name(make: Make, lines: list[str]) -> None:
    """Stdout and stderr are read, also a last line without a newline; empty lines are skipped."""
    child = make("echo one; echo; echo two >&2; printf three")
    await child.start()

    assert await child.wait_ended() == 0

    assert lines == ["child: one", "child: two", "child: three"]


async def test_line_longer_than_the_limit_is_split(make: Make, lines: list[str]) -> None:
    """A child that never ends a line uses bounded memory."""
    child = make(f"head -c {LINE_BYTES_MAX * 10} /dev/zero | tr '\\0' x")
    await child.start()

    await child.wait_ended()

    assert len(lines) >= 2
    assert max(map(len, lines)) <= LINE_BYTES_MAX + len("child: ")


async def test_tail_keeps_the_last_lines_only(make: Make) -> None:
    """The number of kept lines is limited, however many the child prints."""
    child = make("seq 1000")
    await child.start()

    await child.wait_ended()

    assert list(child.tail) == [str(number) for number in range(1001 - TAIL_LINES, 1001)]


async def test_invalid_utf8_is_shown_as_replacement_character(make: Make, lines: list[str]) -> None:
    """Invalid bytes do not stop the reader."""
    child = make("printf 'a\\377b\\n'")
    await child.start()

    await child.wait_ended()

    assert lines == ["child: a\N{REPLACEMENT CHARACTER}b"]


async def test_child_is_ready_after_its_ready_line(make: Make, lines: list[str]) -> None:
    """A process without a port prints a line when it is ready."""
    child = make("echo starting; echo all.ready now; sleep 60", ready_line="all.ready")
    await child.start()

    await child.wait_ready(60)

    assert "child: all.ready now" in lines


async def test_child_that_exits_while_starting_fails_with_its_exit_code(make: Make) -> None:
    """The failure is reported at once and not at the deadline."""
    child = make("echo no good; exit 3", ready_line="never")
    await child.start()

    with pytest.raises(ChildFailed, match="child ended with 3 while starting"):
        await child.wait_ready(60)

    assert list(child.tail) == ["no good"]


async def test_child_not_ready_at_the_deadline_fails(make: Make) -> None:
    """`wait_ready` fails after its timeout."""
    child = make("sleep 60", ready_line="never")
    await child.start()

    with pytest.raises(ChildFailed, match=r"was not ready within 0\.2 s"):
        await child.wait_ready(0.2)


async def test_child_that_ignores_sigterm_is_killed_and_reported(
    make: Make, lines: list[str]
) -> None:
    """Ctrl-C does not wait forever."""
    child = make("trap '' TERM; echo up; while :; do sleep 1; done", "up", stop_s=0.2)
    await child.start()
    await child.wait_ready(60)

    await child.stop()

    assert await child.wait_ended() == -9
    assert "dev: child did not stop within 0.2 s; killed" in lines


async def test_grandchild_ends_with_its_parent(make: Make, lines: list[str]) -> None:
    """A process that the child started ends with the child."""
    child = make("sleep 60 & echo $!; kill -9 $$")
    await child.start()

    await child.wait_ended()

    grandchild = int(lines[0].removeprefix("child: "))
    await eventually(lambda: not is_running(grandchild), what="the grandchild has exited")


async def test_child_restarted_has_a_new_tail_and_reports_readiness_again(make: Make) -> None:
    """Output of the previous run is neither in the tail nor used as the ready line."""
    child = make("echo $$ is up; exec sleep 60", ready_line="is up")
    await child.start()
    await child.wait_ready(60)
    first = list(child.tail)
    child.kill()
    await child.wait_ended()

    await child.start()
    await child.wait_ready(60)

    assert len(child.tail) == 1
    assert list(child.tail) != first
