"""Support of the hot tier's tests: Redis settings, and Lua scripts with parsed replies.

Tests run scripts directly on a real Redis, without the product's callers, so that they control each
argument. Names are checked against the script's header, as in the product.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import redis

from chatserver import config
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.messages import (
    format_name,
    format_ref_record,
    parse_ref_record,
    reference_key,
)
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.scripts import Script, Value, load_script

EPOCH = "E1"
GATE = f"{EPOCH}:1"
GATEWAY = "gw-here"
CHAT = ChatId("c1")
ALICE, BOB, CAROL = UserId("alice"), UserId("bob"), UserId("carol")
NEVER = 2**53

CLOSED, COMMITTED, UNDELIVERED, KNOWN, NOT_MEMBER, FULL, RESTRICTED = 0, 1, 2, 3, 5, 6, 7
CHAT_FULL = 8
OTHER_EPOCH = 3  # code of load_chat.lua


def redis_settings(url: str, **changes: Any) -> config.Redis:
    """Return settings with a timeout that is long enough for a slow Redis.

    Tests of timeouts set their own.
    """
    return config.Redis.model_validate({"url": url, "call_timeout_s": 30.0, **changes})


async def cancel_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it ends."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.2)


class Notifications:
    """Counts the notifications of a client."""

    def __init__(self, hot: HotClient) -> None:
        self.epochs = self.reloads = 0
        hot.on_epoch.append(self._count_epoch)
        hot.on_reload.append(self._count_reload)

    def _count_epoch(self) -> None:
        self.epochs += 1

    def _count_reload(self) -> None:
        self.reloads += 1


@dataclasses.dataclass(frozen=True)
class Sending:
    """One message of a batch.

    `to` are the recipients to whose inboxes `accept` may deliver. `to` and `gate` belong to the
    chat: `accept` uses those of its last message in the batch.
    """

    sender: UserId
    ref: str
    chat: ChatId = CHAT
    to: tuple[UserId, ...] = (ALICE, BOB)
    gate: str = GATE
    is_large: bool = False
    is_member: bool = True  # as known to the caller
    mid: str = "M1"
    digest: str = "d1"
    receiver: str = ""
    tail: str = '"chat":"c1"}'


def sends(count: int, sender: UserId = ALICE, stem: str = "r") -> list[Sending]:
    """Return messages of one sender with different refs."""
    return [Sending(sender, f"{stem}{n}", mid=f"M{n}") for n in range(1, count + 1)]


class Inboxed(NamedTuple):
    """A recipient's inbox seq, and the other gateways where the recipient is online."""

    seq: int
    far: str


class Answer(NamedTuple):
    """The outcome of one message in `accept`."""

    code: int
    seq: int = 0
    ts: int = 0
    place: str = ""
    inboxes: tuple[Inboxed, ...] = ()
    watching: str = ""  # subscribed gateways of a large chat
    why: int = 0  # the restriction of a sender who may not write
    wait_ms: int = 0


