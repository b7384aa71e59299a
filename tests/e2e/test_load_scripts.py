"""`chatserver load run` with the example scripts, against real and faulty servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.load_command import run_load, run_stub
from tests.support.servers.processes import free_port
from tests.support.stack import Stack

EXAMPLES = Path(__file__).parents[2] / "docs/examples/load"
PAIRS = EXAMPLES / "pairs.py"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
async def test_example_script_finds_no_fault_in_the_server(
    stack: Stack, tmp_path: Path, script: Path
) -> None:
    """Each example is at most forty lines long and runs as its page says."""
    url = f"ws://127.0.0.1:{stack.port}/"
    # The checks of the examples have times that a busy machine may exceed.
    args = ["--duration", "6", "--max-failed-checks", "1000000"]

    async with run_load(tmp_path, url, "run", str(script), *args, secret=stack.secret) as run:
        code, result = await run.end()

    counts = result["counts"]
    assert code == 0, run.output
    assert len(script.read_text("utf-8").splitlines()) <= 40
    assert result["scenario"]["name"] == script.stem and result["scenario"]["about"]
    assert result["scenario"]["script"]["file"] == str(script)
    assert (counts["lost"], counts["duplicate"], counts["errors"]) == (0, 0, 0)
    assert counts["delivered"] >= counts["expected"] > 0
    assert counts["checks_passed"]
    assert run.report.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("fault", "kind", "verdict"),
    [("repeat", "duplicate", "duplicates: "), ("lose", "lost", "lost: ")],
)
async def test_example_script_finds_a_planted_fault(
    tmp_path: Path, fault: str, kind: str, verdict: str
) -> None:
    """A server that repeats or loses one message per user fails the load test."""
    async with (
        run_stub("--fault", fault, "--fault-seq", "3") as url,
        run_load(
            tmp_path, url, "run", str(PAIRS), "--users", "4", "--duration", "8", "--settle", "2"
        ) as run,
    ):
        code, result = await run.end()

    assert code == 1, run.output
    assert result["counts"][kind] > 0
    assert any(text.startswith(verdict) for text in result["verdict"]["broken"])
    assert f"BROKEN  {verdict}".encode() in run.output


async def test_script_with_an_error_exits_with_1_and_shows_the_traceback(tmp_path: Path) -> None:
    """The exceptions of all users are counted, the first one is shown, and the script may print."""
    script = tmp_path / "mine.py"
    script.write_text("async def user(user):\n    print('a user', flush=True)\n    {}['a']\n")

    async with (
        run_stub() as url,
        run_load(tmp_path, url, "run", str(script), "--users", "4", "--duration", "1") as run,
    ):
        code, result = await run.end()

    assert code == 1
    assert result["counts"]["errors"] >= 4
    assert f'File "{script}", line 3, in user'.encode() in run.output
    assert b"a user\n" in run.output
    assert b"KeyError: 'a'" in run.output and b"BROKEN  exceptions in users" in run.output


@pytest.mark.parametrize(
    ("text", "args", "message"),
    [
        ("async def user(user)\n    pass\n", (), b"mine.py:1: expected ':'"),
        ("x = 1\n", (), b"mine.py: no function `user`; add `async def user"),
        ("async def user(user):\n    pass\n", ("--users", "3"), b"--users: must be even"),
    ],
)
async def test_script_that_cannot_run_exits_with_2(
    tmp_path: Path, text: str, args: tuple[str, ...], message: bytes
) -> None:
    """The error names the file, the line and what to do; nothing is measured."""
    script = tmp_path / "mine.py"
    script.write_text(text)

    async with run_load(tmp_path, "ws://127.0.0.1:9/", "run", str(script), *args) as run:
        code, result = await run.end()

    assert code == 2
    assert message in run.output and b"Traceback" not in run.output
    assert result == {}


async def test_script_runs_on_several_machines(stack: Stack, tmp_path: Path) -> None:
    """A second machine joins with its own copy of the script; one report has the users of both."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "mine.py").write_bytes(PAIRS.read_bytes())
    address = f"127.0.0.1:{free_port()}"
    url = f"ws://127.0.0.1:{stack.port}/"
    args = ["--users", "8", "--duration", "5", "--max-failed-checks", "1000000"]
    args += ["--listen", address, "--remote-processes", "2"]
    joining = ["--join", address, "--processes", "2"]

    async with (
        run_load(first, url, "run", str(first / "mine.py"), *args, secret=stack.secret) as run,
        run_load(
            second, url, "run", str(second / "mine.py"), *joining, secret=stack.secret
        ) as joined,
    ):
        code, result = await run.end()
        joined_code, joined_result = await joined.end()

    assert (code, joined_code) == (0, 0), run.output + joined.output
    assert joined_result == {} and b"a process has joined" in joined.output
    assert (result["tool"]["processes"], result["tool"]["remote_processes"]) == (3, 2)
    assert result["scenario"]["chats"] == {"direct": 4}
    assert result["counts"]["delivered"] >= result["counts"]["expected"] > 0


async def test_machine_with_another_script_is_refused(tmp_path: Path) -> None:
    """Both machines must run the same script."""
    other = tmp_path / "other.py"
    other.write_text("async def user(user):\n    pass\n")
    address = f"127.0.0.1:{free_port()}"

    async with (
        run_stub() as url,
        run_load(
            tmp_path,
            url,
            *("run", str(PAIRS), "--listen", address, "--remote-processes", "1"),
        ) as waiting,
        run_load(tmp_path, url, "run", str(other), "--join", address) as joined,
    ):
        code, _ = await joined.end()
        assert waiting.process.returncode is None

    assert code == 2
    assert b"the scenarios or the contents of the scripts differ" in joined.output
