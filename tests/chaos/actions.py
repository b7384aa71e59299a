"""Actions of a script in a `Simulation`: user activity and process faults, one method each.

The effect of an action depends on the script and on the current state of the devices. Actions run
in the background, so the next action starts while earlier ones are in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

import psutil

from tests.chaos.devices import SdkDevice
from tests.chaos.raw_devices import RawDevice
from tests.chaos.simulation import Action, Simulation
from tests.support.history.events import Requested
from tests.support.stack import start_async

EMOJI = ("👍", "❤️", "🎉", "")


class Actions:
    """Performs the actions of scripts in a simulation, and records them."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    @classmethod
    def names(cls) -> set[str]:
        """Return the names of all actions."""
        return {name.removeprefix("_do_") for name in vars(cls) if name.startswith("_do_")}

    async def perform(self, action: Action) -> None:
        """Start an action; the script continues before the action ends."""
        self._simulation.script.append(action)
        await getattr(self, f"_do_{action.name}")(*action.args)
        await asyncio.sleep(0.01)

    def _request(self, user: int, chat: int, kind: Any, device: int = 0, **more: Any) -> None:
        ref = f"{kind}-{next(self._simulation.refs)}"
        names = (self._simulation.users[user], self._simulation.chats[chat])
        asked = Requested(self._simulation.now(), *names, ref, kind, **more)
        chosen = self._get_device(user, device)
        if isinstance(chosen, RawDevice) and (kind != "send" or not chosen.is_online):
            chosen = self._simulation.first(user)
        self._simulation.history.events.append(asked)
        self._simulation.spawn(chosen.perform(asked), f"{ref} of {chosen.name}")

    def _get_device(self, user: int, number: int) -> SdkDevice | RawDevice:
        devices = self._simulation.devices[user]
        return devices[number % len(devices)]

    # user actions

    async def _do_send(self, user: int, device: int, chat: int, count: int) -> None:
        for _ in range(count):
            body = f"{user} says {self._simulation.round}.{next(self._simulation.refs)}"
            self._request(user, chat, "send", device, body=body)

    async def _do_send_as_all(self, chat: int, count: int) -> None:
        names = self._simulation.history.chats[self._simulation.chats[chat]]
        for user, name in enumerate(self._simulation.users):
            if name in names:
                await self._do_send(user, user % 2, chat, count)

    def _target(self, user: int, chat: int, which: int, *, is_own: bool) -> int | None:
        found = [
            entry.seq
            for entry in self._simulation.first(user).targets(self._simulation.chats[chat])
            if not is_own or entry.sender == self._simulation.users[user]
        ]
        return found[which % len(found)] if found else None

    async def _do_edit(self, user: int, device: int, chat: int, which: int) -> None:
        target = self._target(user, chat, which, is_own=True)
        if target is not None:
            body = f"{user} means {self._simulation.round}.{next(self._simulation.refs)}"
            self._request(user, chat, "edit", device, body=body, target=target)

    async def _do_delete(self, user: int, device: int, chat: int, which: int) -> None:
        target = self._target(user, chat, which, is_own=True)
        if target is not None:
            self._request(user, chat, "delete", device, target=target)

    async def _do_hide(self, user: int, device: int, chat: int, which: int) -> None:
        target = self._target(user, chat, which, is_own=False)
        if target is not None:
            self._request(user, chat, "hide", device, target=target)

    async def _do_react(self, user: int, device: int, chat: int, which: int, emoji: int) -> None:
        target = self._target(user, chat, which, is_own=False)
        if target is not None:
            self._request(user, chat, "react", device, target=target, body=EMOJI[emoji])

    async def _do_change_foreign(self, user: int, chat: int, which: int) -> None:
        """Try to change another user's message, or a message that does not exist."""
        self._request(user, chat, "edit", body="mine now", target=which + 1)

    async def _do_join(self, user: int, chat: int) -> None:
        self._simulation.spawn(
            self._simulation.change(user, self._simulation.chats[chat], "join"), "join"
        )

    async def _do_leave(self, user: int, chat: int) -> None:
        self._simulation.spawn(
            self._simulation.change(user, self._simulation.chats[chat], "leave"), "leave"
        )

    async def _do_invite(self, owner: int, chat: int, user: int) -> None:
        self._simulation.spawn(
            self._simulation.change(owner, self._simulation.chats[chat], "invite", subject=user),
            "invite",
        )

    async def _do_remove(self, owner: int, chat: int, user: int) -> None:
        self._simulation.spawn(
            self._simulation.change(owner, self._simulation.chats[chat], "remove", subject=user),
            "remove",
        )

    async def _do_rename(self, owner: int, chat: int) -> None:
        name = f"Name {next(self._simulation.refs)}"
        self._simulation.spawn(
            self._simulation.change(owner, self._simulation.chats[chat], "update", name), "rename"
        )

    async def _do_read_page(self, user: int, chat: int, before: int) -> None:
        self._simulation.spawn(
            self._simulation.first(user).read_page(self._simulation.chats[chat], before or None),
            "read_page",
        )

    async def _do_mark(self, user: int, chat: int, back: int = 0) -> None:
        """Mark a chat as read; then try to move the mark back by some entries."""
        self._simulation.spawn(self._mark(user, self._simulation.chats[chat], back), "mark")

    async def _mark(self, user: int, chat: str, back: int) -> None:
        device = self._simulation.first(user)
        top = device.newest(chat)
        if not top:
            return
        await device.retry(lambda client: client.mark(chat, read=top))
        if back:
            await device.list_marks()
            lower = max(1, top - back)
            await device.retry(lambda client: client.mark(chat, read=lower))
            await device.list_marks()

    async def _do_type(self, user: int, chat: int) -> None:
        device = self._simulation.first(user)
        if device.is_online:
            (await device.ready()).typing(self._simulation.chats[chat], is_on=True)

    # faults

    async def _do_cut(self) -> None:
        self._simulation.client_link.reset()

    async def _do_restart_device(self, user: int, device: int) -> None:
        found = self._get_device(user, device)
        if isinstance(found, SdkDevice):
            self._simulation.spawn(found.restart(), f"restart of {found.name}")

    async def _do_kill_gateway(self, which: int) -> None:
        self._signal_gateway(which, signal.SIGKILL)

    async def _do_end_gateway(self, which: int) -> None:
        self._signal_gateway(which, signal.SIGTERM)

    def _signal_gateway(self, which: int, number: int) -> None:
        children = self._simulation.fleet.children
        if children:
            with contextlib.suppress(psutil.NoSuchProcess):  # already replaced
                children[which % len(children)].send_signal(number)

    async def _do_renew_gateways(self) -> None:
        self._simulation.fleet.send_signal(signal.SIGHUP)

    async def _do_kill_worker(self, which: int, pause_ms: int) -> None:
        worker = list(self._simulation.stack.workers.values())[which]
        if worker.process is not None:
            worker.kill()
            self._simulation.spawn(
                self._revive(worker, pause_ms / 1000), f"revival of {worker.launch.name}"
            )

    async def _do_end_worker(self, which: int, pause_ms: int) -> None:
        worker = list(self._simulation.stack.workers.values())[which]
        if worker.process is not None:
            worker.send_signal(signal.SIGTERM)
            self._simulation.spawn(
                self._revive(worker, pause_ms / 1000), f"revival of {worker.launch.name}"
            )

    async def _revive(self, worker: Any, pause_s: float) -> None:
        if worker.process is not None:
            await asyncio.to_thread(worker.stop)
        await asyncio.sleep(pause_s)
        await start_async(worker)

    async def _do_wait(self, pause_ms: int) -> None:
        """Wait, so that actions in progress reach a later state before the next action."""
        await asyncio.sleep(pause_ms / 1000)
