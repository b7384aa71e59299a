"""`chatserver dev` end to end: start, service, crashes, shutdown and stored data."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from chatserver.client import ChatClient
from chatserver.compiled import PURE_PYTHON
from chatserver.dev.servers import is_http_ready
from tests.support.deadlines import wait_for_pid
from tests.support.devrun import DEADLINE_S, DevRun, TerminalChat, dev_run
from tests.support.servers.processes import eventually

ROOT = Path(__file__).parents[2]
BUILD_S = 200.0  # at the lowest priority


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[DevRun]:
    """A run that the test starts."""
    with dev_run(tmp_path / "data") as run:
        yield run


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevRun]:
    """A run shared by the tests that do not change its state."""
    with dev_run(tmp_path_factory.mktemp("dev") / "data") as run:
        yield run.start()


async def test_dev_serves_page_login_and_chat(shared: DevRun, tmp_path: Path) -> None:
    """One command starts everything: two users chat and send files, and messages are stored."""
    dev = shared
    (tmp_path / "notes.txt").write_text("some notes")

    assert dev.page_url in dev.text()
    assert is_http_ready(dev.ports[0], "/healthz") and is_http_ready(dev.ports[1], "/healthz")
    assert b"<!doctype html>" in dev.get("/")[1].lower()
    config = dev.get("/v1/client-config")[1]
    assert config["gateway_url"] == dev.gateway_url
    assert config["demo_users"] == ["alice", "bob", "carol"]
    async with TerminalChat(dev, "alice", "bob") as alice:
        alice.send_line("Hello Bob")
        await alice.wait_for_line("(stored)")
        async with TerminalChat(dev, "bob", "alice") as bob:
            await bob.wait_for_line("alice: Hello Bob")
            bob.send_line("Hello Alice")
            await alice.wait_for_line("bob: Hello Alice")
            await bob.wait_for_line("(read)")
            alice.send_line(f"/file {tmp_path / 'notes.txt'}")
            await bob.wait_for_line("alice: [notes.txt, 10 bytes]")


async def test_dev_has_a_companion_that_answers(shared: DevRun) -> None:
    """Without a model or an account, the companion repeats the message."""
    _, login = shared.get("/v1/dev/login", {"user": "carol"})

    async with ChatClient(shared.gateway_url, login["token"], device="d") as carol:
        (companion,) = (await carol.companions()).companions
        chat = await carol.create_session(companion.id)
        await carol.send(chat.id, "one two three")

        def find_answer() -> list[str]:
            found = carol.messages(chat.id)
            return [each.body for each in found if each.sender == companion.id]

        await eventually(find_answer, what="it has answered")
        assert find_answer() == ["You said: one two three"]


def test_dev_with_closed_terminal_stops_all_processes(dev: DevRun) -> None:
    """No process remains and no port is in use, also with two gateways."""
    dev.start("--gateways", "2")
    assert len(dev.children) == 8

    code = dev.end(signal.SIGHUP)

    assert code == 0, dev.text()
    assert dev.leftovers() == []
    assert "killed" not in dev.text()


def test_dev_interrupted_while_starting_leaves_no_process(dev: DevRun) -> None:
    """Ctrl-C also works during startup."""
    dev.spawn()
    process = psutil.Process(dev.pid)
    while not process.children():
        assert dev.process is not None and dev.process.poll() is None, dev.text()
    dev.children = process.children(recursive=True)

    assert dev.end() == 0, dev.text()

    assert dev.leftovers() == []


def test_dev_killed_leaves_no_orphan(dev: DevRun) -> None:
    """After `kill -9` of `chatserver dev`, all child processes end."""
    dev.start()

    dev.end(signal.SIGKILL)

    assert dev.leftovers() == []


def test_dev_with_killed_parent_stops_all_processes(tmp_path: Path) -> None:
    """After `kill -9` of make, all processes end."""
    with dev_run(tmp_path / "data") as dev:
        reader, writer = os.pipe()
        parent = os.fork()
        if parent == 0:  # in place of make
            os.close(reader)
            dev.spawn("--stop-with-parent")
            os.write(writer, str(dev.pid).encode())
            signal.pause()
        os.close(writer)
        pid = int(os.read(reader, 20))
        os.close(reader)
        run = psutil.Process(pid)
        while "redis is ready" not in dev.text():
            assert run.is_running(), dev.text()
        dev.children = [run, *run.children(recursive=True)]

        os.kill(parent, signal.SIGKILL)
        wait_for_pid(parent)

        assert dev.leftovers() == []


async def test_dev_compiles_the_send_path_for_the_next_start(dev: DevRun) -> None:
    """Nobody waits for it: the first run serves from the sources, and reports which build it is."""
    dev.sources = copy_product(dev.folder.parent / "copy")
    option = ("--compile-with", "deploy/build_hook.py")
    compiled = {PURE_PYTHON: "0"}

    dev.start(*option, env=compiled)
    await eventually(lambda: "use it" in dev.text(), BUILD_S, "the build has ended")
    first = dev.text()
    assert dev.end() == 0, dev.text()
    dev.start(*option, env=compiled)
    second = dev.text()
    assert dev.end() == 0, dev.text()

    assert first.index("chatserver is running") < first.index("compiling 1 modules")
    for text, build in ((first, "pure Python"), (second, "compiled")):
        assert re.search(rf"chatserver \S+, {build}$", text, re.MULTILINE), text
        assert re.search(rf"gateway\.ready .*build='?{build}\b", text), text
    assert "compiling" not in second
    assert dev.leftovers() == []


def copy_product(target: Path) -> Path:
    """Copy what `make run` needs of a checkout, with one module to compile."""
    ignored = shutil.ignore_patterns("*.so", "manifest.json", "web_client")
    for folder in ("chatserver", "workers"):
        shutil.copytree(ROOT / folder, target / folder, ignore=ignored)
    (target / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "build_hook.py", target / "deploy")
    modules = 'modules = ["chatserver/domain/ids.py"]\n'
    section = "[tool.hatch.build.targets.wheel.hooks.custom]\n"
    (target / "pyproject.toml").write_text(section + modules)
    (target / ".tools").symlink_to(ROOT / ".tools")
    return target


async def test_dev_restarted_has_the_same_messages_and_logins(dev: DevRun) -> None:
    """Data and secret remain after Ctrl-C; `--fresh` deletes them."""
    dev.start()
    assert len(dev.children) == 6
    async with TerminalChat(dev, "alice", "bob") as alice:
        alice.send_line("remember this")
        await alice.wait_for_line("alice: remember this")
    secret = (dev.folder / "auth-secret").read_text()
    assert dev.end() == 0, dev.text()
    assert dev.leftovers() == []
    assert "killed" not in dev.text()

    with dev_run(dev.folder, dev.ports) as again:
        again.start()
        async with TerminalChat(again, "bob", "alice") as bob:
            await bob.wait_for_line("alice: remember this")
        assert (again.folder / "auth-secret").read_text() == secret
        again.end()

    with dev_run(dev.folder, dev.ports) as fresh:
        fresh.start("--fresh")
        async with TerminalChat(fresh, "bob", "alice") as bob:
            bob.send_line("anyone?")
            lines = await bob.wait_for_line("bob: anyone?")
        assert "alice: remember this" not in lines
        assert (fresh.folder / "auth-secret").read_text() != secret


async def test_dev_gateway_crash_is_reported_and_restarted(shared: DevRun) -> None:
    """After a gateway crash, the terminal client reconnects automatically."""
    dev = shared
    async with TerminalChat(dev, "alice", "bob") as alice:
        alice.send_line("before")
        await alice.wait_for_line("alice: before")

        dev.child("gateway").kill()
        await eventually(lambda: "gateway ended with -9" in dev.text(), what="its end is reported")
        alice.send_line("after")

        await alice.wait_for_line("alice: after")
    await eventually(lambda: is_http_ready(dev.ports[1], "/healthz"), DEADLINE_S, "the new gateway")


async def test_dev_api_crash_is_reported_and_restarted(shared: DevRun) -> None:
    """The gateway, the workers and the stores keep running when the API crashes."""
    dev = shared

    dev.child("api").kill()
    await eventually(lambda: "api ended with -9" in dev.text(), what="its end is reported")

    await eventually(lambda: is_http_ready(dev.ports[0], "/healthz"), DEADLINE_S, "the new API")
    assert is_http_ready(dev.ports[1], "/healthz")


def test_dev_redis_crash_is_reported_and_stops_all_processes(dev: DevRun) -> None:
    """The name and the last output of Redis are printed, and the exit code is 1."""
    dev.start()

    dev.child("redis-server").kill()
    assert dev.process is not None
    code = dev.process.wait(DEADLINE_S)

    assert code == 1
    assert "redis ended with -9" in dev.text()
    assert "is safe; run the command again" in dev.text()
    assert "Ready to accept connections" in dev.text()
    assert dev.leftovers() == []


def test_dev_port_in_use_is_reported_with_its_option(dev: DevRun) -> None:
    """The error names the port, its purpose and the option; no process is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", dev.ports[1]))
        taken.listen()
        dev.spawn()
        assert dev.process is not None
        code = dev.process.wait(DEADLINE_S)

    assert code == 2
    assert f"port {dev.ports[1]} (gateway) is in use" in dev.text()
    assert "--gateway-port" in dev.text()
    assert "Traceback" not in dev.text()
    assert not dev.folder.exists()


