"""A failpoint before every call that a worker's code makes to Redis or DynamoDB.

`CHAT_FAILPOINT=store.call:kill:7` kills a process of `tests.support.cli` before its seventh such
call. Other processes see only the effects of these calls. So killing a worker before each of its
calls, one run after another, covers a crash at every await of its code.

`PYTEST_STORE_CALLS` names the folders and files whose calls count, separated by commas. The process
prints the name of each call before it sends it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

FAILPOINT = "store.call"
CALLERS = "PYTEST_STORE_CALLS"


def add_failpoints() -> None:
    """Add the failpoint to this process."""
    from chatserver.hot.redis.scripts import Script, load_script
    from chatserver.hot.redis.single_server import SingleClient
    from chatserver.telemetry.failpoints import failpoint
    from chatserver.warm.dynamo.client import DynamoClient

    callers = tuple(os.environ[CALLERS].split(","))
    scripts: dict[str, Script] = {}
    bind, send, call_once = Script.bind, SingleClient.send, DynamoClient.call_once

    def reach(name: str) -> None:
        frame = sys._getframe(2)
        while frame and not any(caller in frame.f_code.co_filename for caller in callers):
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
        if frame:
            print(name, flush=True)  # noqa: T201  # read by the test
            failpoint(FAILPOINT)

    def bind_and_record(self: Script, *args: Any, **named: Any) -> Any:
        scripts[self.sha] = self
        return bind(self, *args, **named)

    def send_after_failpoint(self: SingleClient, on_reply: Any, *args: Any) -> None:
        is_transaction = args[:2] == ("EVALSHA", load_script("transaction").sha)
        words = [str(arg) for arg in args[3 + int(args[2]) :]] if is_transaction else []
        script = scripts.get(str(args[1])) if len(args) > 1 else None
        reach(words[1] if words else script.name if script else str(args[0]))
        send(self, on_reply, *args)

    async def call_after_failpoint(self: DynamoClient, operation: str, request: Any) -> Any:
        reach(operation)
        return await call_once(self, operation, request)

    Script.bind = bind_and_record  # type: ignore[method-assign]  # records the names of scripts
    SingleClient.send = send_after_failpoint  # type: ignore[method-assign]  # the failpoint
    DynamoClient.call_once = call_after_failpoint  # type: ignore[method-assign]  # the failpoint
