"""Load scripts against a stub server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chatserver.loadtest.script_loader import load_script
from chatserver.loadtest.stub_server import StubState
from tests.support.load_runs import run_load


async def run_script(tmp_path: Path, text: str, **changes: Any) -> dict[str, Any]:
    """Run a script of four users; return its result and counts."""
    path = tmp_path / "mine.py"
    path.write_text(text, "utf-8")
    plan: dict[str, Any] = {"users": 4, "duration_s": 60, "script": load_script(path).file}
    return await run_load(changes.pop("state", StubState()), **{**plan, **changes})


async def test_sent_message_is_received_read_and_delivered(tmp_path: Path) -> None:
    """All users end, which ends the load. The text is that of the sender."""
    result = await run_script(
        tmp_path,
        """
CHATS = {"direct": 2, "team": 4}

async def user(user):
    me = user.chats["team"].position
    assert user.name == user.chats["team"].members[me]
    if me == 0:
        sent = user.send("team", "Hello  world ")
        user.check("delivered", await sent.check_delivered(within_s=60))
        page = await user.read_history("team")
        assert page[-1].text == "Hello  world " and page[-1].seq == sent.seq
        user.mark_read("team")
        user.set_typing("team")
    else:
        message = await user.receive("team", within_s=60)
        assert (message.text, message.chat) == ("Hello  world ", "team")
        user.check("received", message.sender == user.chats["team"].members[0])
        assert message.latency_s >= 0
        assert await user.receive("direct", within_s=0.01) is None
""",
    )

    counts = result["counts"]
    assert (result["first_error"], result["found"]) == ("", {})
    assert counts["check_passed:received"] == 3
    assert counts["check_passed:delivered within 60 s"] == counts["check_passed:delivered"] == 1
    assert counts["delivered"] == result["expected"] == 4
    assert counts["pages"] == 1


async def test_end_of_the_load_ends_all_users(tmp_path: Path) -> None:
    """Pauses end at once, pending checks are finished, and no user can continue."""
    result = await run_script(
        tmp_path,
        """
async def user(user):
    if user.number == 1:
        await user.receive()
    elif user.number == 2:
        await user.think(3000)
    elif user.number == 3:
        async for number in user.every(0.01):
            user.count("rounds")
            user.random.random()
        user.count("after_the_end")
    else:
        while user.is_running:
            sent = user.send("direct")
            user.count("acked", await sent.check_acked(within_s=60))
""",
        duration_s=0.5,
    )

    assert result["first_error"] == "" and result["unacked"] == 0
    assert result["counts"]["metric:rounds"] > 1
    assert result["counts"]["metric:after_the_end"] == 1
    assert result["counts"]["acked"] == result["counts"]["metric:acked"] > 1


async def test_latency_counts_from_the_due_time_only_before_the_first_wait(tmp_path: Path) -> None:
    """A late round is the tool's or the server's fault; what the script waits for is not."""
    result = await run_script(
        tmp_path,
        """
import time

async def user(user):
    if user.number > 1:
        return
    async for number in user.every(0.01):
        if number == 0:
            time.sleep(0.5)  # blocks the tool, so that the next round is late
            user.send("direct")
            continue
        await user.think(0)
        time.sleep(0.2)  # time of the script itself, which no latency includes
        with user.timer("call"):
            await user.request("history", chat=user.chats["direct"].id, after=0)
        return
""",
    )

    assert result["first_error"] == ""
    latencies = result["latencies"]
    assert latencies["ack"].max >= 500_000
    assert latencies["request"].max <= latencies["call"].max


async def test_exception_in_a_user_is_counted_and_the_user_starts_again(tmp_path: Path) -> None:
    """The other users continue. The first traceback starts at the script."""
    result = await run_script(
        tmp_path,
        """
tries = []

async def user(user):
    if user.number == 1:
        tries.append(user)
        if len(tries) < 3:
            user.send("no-such-chat")
        user.count("recovered")