def test_dev_invalid_settings_are_reported_before_any_server_starts(dev: DevRun) -> None:
    """All invalid settings of all processes are listed, without a traceback."""
    wrong = {
        "CHAT_GATEWAY_PING_INTERVAL_S": "no",
        "CHAT_API_WORKERS": "4",
        "CHAT_WARM_REGIONS": "x",
    }
    dev.spawn(env=wrong)
    assert dev.process is not None
    code = dev.process.wait(DEADLINE_S)

    assert code == 2
    assert all(name in dev.text() for name in wrong), dev.text()
    assert "Traceback" not in dev.text()
    assert "redis" not in dev.text()


def test_dev_second_run_on_the_same_folder_is_refused(shared: DevRun) -> None:
    """A folder in use is neither used nor deleted, also with `--fresh`."""
    dev = shared
    with dev_run(dev.folder) as second:
        second.output = dev.folder.parent / "second.out"
        second.spawn("--fresh")
        assert second.process is not None
        assert second.process.wait(DEADLINE_S) == 2
        assert "in use by another" in second.text()

    assert is_http_ready(dev.ports[0], "/healthz")
    assert (dev.folder / "auth-secret").exists()


def test_demo_login_of_an_unknown_user_is_not_found(shared: DevRun) -> None:
    """Only the demo users can log in this way, and the response lists them."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        shared.get("/v1/dev/login", {"user": "mallory"})

    assert caught.value.code == 404
    assert b"alice, bob, carol" in caught.value.read()
