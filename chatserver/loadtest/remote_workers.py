"""Load test processes on other machines, which join the coordinator over TCP.

Lines of JSON. Both sides prove that they know the token secret, which is never sent:

    coordinator   ``{"nonce": …}``
    process       ``{"nonce": …, "scenario": …, "proof": …}``
    coordinator   ``{"plan": "<JSON>", "proof": …}`` when all processes have joined, or
                  ``{"refused": "…"}``

Then, both sides send the lines of `chatserver.loadtest.worker`. The process has its own copy of the
script: no code is sent, only its digest, within `scenario`. The connection is not encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import attrs
import msgspec

from chatserver.loadtest.coordinator import END_S as RUN_END_S
from chatserver.loadtest.coordinator import LoadFailed
from chatserver.loadtest.load_users import SETUP_S
from chatserver.loadtest.plan import LoadPlan, Scenario
from chatserver.loadtest.worker_process import (
    END_S,
    LINE_BYTES_MAX,
    WorkerProcess,
    start_process,
)

JOIN_S: Final = 300.0  # The coordinator and the processes wait this long for each other.
RETRY_S: Final = 0.5
HANDSHAKE_S: Final = 10.0
HANDSHAKE_BYTES_MAX: Final = 65_536
JOINING_MAX: Final = 64  # connections that have not joined yet; others are closed
_NAME: Final = "chatserver load"
_JOIN, _PLAN = "join", "plan"


class JoinRefused(LoadFailed):
    """The coordinator and this process do not run the same load test."""


def parse_host_port(option: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT, or [HOST]:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise ValueError(f"{option} {text}: must be HOST:PORT, for example 10.0.0.5:7780")
    return host.removeprefix("[").removesuffix("]"), int(port)


def describe_scenario(scenario: Scenario) -> str:
    """Return what a joining process must have in common with the coordinator."""
    return scenario.name if scenario.script is None else f"script {scenario.script.sha256}"


class _Proofs:
    """Proofs of one connection: HMAC-SHA256 over its purpose, both nonces and a text."""

    def __init__(self, secret: str, coordinator_nonce: str, process_nonce: str) -> None:
        self._key = hmac.digest(secret.encode(), _NAME.encode(), "sha256")
        self._nonces = f"{coordinator_nonce}\n{process_nonce}"

    def make(self, purpose: str, text: str) -> str:
        message = f"{purpose}\n{self._nonces}\n{text}".encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def is_valid(self, purpose: str, text: str, proof: str) -> bool:
        return hmac.compare_digest(self.make(purpose, text).encode(), proof.encode())


class _Hello(msgspec.Struct):
    nonce: str
    scenario: str = ""
    proof: str = ""


class _Start(msgspec.Struct):
    plan: str = ""
    proof: str = ""
    refused: str = ""


class RemoteWorker(WorkerProcess):
    """A worker process on another machine, connected by TCP."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proofs: _Proofs
    ) -> None:
        self._reader, self._writer, self._proofs = reader, writer, proofs
        self.name = _get_peer(writer)

    def send_plan(self, plan: LoadPlan) -> None:
        text = msgspec.json.encode(_hide_secret(plan)).decode()
        start = _Start(plan=text, proof=self._proofs.make(_PLAN, text))
        self.write(msgspec.json.encode(start))

    def write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line + b"\n")

    async def read(self) -> bytes:
        with contextlib.suppress(OSError):
            return await _read_long_line(self._reader)
        return b""

    async def describe_end(self) -> str:
        return f"the process on {self.name} closed its connection; see its output there"

    def kill(self) -> None:
        self._writer.transport.abort()

    async def end(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # TimeoutError, too
            async with asyncio.timeout(END_S):
                await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def accept_workers(
    address: tuple[str, int], secret: str, scenario: Scenario, count: int
) -> AsyncIterator[list[RemoteWorker]]:
    """Listen until `count` processes have joined; close their connections at the end.

    Raises:
        LoadFailed: the address cannot be used, or too few processes join within `JOIN_S`.
    """
    joining = _Joining(secret, describe_scenario(scenario), count)
    try:
        server = await asyncio.start_server(
            joining.handle_connection, *address, limit=HANDSHAKE_BYTES_MAX
        )
    except OSError as exc:
        raise LoadFailed(f"--listen {address[0]}:{address[1]}: {exc.strerror or exc}") from exc
    try:
        async with asyncio.timeout(JOIN_S):
            await joining.is_complete.wait()
    except TimeoutError:
        joining.close()
        raise LoadFailed(
            f"{len(joining.workers)} of {count} processes of other machines joined within "
            f"{JOIN_S:g} s; start them there with the same command and --join. {joining.refusal}"
        ) from None
    finally:
        server.close()
    try:
        yield joining.workers
    finally:
        joining.close()


class _Joining:
    """The processes that have joined so far. `refusal`: why the last process was refused."""

    def __init__(self, secret: str, scenario: str, count: int) -> None:
        self.workers: list[RemoteWorker] = []
        self.is_complete = asyncio.Event()
        self.refusal = ""
        self._secret, self._scenario, self._count = secret, scenario, count
        self._pending = 0

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._pending >= JOINING_MAX:
            writer.transport.abort()
            return
        self._pending += 1
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                worker = await self._check(reader, writer)
        except (OSError, ValueError, TimeoutError, msgspec.MsgspecError):
            worker = None
        finally:
            self._pending -= 1
        if worker is None:
            writer.close()
            return
        self.workers.append(worker)
        if len(self.workers) == self._count:
            self.is_complete.set()

    async def _check(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> RemoteWorker | None:
        nonce = secrets.token_hex(16)
        writer.write(msgspec.json.encode(_Hello(nonce)) + b"\n")
        hello = msgspec.json.decode(await reader.readline(), type=_Hello)
        proofs = _Proofs(self._secret, nonce, hello.nonce)
        refusal = ""
        if not proofs.is_valid(_JOIN, hello.scenario, hello.proof):
            refusal = "the secrets differ; set the same CHAT_AUTH_SECRET on all machines"
        elif hello.scenario != self._scenario:
            refusal = "the scenarios or the contents of the scripts differ"
        elif self.is_complete.is_set():
            refusal = f"{self._count} processes have joined already (--remote-processes)"
        if not refusal:
            return RemoteWorker(reader, writer, proofs)
        self.refusal = f"{_get_peer(writer)} was refused: {refusal}"
        writer.write(msgspec.json.encode(_Start(refused=refusal)) + b"\n")
        await writer.drain()
        return None


@attrs.frozen
class JoiningProcess:
    """One process of this machine, which takes part in a load test of another one."""

    address: tuple[str, int]
    secret: str = attrs.field(repr=False)
    scenario: Scenario

    async def run(self, on_joined: Callable[[], None]) -> None:
        """Join, run a worker with the plan of the coordinator, and relay its lines.

        Raises:
            LoadFailed: the coordinator is unavailable or refuses, or the load failed.
        """
        reader, writer = await self._connect()
        try:
            plan = await self._get_plan(reader, writer, on_joined)
            seconds = SETUP_S + plan.duration_s + plan.settle_s + 2 * RUN_END_S
            async with asyncio.timeout(seconds):
                await _relay(plan, reader, writer)
        except (ConnectionError, TimeoutError) as exc:
            raise LoadFailed(f"lost the coordinator: {exc or 'timed out'}") from exc
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address
        deadline_s = time.monotonic() + JOIN_S
        while True:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    return await asyncio.open_connection(host, port, limit=HANDSHAKE_BYTES_MAX)
            except (OSError, TimeoutError) as exc:
                if time.monotonic() > deadline_s:
                    raise LoadFailed(
                        f"no coordinator at {host}:{port}: {exc or 'timed out'}; start it with "
                        "--remote-processes"
                    ) from exc
            await asyncio.sleep(RETRY_S)

    async def _get_plan(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_joined: Callable[[], None],
    ) -> LoadPlan:
        nonce, scenario = secrets.token_hex(16), describe_scenario(self.scenario)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                hello = msgspec.json.decode(await reader.readline(), type=_Hello)
                proofs = _Proofs(self.secret, hello.nonce, nonce)
                own = _Hello(nonce, scenario, proofs.make(_JOIN, scenario))
                writer.write(msgspec.json.encode(own) + b"\n")
            on_joined()
            async with asyncio.timeout(JOIN_S):
                start = msgspec.json.decode(await reader.readline(), type=_Start)
        except (ValueError, msgspec.MsgspecError) as exc:
            raise JoinRefused(
                "the coordinator closed the connection, or the address is not that of one"
            ) from exc
        if start.refused:
            raise JoinRefused(f"the coordinator refused this process: {start.refused}")
        if not proofs.is_valid(_PLAN, start.plan, start.proof):
            raise JoinRefused("the coordinator does not know the secret")
        try:
            plan = msgspec.json.decode(start.plan, type=LoadPlan)
        except msgspec.MsgspecError as exc:
            raise JoinRefused(
                f"the coordinator has another release ({exc}); install the same on all machines"
            ) from exc
        return msgspec.structs.replace(plan, secret=self.secret, script=self.scenario.script)


async def _relay(
    plan: LoadPlan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    worker = await start_process("worker")
    worker.send_plan(plan)

    async def relay_commands() -> None:
        with contextlib.suppress(ConnectionError):
            while line := await _read_long_line(reader):
                worker.write(line.rstrip(b"\n"))
        assert worker.process.stdin is not None
        worker.process.stdin.close()  # The worker ends its load.

    commands = asyncio.create_task(relay_commands(), name="relay commands")
    last = b""
    try:
        while line := await worker.read():
            last = line
            writer.write(line)
            await writer.drain()
    finally:
        commands.cancel()
        await worker.end()
    if last.startswith(b'{"failed"'):
        raise LoadFailed(msgspec.json.decode(last, type=dict[str, Any])["failed"])
    if not last.startswith(b'{"result"'):
        raise LoadFailed(f"the load process ended early: {await worker.describe_end()}")


async def _read_long_line(reader: asyncio.StreamReader) -> bytes:
    """Return a line of up to `LINE_BYTES_MAX`, or b"" at the end. Raises ConnectionError."""
    parts: list[bytes] = []
    size = 0
    while size <= LINE_BYTES_MAX:
        try:
            parts.append(await reader.readuntil(b"\n"))
            return b"".join(parts)
        except asyncio.LimitOverrunError as exc:
            parts.append(await reader.readexactly(exc.consumed))
            size += exc.consumed
        except asyncio.IncompleteReadError:
            return b""
    raise ConnectionError(f"a line is longer than {LINE_BYTES_MAX:,} bytes")


def _hide_secret(plan: LoadPlan) -> LoadPlan:
    script = plan.script
    if script is not None:
        script = msgspec.structs.replace(script, path="")
    return msgspec.structs.replace(plan, secret="", script=script)


def _get_peer(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if peer else "an unknown address"
