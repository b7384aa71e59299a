"""Runs the function of a load script once for each user of this process."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from chatserver.loadtest.load_users import LoadUsers
from chatserver.loadtest.plan import LoadPlan
from chatserver.loadtest.script import DeliveryTracker, LoadChat, LoadUser
from chatserver.loadtest.script_loader import LoadScript, format_script_error
from chatserver.loadtest.script_metrics import ScriptMetrics
from chatserver.loadtest.worker_state import WorkerState

RESTART_S: Final = 1.0  # A user whose function raised an exception starts again after this time.
FINISH_S: Final = 10.0  # At the end of the load, pending checks may take this long.
CLEANUP_S: Final = 5.0  # Cancelled users may take this long.


class ScriptRunner:
    """The users of a script. `first_error` is the traceback of the first exception."""

    def __init__(
        self, script: LoadScript, plan: LoadPlan, users: LoadUsers, state: WorkerState
    ) -> None:
        self.first_error = ""
        self._script, self._state = script, state
        metrics = ScriptMetrics(state.meters)
        chats: dict[str, dict[str, LoadChat]] = {device.user: {} for device in users.devices}
        for name, opened in users.chats.items():
            for chat in opened:
                tracker = DeliveryTracker(chat.id)
                tracker.devices = chat.members
                members = [device.user for device in chat.members]
                for position, user in enumerate(members):
                    chats[user][name] = LoadChat(name, chat.id, members, position, tracker)
        self._users = [
            LoadUser(
                device,
                chats[device.user],
                metrics,
                random.Random(f"{plan.seed}-user-{device.index}"),  # noqa: S311  not a secret
            )
            for device in users.devices
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, stopping: asyncio.Event, seconds: float) -> None:
        """Run all users until the load is stopped, the time is over, or all users have ended."""
        self._tasks = [
            asyncio.create_task(self._run_user(user), name=f"script {user.name}")
            for user in self._users
        ]
        ended = asyncio.create_task(self._wait_until_ended(), name="end of the script")
        is_stopped = asyncio.create_task(_wait_for(stopping), name="stop of the load")
        await asyncio.wait(
            [ended, is_stopped], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        ended.cancel()
        is_stopped.cancel()

    async def _wait_until_ended(self) -> None:
        await asyncio.wait(self._tasks)

    async def finish(self, patience_s: float) -> None:
        """End all users: pauses at once, pending checks and requests within a time limit."""
        for user, task in zip(self._users, self._tasks, strict=True):
            user.end()
            if user.is_pausing:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=min(FINISH_S, patience_s))
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=CLEANUP_S)

    async def _run_user(self, user: LoadUser) -> None:
        while user.is_running:
            try:
                await self._script.user(user)
            except Exception as exc:  # noqa: BLE001  the script may raise anything
                self._state.meters.counts["errors"] += 1
                if not self.first_error:
                    self.first_error = format_script_error(exc, self._script.file.path)
            else:
                return
            await asyncio.sleep(RESTART_S)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