class Scripts:
    """Runs the scripts on one Redis."""

    def __init__(self, client: redis.Redis, partitions: int = 1) -> None:
        self.redis: Any = client  # its replies are typed for sync and async at once
        self.keys = Keys(partitions)

    def run(
        self,
        name: str,
        args: Mapping[str, Value] | None = None,
        items: Iterable[Mapping[str, Value]] = (),
        **keys: Value,
    ) -> Any:
        """Run a script with the names of its header; `keys` replace those of `find_keys`."""
        script, args = load_script(name), args or {}
        labels = [label for label in script.keys if label not in keys]
        key_list, arg_list = script.bind(
            {**self.find_keys(labels, args), **keys},
            args,
            [{**self.find_keys(script.item_keys, item), **item} for item in items],
        )
        return self.evaluate(script, key_list, arg_list)

    def find_keys(
        self, labels: Iterable[str], subjects: Mapping[str, Any], partition: int = 0
    ) -> dict[str, Value]:
        """Return the keys of a header: of the chat and user of the arguments, and the partition."""
        found: dict[str, Value] = {}
        for label in labels:
            make = getattr(self.keys, label)
            given = {
                "chat": subjects.get("chat_id", CHAT),
                "user": subjects.get("user", ALICE),
                "partition": partition,
                "work": "persist",
            }
            found[label] = make(*(given[name] for name in inspect.signature(make).parameters))
        return found

    def evaluate(self, script: Script, keys: Sequence[Value], args: Sequence[Value]) -> Any:
        """Run a script with keys and arguments in its own order."""
        return self.redis.eval(script.source, len(keys), *keys, *args)

    def accept(
        self,
        *batch: Sending,
        epoch: str = EPOCH,
        gateway: str = GATEWAY,
        backlog_max: int | None = 1000,
        chat_backlog_max: int = 100_000,
        inbox_max: int = 1000,
        partition: int = 0,
    ) -> list[Answer]:
        """Commit a batch; return the result of each message."""
        script, names = load_script("commit_messages"), self.keys
        key_list, arg_list = script.bind(
            self.find_keys(script.keys, {}, partition),
            {
                "epoch": epoch,
                "gateway": gateway,
                "backlog_max": "" if backlog_max is None else backlog_max,
                "inbox_max": inbox_max,
                "chat_backlog_max": chat_backlog_max,
            },
        )
        chats = group_by_chat(batch)
        for chat, group in chats.items():
            to, is_large = group[-1].to, group[-1].is_large
            key_list += [names.chat(chat), names.members(chat), names.log(chat)]
            key_list += [names.watchers(chat)] if is_large else [names.inbox(user) for user in to]
            arg_list += [
                chat,
                group[-1].gate,
                -1 if is_large else len(to),
                len(group),
            ]
            for each in group:
                arg_list += self._accept_args(script, each, to)
        reply = self.evaluate(script, key_list, arg_list)
        answers = _parse_answers(reply, chats)
        return [answers[each.chat].pop(0) for each in batch]

    def _accept_args(self, script: Script, sending: Sending, to: tuple[UserId, ...]) -> list[Value]:
        is_listed = sending.is_member and (not to or sending.sender in to)
        given: dict[str, Value] = {
            "sender": sending.sender,
            "listed": "1" if is_listed else "0",
            "ref": reference_key(sending.sender, sending.ref),
            "name": format_name(sending.mid, sending.digest),
            "blob": f"{sending.receiver}\n{sending.tail}",
        }
        return [given[name] for name in script.more_args]

    def set_epoch(self, epoch: str) -> None:
        """Set the epoch of Redis."""
        self.redis.hset(self.keys.epoch(0), "epoch", epoch)

    def open_chat(
        self,
        *members: UserId,
        chat: ChatId = CHAT,
        epoch: str = EPOCH,
        seq: int = 0,
        ts: int = 0,
        version: int = 1,
        kind: str = "group",
        name: str = "",
        history: str = "joined",
        large: int = 0,
        newest: Mapping[tuple[UserId, str], str] | None = None,
        redis_epoch: str | None = None,
        uncounted: Sequence[str] = (),
        deleted: Sequence[str] = (),
        changed: str = "",
    ) -> int:
        """Load a chat with the state of the warm tier; `newest` maps (sender, ref) to a place.

        `redis_epoch`: the epoch of Redis, by default `epoch`. `uncounted`: places of entries
        that are not messages. `deleted`: places of deleted messages of the first member.
        """
        script = load_script("load_chat")
        self.set_epoch(epoch if redis_epoch is None else redis_epoch)
        key_list, arg_list = script.bind(
            self.find_keys(script.keys, {"chat_id": chat}),
            {
                "epoch": epoch,
                "seq": seq,
                "ts": str(ts),
                "version": version,
                "kind": kind,
                "name": name,
                "history": history,
                "large": large,
                "ref_ttl_s": 86_400,
                "changed": changed,
                "picture": "",
                "dead": "",
                "members_count": len(members),
            },
        )
        for user in members:
            arg_list += [user, "member:0"]
        for place in deleted:
            key = reference_key(members[0], f"d{place.split(':')[0]}")
            arg_list += [key, packed(place), f"#{members[0]}"]
        for (sender, ref), place in (newest or {}).items():
            author = "" if ref.startswith("change-") else sender  # the entry of a membership change
            arg_list += [reference_key(sender, ref), packed(place), author]
        for place in uncounted:
            arg_list += [reference_key("any", f"a{place.split(':')[0]}"), packed(place), ""]
        opened: int = self.evaluate(script, key_list, arg_list)
        return opened

    def deliver(
        self,
        user: UserId,
        upto: int,
        *,
        after: int = 0,
        chat: ChatId = CHAT,
        inbox_max: int = 1000,
        epoch: str = EPOCH,
    ) -> tuple[int, int, str]:
        """Deliver to one inbox; return the number appended, its head, and the user's gateways."""
        appended, seq, gateways = self.run(
            "append_to_inboxes",
            {"inbox_max": inbox_max},
            [{"user": user, "chat_id": chat, "after": after, "upto": upto, "epoch": epoch}],
        )
        return appended, seq, gateways.decode()

    def finish_fan_outs(self, *done: tuple[ChatId, int]) -> int:
        """Remove chats from the list of unfinished fan-outs; return the number removed."""
        removed: int = self.run(
            "finish_fan_outs", items=[{"chat_id": chat, "upto": upto} for chat, upto in done]
        )
        return removed

    def place(self, user: UserId, gateways: str) -> None:
        """Set a user online on `gateways`, separated by commas."""
        self.redis.hset(self.keys.where(0), user, gateways)

    def list_chat(self, user: UserId, chat: ChatId = CHAT) -> None:
        """Add a chat to the user's list."""
        self.redis.hset(self.keys.box(user), f"c:{chat}", 0)

    # data in Redis

    def hash(self, key: str) -> dict[str, str]:
        """Return a hash as text."""
        return {name.decode(): value.decode() for name, value in self.redis.hgetall(key).items()}

    def head(self, chat: ChatId = CHAT) -> dict[str, str]:
        """Return the head of a chat: the fields of its hash that are not refs."""
        return {
            name.decode(): value.decode()
            for name, value in self.redis.hgetall(self.keys.chat(chat)).items()
            if name[:1] != b"#"
        }

    def refs(self, chat: ChatId = CHAT) -> dict[bytes, str]:
        """Return the refs of a chat, with the place ("seq:ts:mid:digest") of each."""
        return {
            name: ":".join(map(str, parse_ref_record(value)))
            for name, value in self.redis.hgetall(self.keys.chat(chat)).items()
            if name[:1] == b"#"
        }

    def seqs(self) -> dict[str, int]:
        """Return the head of each inbox."""
        prefix, heads = self.keys.inbox(UserId("")), dict[str, int]()
        for key in self.redis.scan_iter(f"{prefix}*"):
            info = self.redis.xinfo_stream(key)
            heads[key.decode().removeprefix(prefix)] = int(info["last-generated-id"].split(b"-")[1])
        return heads

    def box(self, user: UserId) -> dict[str, str]:
        """Return a user's state."""
        return self.hash(self.keys.box(user))

    def inbox(self, user: UserId) -> list[tuple[int, str, str]]:
        """Return a user's inbox, one tuple for each message or event: seq, field, value."""
        found = []
        for name, fields in self.redis.xrange(self.keys.inbox(user)):
            ((field, value),) = fields.items()
            seq, (first, _, last) = int(name.split(b"-")[1]), value.decode().partition("-")
            if field != b"!" and last:
                for cs in range(int(first), int(last) + 1):
                    found.append((seq - int(last) + cs, field.decode(), str(cs)))
            else:
                found.append((seq, field.decode(), value.decode()))
        return found

    def log(self, chat: ChatId = CHAT) -> list[tuple[int, int, str]]:
        """Return a chat's log: seq, ts, blob."""
        return [
            (int(name.split(b"-")[0]), int(ts), blob.decode())
            for name, fields in self.redis.xrange(self.keys.log(chat))
            for ts, blob in fields.items()
        ]

    def count_backlog(self) -> int:
        """Return the number of entries in the backlog; a commit call adds one for all messages."""
        return int(self.redis.xlen(self.keys.backlog(0)))

    def undelivered(self) -> list[str]:
        """Return the chats with an unfinished fan-out."""
        return [name.decode() for name in self.redis.zrange(self.keys.undelivered(0), 0, -1)]


