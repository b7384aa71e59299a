"""Each method of the client sends a frame that the server's decoder accepts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chatserver.client.calls import OWN_FRAMES, Calls
from chatserver.client.client_state import ClientState
from chatserver.client.events import Acked
from chatserver.client.http.http_api import HttpApi
from chatserver.client.outbox import OutboxEntry
from chatserver.domain.clock import SystemClock
from chatserver.errors import BadRequest
from chatserver.features.companions.frames import JoinResponse, StopResponse
from chatserver.protocol import codec, frames
from chatserver.requests.registry import decode_frame, list_operations

INFO = {"chat": "c1", "kind": "group", "members": ["alice"]}
RESPONSE = {"turn": "", "seq": 0, "index": 0, "text": ""}
ANY_RESULT = {**RESPONSE, "chat": INFO, "chats": [], "messages": [], "tier": "hot", "more": False}


class Recorder(Calls):
    """Records the frames instead of sending them."""

    def __init__(self) -> None:
        self._state = ClientState("phone")
        self._activity = "fg"
        self._clock = SystemClock()
        self.frames: list[dict[str, Any]] = []

    async def _request(self, fields: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        self.frames.append({**fields, "id": 1})
        chat = INFO if fields["type"] not in {"history"} else "c1"
        return {**ANY_RESULT, "chat": chat}

    def _enqueue(self, operation: OutboxEntry) -> None:
        self.frames.append({**operation.fields, "id": 1})

    async def _submit(self, operation: OutboxEntry, deadline_s: float) -> Acked:
        self._enqueue(operation)
        return Acked(operation.ref, operation.chat, 1, 1, "m", False, "hot")

    def _notify(self, fields: dict[str, Any]) -> None:
        self.frames.append(fields)

    def _get_http_api(self) -> HttpApi:
        raise AssertionError("frames need no HTTP API")

    def _set_presence_subscriptions(self, users: list[str], *, is_on: bool) -> None:
        self._notify({"type": "watch" if is_on else "unwatch", "users": users})


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda c: c.send("c1", "hi"), frames.Send),
        (
            lambda c: c.send(
                "c1", "hi", reply_to=3, kind="markdown", expires_s=5, durability="stored"
            ),
            frames.Send,
        ),
        (lambda c: c.post("c1", "hi"), frames.Send),
        (lambda c: c.edit("c1", 1, "ho"), frames.Edit),
        (lambda c: c.delete("c1", 1), frames.Delete),
        (lambda c: c.delete("c1", 1, scope="me"), frames.Delete),
        (lambda c: c.react("c1", 1, ""), frames.React),
        (lambda c: c.mark("c1", read=1), frames.Mark),
        (lambda c: c.stop("c1"), StopResponse),
        (lambda c: c.load_response("c1"), JoinResponse),
        (lambda c: c.typing("c1", is_on=True), frames.Typing),
        (lambda c: c.history("c1", before=9), frames.History),
        (lambda c: c.chats(after="1-c1"), frames.Chats),
        (lambda c: c.open_direct("bob"), frames.OpenDirect),
        (lambda c: c.create_chat(["bob"], name="Trip"), frames.CreateChat),
        (lambda c: c.invite("c1", ["bob"], role="admin"), frames.Invite),
        (lambda c: c.join("c1"), frames.Join),
        (lambda c: c.leave("c1"), frames.Leave),
        (lambda c: c.remove("c1", "bob"), frames.Remove),
        (lambda c: c.set_role("c1", "bob", "owner"), frames.SetRole),
        (lambda c: c.update_chat("c1", name="Trip"), frames.UpdateChat),
        (lambda c: c.watch(["bob"]), frames.Watch),
        (lambda c: c.unwatch(["bob"]), frames.Unwatch),
        (lambda c: c.state("bg"), frames.State),
    ],
)
async def test_call_sends_a_valid_protocol_frame(call: Any, expected: type) -> None:
    """The server's decoder reads all fields of the frame, and none is unknown."""
    calls = Recorder()

    result = call(calls)
    if hasattr(result, "__await__"):
        await result

    (fields,) = calls.frames
    frame = decode_frame(msgspec.json.encode(fields))
    assert type(frame) is expected
    written = msgspec.json.decode(codec.encode(frame))
    assert {name: written[name] for name in fields} == fields


def test_frames_of_the_client_itself_are_not_requests() -> None:
    """Only a frame whose reply goes to its caller can be sent with `request`."""
    other = {
        each.name
        for each in list_operations().values()
        if not {reply.__struct_config__.tag for reply in each.replies} & {"ok", "page", "turn"}
    }

    assert {*other, "auth", "sync"} == OWN_FRAMES


async def test_request_with_a_frame_of_the_client_itself_is_refused() -> None:
    with pytest.raises(BadRequest, match="edit: use the method of the client"):
        await Recorder().request(frames.Edit(0, "c1", 1, "r", "text"), frames.Ack)