""",
    )

    assert result["counts"]["errors"] == 2
    assert result["counts"]["metric:recovered"] == 1
    first = result["first_error"].splitlines()
    assert 'mine.py", line 8, in user' in first[1]
    assert first[-1] == "ValueError: no chat 'no-such-chat'; CHATS declares direct"


async def test_user_that_reconnects_receives_what_it_missed(tmp_path: Path) -> None:
    """The device resumes, and the check of the deliveries includes the missed messages."""
    result = await run_script(
        tmp_path,
        """
async def user(user):
    if user.chats["direct"].position == 0:
        await user.reconnect(after_s=0.2)
        message = await user.receive(within_s=60)
        user.check("received", message)
    else:
        sent = user.send("direct", "sent while you were offline")
        await sent.check_delivered(within_s=60)
""",
    )

    assert result["first_error"] == "" and result["found"] == {}
    assert result["counts"]["check_passed:received"] == 2
    assert result["counts"]["connects"] == 2


async def test_any_request_returns_all_fields_of_its_response(tmp_path: Path) -> None:
    """A response that the tool does not know is not reported as unreadable."""
    result = await run_script(
        tmp_path,
        """
async def user(user):
    reply = await user.request("history", chat=user.chats["direct"].id, after=0)
    assert reply["type"] == "page" and reply["messages"][0]["kind"] == "text", reply
    await user.reconnect()
    user._device.abort()
    reply = await user.request("history", chat=user.chats["direct"].id, after=0)
    assert (reply["type"], reply["code"]) == ("error", "disconnected")
    user.check("done", True)
""",
    )

    assert result["first_error"] == "" and result["found"] == {}
    assert result["counts"]["check_passed:done"] == result["counts"]["requests"] == 4
    assert result["counts"]["refused:disconnected"] == 4


async def test_check_of_a_message_that_is_lost_fails(tmp_path: Path) -> None:
    """The script's own check fails, and the delivery checker reports the loss."""
    state = StubState()
    state.fault = lambda user, seq, frame: [] if (user, seq) == ("load-t-2", 2) else [frame]

    result = await run_script(
        tmp_path,
        """
async def user(user):
    for number in range(3):
        await user.send("direct", str(number)).check_delivered(within_s=0.5)
""",
        users=2,
        settle_s=1,
        state=state,
    )

    assert result["found"] == {"jumped": 1, "lost": 1}
    assert result["counts"]["check_failed:delivered within 0.5 s"] >= 1


async def test_user_that_does_not_receive_keeps_the_newest_messages(tmp_path: Path) -> None:
    """The memory of a user is bounded. A user may take what has arrived, without waiting."""
    result = await run_script(
        tmp_path,
        """
async def user(user):
    if user.number == 1:
        for number in range(130):
            sent = user.send("direct", str(number))
        await sent.check_delivered(within_s=60)
    else:
        while not (page := await user.read_history("direct")) or page[-1].text != "129":
            await user.think(0.01)
        while user._device.is_behind():
            await user.think(0.01)
        texts = [(await user.receive()).text for _ in range(100)]
        user.check("newest", texts == [str(number) for number in range(30, 130)])
        user.check("empty", await user.receive(within_s=0) is None)
""",
        users=2,
    )

    assert result["first_error"] == ""
    counts = result["counts"]
    assert counts["check_passed:newest"] == counts["check_passed:empty"] == 1


async def test_history_before_a_seq_beyond_the_newest_is_the_newest_page(tmp_path: Path) -> None:
    """The script's mistake is not reported as a fault of the server."""
    result = await run_script(
        tmp_path,
        """
async def user(user):
    page = await user.read_history("direct", before=1000)
    user.check("read", [message.seq for message in page] == [1])
""",
    )

    assert (result["first_error"], result["found"]) == ("", {})
    assert result["counts"]["check_passed:read"] == 4