def packed(place: str) -> bytes:
    """Return the stored form of a place "seq:ts:mid:digest"."""
    seq, ts, mid, digest = place.split(":")
    return format_ref_record(int(seq), int(ts), mid, digest)


def group_by_chat(batch: Sequence[Sending]) -> dict[ChatId, list[Sending]]:
    """Return the messages of a batch grouped by chat, as in one call."""
    chats: dict[ChatId, list[Sending]] = {}
    for sending in batch:
        chats.setdefault(sending.chat, []).append(sending)
    return chats


def _parse_answers(
    reply: list[Any], chats: Mapping[ChatId, Sequence[Sending]]
) -> dict[ChatId, list[Answer]]:
    found: dict[ChatId, list[Answer]] = {}
    words = iter(reply)
    for chat, group in chats.items():
        if not next(words):
            found[chat] = [Answer(CLOSED)] * len(group)
            continue
        answers = [_parse_answer(next(words), words) for _ in group]
        if any(answer.code == COMMITTED for answer in answers):
            if group[-1].is_large:
                far = (next(words) or b"").decode()
                found[chat] = [
                    answer._replace(watching=far) if answer.code == COMMITTED else answer
                    for answer in answers
                ]
                continue
            firsts = [int(next(words).split(b"-")[1]) for _ in group[-1].to]
            fars = [next(words) or b"" for _ in firsts] if next(words) else [b""] * len(firsts)
            offset = 0
            for number, answer in enumerate(answers):
                if answer.code == COMMITTED:
                    places = tuple(
                        Inboxed(first + offset, far.decode())
                        for first, far in zip(firsts, fars, strict=True)
                    )
                    answers[number] = answer._replace(inboxes=places)
                    offset += 1
        found[chat] = answers
    assert next(words, None) is None, "the reply has more values than expected"
    return found


def _parse_answer(code: int, words: Iterator[Any]) -> Answer:
    if code in (COMMITTED, UNDELIVERED):
        return Answer(code, next(words), next(words))
    if code == KNOWN:
        return Answer(code, place=":".join(map(str, parse_ref_record(next(words)))))
    if code == RESTRICTED:
        return Answer(code, why=next(words), wait_ms=next(words))
    return Answer(code)
