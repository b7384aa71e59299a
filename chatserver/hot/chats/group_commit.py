"""Group commit: one script call per partition for all sends of an event-loop tick.

A redis-py call costs a gateway about 50 µs; in a script call, each message costs about 3 µs. If no
call is in flight, a message is committed immediately. Otherwise, it waits for the next call, which
is sent one tick after the reply. That call also includes the messages that arrive while the events
from the reply are being sent.

Order: a chat's messages get their seqs in the order of `submit`. If Redis has lost the script, the
drafts in flight return to the head of the queue, in order, before anything else is sent.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, Ts
from chatserver.domain.messages import (
    Audience,
    ChatNotLoaded,
    CommitOutcome,
    CommitRefused,
    DuplicateSend,
    InboxCommit,
    InboxPositions,
    LargeChatCommit,
    PendingDraft,
    SenderNotMember,
    UndeliveredCommit,
    format_name,
    reference_key,
)
from chatserver.domain.write_restrictions import build_refusal
from chatserver.errors import (
    BadRequest,
    ChatError,
    CorruptData,
    Overloaded,
    RateLimited,
    Unavailable,
)
from chatserver.hot.chats.expiring_messages import ExpiringMessages
from chatserver.hot.chats.persist_backlog import AWAITED, BACKLOG_PER_CHAT_MAX
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.pipelined_connection import Reply
from chatserver.hot.redis.replies import translate_reply_error
from chatserver.hot.redis.resp_encoding import pack, pack_count
from chatserver.hot.redis.scripts import Packed, load_script
from chatserver.telemetry import metrics
from chatserver.telemetry.tracing import Tracer, tracer

BATCH_MAX = 128  # maximum messages in one script call
BACKLOG_CHECK_S = 1.0
QUEUE_MAX = 20_000  # maximum drafts of this process that wait for Redis, per partition

# With two calls in flight, the order could change: if the first finds that a chat is not loaded,
# the second could still commit later drafts of that chat.
BATCHES_IN_FLIGHT_MAX = 1

_COMMITTED, _UNDELIVERED, _KNOWN, _NOT_MEMBER, _FULL = 1, 2, 3, 5, 6
_RESTRICTED, _CHAT_FULL, _NO_TARGET = 7, 8, 9

Submission = tuple[PendingDraft, Audience]
OnOutcome = Callable[[PendingDraft, CommitOutcome], None]


class GroupCommit:
    """The commit queue of one partition.

    Bound: with `queue_max` drafts waiting, `submit` raises `Overloaded`.
    """

    def __init__(
        self, *, hot: HotClient, partition: int, gateway: GatewayId, on_outcome: OnOutcome
    ) -> None:
        settings = hot.settings
        self._hot = hot
        self._on_outcome = on_outcome
        self._partition = partition
        self._queue: collections.deque[Submission] = collections.deque()
        self._queue_max = QUEUE_MAX
        self._batch_max = BATCH_MAX
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        # Monotonic time (s) at which the oldest queued draft arrived or the last batch was sent,
        # whichever is later.
        self._since = 0.0
        self._is_scheduled = False
        self._is_reloading = False
        self._returned: list[list[Submission]] = []
        self._script = load_script("commit_messages")
        self._tracer = tracer()
        self._backlog = hot.keys.backlog(partition)
        self._epoch, self._epoch_packed = Epoch(""), b""  # the epoch of the last call
        keys = (
            self._backlog,
            hot.keys.undelivered(partition),
            hot.keys.where(partition),
        )
        limits = pack(str(settings.inbox_max).encode(), str(BACKLOG_PER_CHAT_MAX).encode())
        self._expiring = ExpiringMessages(hot)
        self._keys_count, self._args_count = len(keys), 5
        self._keys = pack(*(key.encode() for key in keys))
        self._limits = pack(gateway.encode(), b"") + limits
        # The script checks the length of the backlog once in `BACKLOG_CHECK_S`, and while it is
        # full.
        self._checked_limits = pack(gateway.encode(), str(settings.backlog_max).encode()) + limits
        self._check_at = 0.0  # monotonic time (s) of the next check
        self._name = pack(b"EVALSHA", self._script.sha.encode())

    def submit(self, draft: PendingDraft, audience: Audience) -> None:
        """Queue a draft for the next call.

        Guarantees:
            Order: a chat's drafts are committed in the order of `submit`. If the chat is not
                loaded, all its queued drafts are returned together, so that no later draft is
                committed first.
            Outcome: `on_outcome` is called exactly once for the draft, after `submit` returns.

        Raises:
            Overloaded: too many drafts are waiting.
        """
        if len(self._queue) >= self._queue_max:
            raise Overloaded(
                "too many messages are waiting for Redis; try again", retry_after_ms=500
            )
        if not self._queue:
            self._since = time.monotonic()
        self._queue.append((draft, audience))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        while self._queue and self._in_flight < BATCHES_IN_FLIGHT_MAX and not self._is_reloading:
            size = min(len(self._queue), self._batch_max)
            self._send([self._queue.popleft() for _ in range(size)])
            self._since = time.monotonic()

    def _send(self, batch: list[Submission]) -> None:
        epoch = self._hot.get_epoch(self._partition)
        chats: dict[ChatId, list[Submission]] = {}
        for submission in batch:
            chats.setdefault(submission[0].chat, []).append(submission)
        for chat, submissions in list(chats.items()):
            # Drafts are queued with the newest audience, so the last one has the newest retention.
            # Drafts between the first and the last one get it, too, if these two have the same.
            if submissions[0][1].retention_s != submissions[-1][1].retention_s:
                # The retention changed between these drafts: return all of them, in order.
                del chats[chat]
                batch = [draft for drafts in chats.values() for draft in drafts]
                self._return_drafts(chat, submissions)
        if not batch:
            return
        self._in_flight += 1
        since, sent_ns = self._since, 0 if self._tracer is None else time.time_ns()

        def on_reply(reply: Reply) -> None:
            self._in_flight -= 1
            if self._tracer is not None:
                self._record_spans(self._tracer, batch, sent_ns)
            self._handle_reply(batch, chats, epoch, reply)
            metrics.SEND_LATENCY.observe(time.monotonic() - since)
            if self._queue and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._loop.call_soon, self._flush)

        self._hot.commit(on_reply, self._pack(epoch, chats))
        metrics.COMMIT_BATCH.observe(len(batch))
        first = batch[0][1]
        if not first.is_large:
            metrics.FAN_OUT.observe(len(first.users))

    def _record_spans(self, tracer: Tracer, batch: list[Submission], sent_ns: int) -> None:
        now_ns, labels = time.time_ns(), {"partition": self._partition, "batch": len(batch)}
        for draft, _ in batch:
            tracer.record_span(draft.mid, "commit", sent_ns, now_ns, chat=draft.chat, **labels)

    def _return_drafts(self, chat: ChatId, submissions: list[Submission]) -> None:
        """Return `submissions` and the chat's queued drafts as not loaded, in order."""
        waiting = [queued for queued in self._queue if queued[0].chat == chat]
        if waiting:
            others = (queued for queued in self._queue if queued[0].chat != chat)
            self._queue = collections.deque(others)
        for draft, _ in (*submissions, *waiting):
            self._on_outcome(draft, ChatNotLoaded())

    def _pack(self, epoch: Epoch, chats: dict[ChatId, list[Submission]]) -> Packed:
        """Encode the call as bytes, with the encoded keys and arguments of each audience."""
        if epoch != self._epoch:
            self._epoch, self._epoch_packed = epoch, pack(epoch.encode())
        keys, keys_count = [self._keys], self._keys_count
        args = [self._epoch_packed, self._limits]
        if self._since >= self._check_at:
            args[1], self._check_at = self._checked_limits, self._since + BACKLOG_CHECK_S
        args_count = self._args_count
        for submissions in chats.values():
            # Drafts of a chat in one tick may have audiences of two versions. Use the newer
            # audience, which is most likely current; the commit checks it.
            audience = submissions[-1][1]
            keys.append(audience.keys_packed)
            args.append(audience.args_packed)
            args.append(pack_count(len(submissions)))
            keys_count += audience.keys_count
            args_count += 4 + 5 * len(submissions)
            for draft, _ in submissions:
                sender = draft.sender
                name = format_name(draft.mid, draft.digest)
                prefix, tail = audience.prefix_of.get(sender, b"\n"), draft.tail
                if draft.is_stored_wanted:
                    prefix = AWAITED + prefix
                packed = audience.sender_packed.get(sender)
                if packed is None or draft.reply_to is not None or draft.is_system:
                    packed = _pack_sender(draft, is_listed=packed is not None)
                args.append(
                    b"$11\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b%b\r\n"
                    % (
                        reference_key(sender, draft.ref),
                        packed,
                        len(name), name, len(prefix) + len(tail), prefix, tail,
                    )
                )  # fmt: skip
        call = Packed(
            b"*%d\r\n%b%b%b%b"
            % (
                3 + keys_count + args_count,
                self._name,
                pack_count(keys_count),
                b"".join(keys),
                b"".join(args),
            )
        )
        call.key = self._backlog
        return call

    def _handle_reply(
        self,
        batch: list[Submission],
        chats: dict[ChatId, list[Submission]],
        epoch: Epoch,
        reply: Reply,
    ) -> None:
        if isinstance(reply, Exception):
            if str(reply).startswith("NOSCRIPT"):
                self._requeue(batch)
                return
            error = translate_reply_error(reply)
            for draft, _ in batch:
                self._on_outcome(draft, CommitRefused(error))
        else:
            offset = 0
            for chat, submissions in chats.items():
                offset = self._dispatch(chat, submissions, epoch, reply, offset)
        if self._is_reloading and self._in_flight == 0:
            self._resume()

    def _dispatch(
        self, chat: ChatId, submissions: list[Submission], epoch: Epoch, reply: Reply, index: int
    ) -> int:
        """Report one chat's results, which start at `reply[index]`; return the index after them."""
        is_open = reply[index]
        index += 1
        if not is_open:
            self._return_drafts(chat, submissions)
            return index
        audience = submissions[-1][1]
        committed: list[tuple[PendingDraft, Seq, Ts]] = []
        for draft, _ in submissions:
            code = reply[index]
            if draft.expires_at is not None and code in (_COMMITTED, _UNDELIVERED):
                self._expiring.add(chat, {reply[index + 1]: draft.expires_at})
            if code == _COMMITTED:
                committed.append((draft, reply[index + 1], reply[index + 2]))
                index += 3
            elif code == _UNDELIVERED:
                self._on_outcome(draft, UndeliveredCommit(reply[index + 1], reply[index + 2]))
                index += 3
            elif code == _KNOWN:
                self._on_outcome(draft, DuplicateSend(reply[index + 1]))
                index += 2
            elif code == _RESTRICTED:
                refusal = build_refusal(reply[index + 1], reply[index + 2])
                if isinstance(refusal, RateLimited):
                    metrics.RATE_LIMITED.labels("slow_mode").inc()
                self._on_outcome(draft, CommitRefused(refusal))
                index += 3
            else:
                index += 1
                self._refuse(draft, code)
        if committed and audience.is_large:
            gateways = reply[index]
            index += 1
            for draft, seq, ts in committed:
                self._on_outcome(draft, LargeChatCommit(seq, ts, epoch, gateways))
        elif committed:
            count = len(audience.inline_users)
            firsts = [Seq(int(entry_id[2:])) for entry_id in reply[index : index + count]]
            index += count + 1
            remote_users = None
            if reply[index - 1]:
                remote_users = reply[index : index + count]
                index += count
            for offset, (draft, seq, ts) in enumerate(committed):
                positions = InboxPositions(firsts, offset, remote_users)
                self._on_outcome(
                    draft, InboxCommit(seq, ts, epoch, audience.inline_users, positions)
                )
        return index

    def _refuse(self, draft: PendingDraft, code: object) -> None:
        error: ChatError
        if code == _NOT_MEMBER:
            self._on_outcome(draft, SenderNotMember())
            return
        if code == _FULL:
            self._check_at = 0.0
            error = Overloaded("the backlog is full; wait until messages are persisted")
        elif code == _NO_TARGET:
            error = BadRequest("reply_to: the chat has no message with this seq")
        elif code == _CHAT_FULL:
            metrics.RATE_LIMITED.labels("chat_backlog").inc()
            reason = "too many messages in this chat are not stored yet; wait, then try again"
            error = RateLimited(reason, retry_after_ms=1000)
        else:
            error = CorruptData(f"commit_messages.lua returned {code!r}")
        self._on_outcome(draft, CommitRefused(error))

    # If Redis has lost the script: queue all drafts again in order, load the script, and resume.

    def _requeue(self, batch: list[Submission]) -> None:
        self._is_reloading = True
        self._returned.append(batch)
        if self._in_flight == 0:
            self._resume()

    def _resume(self) -> None:
        for batch in reversed(self._returned):
            self._queue.extendleft(reversed(batch))
        self._returned.clear()

        def on_loaded(reply: Reply) -> None:
            self._is_reloading = False
            if isinstance(reply, Exception):
                error = Unavailable("redis: cannot load scripts")
                waiting, self._queue = self._queue, collections.deque()
                for draft, _ in waiting:
                    self._on_outcome(draft, CommitRefused(error))
            else:
                self._schedule()

        self._hot.send(on_loaded, "SCRIPT", "LOAD", self._script.source)


def _pack_sender(draft: PendingDraft, *, is_listed: bool) -> bytes:
    """Encode the script's arguments `sender` and `listed`; see ``commit_messages.lua``."""
    listed = "s" if draft.is_system else "1" if is_listed else "0"
    if draft.reply_to is not None:
        listed += f":{draft.reply_to}"
    return pack(draft.sender.encode(), listed.encode())


class PartitionedCommit:
    """The commit queues of all partitions."""

    def __init__(self, hot: HotClient, gateway: GatewayId, on_outcome: OnOutcome) -> None:
        self._get_partition = hot.keys.get_partition
        self._queues = [
            GroupCommit(hot=hot, partition=partition, gateway=gateway, on_outcome=on_outcome)
            for partition in range(hot.keys.partitions)
        ]

    def submit(self, draft: PendingDraft, audience: Audience) -> None:
        self._queues[self._get_partition(draft.chat)].submit(draft, audience)
