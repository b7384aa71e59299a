"""Relay between Playwright and Debian's Firefox, which speak WebDriver BiDi.

Playwright starts it in place of Firefox, with the same arguments::

    python -m tests.support.bidi_relay firefox-esr --remote-debugging-port=0 --profile FOLDER …

It forwards all messages, and changes two kinds of commands:

- Playwright 1.65 prepares each browser and context with commands that Firefox 140 does not have.
  The tests do not need these commands, so the relay responds with an empty result.
- Playwright evaluates scripts in the page with `eval`, which a content security policy forbids
  there. The script becomes a part of the function that Firefox calls; the policy stays in force.
  `fill` is not available, so tests press keys.

Firefox runs until Playwright disconnects. Files that it would write outside of its profile are in
the profile too, which Playwright removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.support.deadlines import wait_for_exit

HOST = "127.0.0.1"
ENDPOINT = "WebDriver BiDi listening on "
# Without these there are no response bodies, no download folder, and no emulation of screens.
OPTIONAL = {
    "network.addDataCollector",
    "browser.setDownloadBehavior",
    "emulation.setMediaFeaturesOverride",
    "emulation.setScreenOrientationOverride",
    "emulation.setScreenSettingsOverride",
}
# Playwright evaluates a script with `evaluate(isFunction, returnByValue, script, …)`, which calls
# `this.global.eval(script)`.
EVALUATE = "(utilityScript, ...args) => utilityScript.evaluate(...args)"
EVALUATE_WITHOUT_EVAL = """(utilityScript, ...args) => {
  const global = { eval: () => (%s\n) };
  return Object.create(utilityScript, { global: { value: global } }).evaluate(...args);
}"""
# Prepares `fill` in each document with another `eval`. Keys work without it.
PREPARE_FILL = "injectedScript.extend("
MESSAGE_BYTES_MAX = 1 << 26
LINE_BYTES_MAX = 1 << 20
EXIT_S = 10.0  # how long Firefox may take to exit after the connection has ended


async def run(command: Sequence[str]) -> int:
    """Run Firefox behind the relay; return its exit status."""
    profile = command[command.index("--profile") + 1]
    firefox = await asyncio.create_subprocess_exec(
        *command,
        stderr=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        env={**os.environ, "HOME": profile},
    )
    assert firefox.stderr is not None
    url = await _read_endpoint(firefox.stderr)

    async def handle(client: ServerConnection) -> None:
        async with connect(
            f"{url}/session",
            max_size=MESSAGE_BYTES_MAX,
            compression=None,
            ping_interval=None,  # a slow machine must not cause a disconnect
        ) as server:
            await _relay(client, server)
        try:
            await asyncio.wait_for(firefox.wait(), EXIT_S)
        except TimeoutError:
            firefox.kill()

    async with serve(
        handle, HOST, 0, max_size=MESSAGE_BYTES_MAX, compression=None, ping_interval=None
    ) as listener:
        port = next(iter(listener.sockets)).getsockname()[1]
        _log(f"{ENDPOINT}ws://{HOST}:{port}")
        async for line in firefox.stderr:
            _log(line.decode(errors="replace").rstrip())
        return await wait_for_exit(firefox)


async def _read_endpoint(lines: asyncio.StreamReader) -> str:
    async for line in lines:
        text = line.decode(errors="replace").rstrip()
        if text.startswith(ENDPOINT):
            return text.removeprefix(ENDPOINT)
        _log(text)
    raise SystemExit("Firefox ended before it listened")


async def _relay(client: ServerConnection, server: ClientConnection) -> None:
    """Forward messages until one side disconnects."""
    optional: set[int] = set()  # ids of commands that get no response

    async def send_commands() -> None:
        async for text in client:
            command = json.loads(text)
            if command["method"] in OPTIONAL:
                optional.add(command["id"])
            elif _is_evaluation(command):
                parameters = command["params"]
                script = parameters["arguments"][3]["value"]
                if PREPARE_FILL in script:
                    script = "() => {}"
                parameters["functionDeclaration"] = EVALUATE_WITHOUT_EVAL % script
                text = json.dumps(command)
            await server.send(text)

    async def send_answers() -> None:
        async for text in server:
            answer = json.loads(text)
            if answer.get("id") in optional:
                optional.discard(answer["id"])
                if answer.get("error") == "unknown command":
                    answer = {"type": "success", "id": answer["id"], "result": {}}
                    text = json.dumps(answer)
            await client.send(text)

    tasks = [asyncio.create_task(send_commands()), asyncio.create_task(send_answers())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(client.close(), server.close())
    with contextlib.suppress(ConnectionClosed):
        await asyncio.gather(*tasks)


def _is_evaluation(command: dict[str, Any]) -> bool:
    """Return whether a command evaluates a script with `eval` under the policy of the page."""
    parameters = command["params"]
    return (
        command["method"] == "script.callFunction"
        and parameters["functionDeclaration"] == EVALUATE
        and "sandbox" not in parameters["target"]
    )


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
