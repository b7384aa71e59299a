"""Load generator for the echo server, with connections and frame sizes as in benchmark `direct`."""

from __future__ import annotations

import asyncio
from typing import Any

from chatserver.loadtest import wire
from chatserver.loadtest.bench.cpu_usage import Cores, measure_rate
from chatserver.loadtest.bench.session import Connection, RunFindings
from chatserver.protocol.frames import SUBPROTOCOL

_FIRST_NUMBER = 1_000_000_000


class EchoClient(Connection):
    """Keeps `window` numbered messages in flight and checks that each returns once, in order."""

    def __init__(self, name: str, findings: RunFindings, frame_bytes: int) -> None:
        super().__init__(name, findings)
        self.echoed = 0
        self.sent = 0
        self.window = 0
        filler = b"x" * (frame_bytes - len(b"%d" % _FIRST_NUMBER))
        sized = wire.encode_client_frame(b"%d" % _FIRST_NUMBER + filler)
        head = sized[: len(sized) - frame_bytes]
        self._frame_template = head.replace(b"%", b"%%") + b"%d" + filler
        self._response = b"\x81\x7e" + frame_bytes.to_bytes(2, "big").replace(b"%", b"%%")
        self._response += b"%d" + filler
        self._answer_bytes = 4 + frame_bytes

    def start_window(self, window: int) -> None:
        self.window = window
        self._fill_window()

    def stop_window(self) -> None:
        self.window = 0

    def _fill_window(self) -> None:
        upto = self.echoed + self.window
        if upto > self.sent:
            numbers = range(_FIRST_NUMBER + self.sent, _FIRST_NUMBER + upto)
            self.sent = upto
            self.transport.write(b"".join([self._frame_template % n for n in numbers]))

    def read_frames(self, data: bytes) -> int:
        pos, size = 0, self._answer_bytes
        while len(data) - pos >= size:
            if not data.startswith(self._response % (_FIRST_NUMBER + self.echoed), pos):
                self.findings.add("mismatched", f"{self.name}: {data[pos : pos + 40]!r}")
            self.echoed += 1
            pos += size
        self._fill_window()
        return pos


async def measure_echo(
    port: int,
    cores: Cores,
    findings: RunFindings,
    *,
    connections: int,
    window: int,
    frame_bytes: int,
    warmup_s: float,
    seconds: float,
) -> dict[str, Any]:
    if frame_bytes < 126:
        raise ValueError("frames of less than 126 bytes have a different header")
    clients = [EchoClient(f"echo{n}", findings, frame_bytes) for n in range(connections)]
    for client in clients:
        await client.connect(port, SUBPROTOCOL)
    for client in clients:
        client.start_window(window)
    figures = await measure_rate(lambda: sum(c.echoed for c in clients), cores, warmup_s, seconds)
    for client in clients:
        client.stop_window()
    for client in clients:
        while client.echoed < client.sent:  # noqa: ASYNC110  a counter, without events
            await asyncio.sleep(0.01)
        client.close()
    return {"window": window, "connections": connections, **figures}
