"""Large-chat delivery: a gateway reads each chat's log once for all of its sessions.

Sessions that have received every entry are in `Channel.caught_up`; an entry is encoded once for all
of them. The other sessions are in `Channel.positions`. A session whose position is below the
channel's `seq` reads the log itself. A session whose position is above it (another gateway has sent
its device more entries) waits for the channel. Entries arrive in any order, from local commits and
from other gateways; missing entries are read from the log.

Every member's inbox gets an event when a chat becomes large, and another event when it becomes
small again. Each session switches delivery paths at these events: `begin` runs after the first one,
`finish` before the second one. In between, the channel delivers the chat's entries, even if the
chat is no longer large. A channel ends when a read returns another value of `Channel.large`.

Invariants: every session in a channel gets each entry once and in order (guarantee P4). A session
leaves the channel before the `member` entry that removes its user, which the inbox delivers, and
receives no later entries (guarantee P7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

import structlog

from chatserver.domain.ids import ChatId, Epoch, Seq, UserId
from chatserver.errors import ChatError, NotFound
from chatserver.gateway.delivery.large_chat_channel import (
    Channel,
    ChannelReader,
    ChannelStart,
    LargeChatPositions,
    LargeChatTransition,
    find_removed_user,
    is_leaving,
)
from chatserver.gateway.transport.frame_codec import encode_text_frame
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions, LargeHead
from chatserver.protocol import codec, frames
from chatserver.service.history.large_chat_log import ChannelEntry, LargeChatLog

log = structlog.get_logger()

PAGE = 200


class LargeChatDelivery:
    """One gateway's large-chat channels. `device_epoch` returns the epoch sent to devices."""

    def __init__(
        self,
        *,
        subscriptions: LargeChatSubscriptions,
        chat_log: LargeChatLog,
        open_chat: Callable[[ChatId], Awaitable[object]],
        list_sessions: Callable[[UserId], Sequence[ChannelReader]],
        spawn: Callable[[Coroutine[object, object, None], str], None],
        device_epoch: Callable[[], Epoch],
        record_new_event: Callable[[bytes, int], None] = lambda body, count: None,
    ) -> None:
        self._record_new_event = record_new_event
        self._subscriptions = subscriptions
        self._chat_log = chat_log
        self._open_chat = open_chat
        self._list_sessions = list_sessions
        self._spawn = spawn
        self._device_epoch = device_epoch
        self._frame_epoch, self._frame_head = Epoch(""), b""
        self._channels: dict[ChatId, Channel] = {}
        self._channels_by_session: dict[ChannelReader, dict[ChatId, Channel]] = {}
        # Positions in chats without a channel; see `LargeChatPositions.remembered`.
        self._remembered: dict[ChannelReader, dict[ChatId, tuple[Seq, bool]]] = {}

    # attach and detach

    async def open_for(
        self, user: UserId, start: Seq, known_seqs: Mapping[str, int] | None = None
    ) -> LargeChatPositions:
        """Return the large-chat positions of a session that resumes its inbox at `start`.

        `known_seqs`: the last seq that the device has, by chat. Chats that became large or
        small after inbox seq `start` are omitted; the session handles that inbox event later.

        Guarantees:
            Cost: two Redis calls for a user with large chats, regardless of how many there are.

        Raises:
            Unavailable: Redis does not respond.
        """
        chats = await self._subscriptions.list_large(user)
        current = [c for c, each in chats.items() if each.until is None and each.notice <= start]
        positions = LargeChatPositions(
            [], {chat: (Seq(seq), False) for chat, seq in _parse_known(known_seqs)}, {}
        )
        for chat, head in zip(current, await self._listen(current, user), strict=True):
            if head is None:
                known_seq = (known_seqs or {}).get(chat, 0)
                positions.closed[chat] = Seq(max(known_seq, chats[chat].since))
                continue
            previous = (known_seqs or {}).get(chat, head.seq)
            if previous > head.seq:
                positions.closed[chat] = head.seq  # the device has a seq from another epoch
                continue
            position = Seq(max(previous, chats[chat].since, head.joined - 1))
            if head.joined and head.large:
                positions.remembered.pop(chat, None)
                channel = self._get_or_create_channel(chat, head)
                positions.starts.append(ChannelStart(channel, position, head.joined))
            else:
                positions.remembered[chat] = (position, True)  # `finish` sends what is above it
        return positions

    async def _listen(self, chats: Sequence[ChatId], user: UserId) -> list[LargeHead | None]:
        """Subscribe to chats, loading them if needed; return their states (None: not loaded)."""
        if not chats:
            return []
        heads: dict[ChatId, LargeHead] = dict(
            zip(chats, await self._subscriptions.subscribe(chats, user), strict=True)
        )
        closed = [chat for chat, head in heads.items() if not head.is_open]
        if closed:
            await asyncio.gather(*map(self._try_to_load, closed))
            heads |= zip(closed, await self._subscriptions.subscribe(closed, user), strict=True)
        return [head if head.is_open else None for head in heads.values()]

    async def _try_to_load(self, chat: ChatId) -> None:
        try:
            await self._open_chat(chat)
        except ChatError as exc:
            log.warning("channel.load_failed", chat=chat, error=exc.message)

    def _get_or_create_channel(self, chat: ChatId, head: LargeHead) -> Channel:
        channel = self._channels.get(chat)
        if channel is not None and channel.version == (head.epoch, head.large):
            return channel
        if channel is not None:
            self._end(channel, head.epoch)
        channel = self._channels[chat] = Channel(
            chat=chat, epoch=head.epoch, large=head.large, seq=head.seq
        )
        return channel

    def enter(self, session: ChannelReader, positions: LargeChatPositions) -> None:
        """Attach the session to its large chats, and send the entries above its positions."""
        self._remembered.setdefault(session, {}).update(positions.remembered)
        for start in positions.starts:
            self.attach(session, start)
        for chat in positions.closed:
            session.recover_chat(chat)

    def attach(self, session: ChannelReader, start: ChannelStart) -> None:
        """Send the session every entry above its position, then each new entry."""
        channel, after, first = start
        chats = self._channels_by_session.setdefault(session, {})
        if channel.chat in chats:
            return
        current = self._channels.setdefault(channel.chat, channel)
        if current.version != channel.version:
            self._set_position(session, channel.chat, after)
            if current.epoch != channel.epoch:
                session.recover_chat(channel.chat)
            return
        channel = current
        self._remembered.get(session, {}).pop(channel.chat, None)
        chats[channel.chat] = channel
        channel.firsts[session] = first
        if after == channel.seq:
            channel.caught_up[session] = None
            return
        channel.positions[session] = after
        if after > channel.seq:
            self._notify_seq(channel, after)
        else:
            self._spawn(self._catch_up(session, channel), f"catch-up-{channel.chat}")

    async def find_again(self, session: ChannelReader, chat: ChatId) -> ChannelStart | None:
        """Return where delivery of a chat to a session resumes; None if it must not resume.

        Raises:
            Unavailable: a tier does not respond.
        """
        (head,) = await self._subscriptions.subscribe([chat], session.user)
        if not head.is_open:
            try:
                await self._open_chat(chat)
            except NotFound:
                return None
            (head,) = await self._subscriptions.subscribe([chat], session.user)
        large = await self._subscriptions.find_large(session.user, chat)
        if not head.joined or not head.large or (large is not None and large.until is not None):
            return None  # not a member, or the chat's entries are in the inbox
        return ChannelStart(self._get_or_create_channel(chat, head), head.seq, head.joined)

    def list_positions(self, session: ChannelReader) -> list[frames.LargeChat]:
        """Return the session's large chats, each with the last chat seq sent to it."""
        chats = self._channels_by_session.get(session, {}).items()
        positions = ((chat, channel.get_position(session)) for chat, channel in chats)
        return [frames.LargeChat(chat, seq) for chat, seq in positions if seq is not None]

    async def begin(self, session: ChannelReader, chat: ChatId, since: Seq, notice: Seq) -> None:
        """Deliver entries above `since` from the chat's log, as inbox event `notice` announced."""
        if chat in self._channels_by_session.get(session, {}):
            return
        self._set_position(session, chat, since)
        epoch = self._device_epoch()
        try:
            large = await self._subscriptions.find_large(session.user, chat)
            if large is None or large.notice != notice or large.until is not None:
                return  # The chat has become small since; `finish` handles that inbox event.
            (head,) = await self._listen([chat], session.user)
        except ChatError as exc:
            log.warning("channel.entry_delayed", chat=chat, error=exc.message)
            session.recover_chat(chat)
            return
        if self._device_epoch() != epoch:
            return
        if head is None:
            session.recover_chat(chat)
        elif head.joined and head.large and session in self._remembered:
            start = ChannelStart(self._get_or_create_channel(chat, head), since, head.joined)
            self.attach(session, start)

    async def finish(
        self, session: ChannelReader, transition: LargeChatTransition, notice: Seq
    ) -> None:
        """End large-chat delivery at `transition.since`, before inbox event `notice` is sent.

        Missing entries up to `since` are sent first. If the session's position is unknown, the
        chat's summary (its chat list item) is sent instead.

        Raises:
            Unavailable: Redis does not respond; the session can retry.
        """
        chat, upto, epoch = transition.chat, transition.since, self._device_epoch()
        if (channel := self._channels_by_session.get(session, {}).get(chat)) is not None:
            position = channel.get_position(session)
            if position is not None and position > upto:
                return  # An old notice: the session attached after its user had joined again.
            self._detach_one(session, channel, channel.seq if position is None else position)
        remembered = self._remembered.get(session, {})
        previous = remembered.get(chat)
        if previous is None or not previous[1]:
            since = await self._subscriptions.find_since(session.user, chat, notice)
            if previous is None and (transition.is_removal if since is None else since >= upto):
                return  # Nothing is missing: the chat was small, or had no entries while large.
            if previous is None or since is None:
                remembered.pop(chat, None)
                session.recover_chat(chat)
                return
            previous = max(previous[0], since), True
        position = previous[0]
        while position < upto and session in self._remembered:
            self._set_position(session, chat, position)
            await session.wait_for_room()
            limit = min(PAGE, upto - position)
            entries = await self._chat_log.list_for(session.user, chat, position, limit)
            if session not in self._remembered or self._device_epoch() != epoch:
                return
            if not entries or entries[0].seq != position + 1:
                session.recover_chat(chat)
                break
            position = self._send_page(session, position, entries, upto)
        remembered.pop(chat, None)

    def detach(self, session: ChannelReader) -> None:
        """Stop all large-chat delivery to the session."""
        for channel in self._channels_by_session.pop(session, {}).values():
            channel.drop(session)
            self._drop_if_empty(channel)
        self._remembered.pop(session, None)

    def handle_epoch_change(self) -> None:
        """Detach all sessions; each gets no large-chat entries until its `reset` is sent."""
        for channels in self._channels_by_session.values():
            for channel in channels.values():  # Reads in progress then find no sessions.
                channel.caught_up.clear()
                channel.positions.clear()
        self._channels.clear()
        self._channels_by_session.clear()
        self._remembered.clear()

    def _set_position(self, session: ChannelReader, chat: ChatId, position: Seq) -> None:
        remembered = self._remembered.get(session)
        if remembered is not None:
            remembered[chat] = (position, True)

    def _detach_one(self, session: ChannelReader, channel: Channel, position: Seq | None) -> None:
        """Detach a session. `position` is the last chat seq sent to it; None if unknown."""
        channel.drop(session)
        self._channels_by_session.get(session, {}).pop(channel.chat, None)
        if position is not None:
            self._set_position(session, channel.chat, position)
        self._drop_if_empty(channel)

    def _drop_if_empty(self, channel: Channel) -> None:
        if channel.is_empty and self._channels.get(channel.chat) is channel:
            del self._channels[channel.chat]
            self._spawn(self._leave(channel.chat), f"leave-{channel.chat}")

    async def _leave(self, chat: ChatId) -> None:
        try:
            if chat not in self._channels:
                await self._subscriptions.unsubscribe([chat])
            if chat in self._channels:
                await self._subscriptions.subscribe([chat])  # a session was attached meanwhile
        except ChatError as exc:
            # No retry is needed, because the subscription expires.
            log.warning("channel.unsubscribe_failed", chat=chat, error=exc.message)

    # entries

    def push(self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes) -> None:
        """Deliver an entry to all local sessions. If entries before it are missing, read the log.

        `body` has the format of an inbox event.
        """
        channel = self._channels.get(chat)
        if channel is None or channel.epoch != epoch or seq <= channel.seq:
            return
        if seq == channel.seq + 1 and not channel.is_filling:
            self._deliver(channel, ChannelEntry(seq, body))
        else:
            self._notify_seq(channel, seq)

    def notify_seq(self, chat: ChatId, seq: Seq) -> None:
        """Read the log after the chat has grown to `seq`."""
        channel = self._channels.get(chat)
        if channel is not None and seq > channel.seq:
            self._notify_seq(channel, seq)

    def send_signal(self, chat: ChatId, user: UserId, frame: bytes) -> None:
        """Send a signal from `user` to the other local members."""
        channel = self._channels.get(chat)
        if channel is not None:
            for session in [*channel.caught_up, *channel.positions]:
                if session.user != user:
                    session.send_signal(frame)

    def _notify_seq(self, channel: Channel, seq: Seq) -> None:
        channel.head = max(channel.head, seq)
        if not channel.is_filling:
            channel.is_filling = True
            self._spawn(self._fill(channel), f"fill-{channel.chat}")

    def _encode_frame(self, body: bytes) -> bytes:
        epoch = self._device_epoch()
        if epoch != self._frame_epoch:
            self._frame_epoch, self._frame_head = epoch, codec.encode_event_head(epoch) + b"0"
        return encode_text_frame(self._frame_head + body)

    def _deliver(self, channel: Channel, entry: ChannelEntry) -> None:
        seq, body = entry.seq, entry.body
        removed = find_removed_user(body)
        if removed is not None:
            self._detach_user(channel, removed, seq)
        channel.seq = seq
        channel.head = max(channel.head, seq)
        frame = self._encode_frame(body)
        # Copy the list, because sessions that turn out to be slow are removed during the loop.
        caught_up = list(channel.caught_up)
        if entry.withheld:
            withheld = self._encode_frame(entry.withheld)
            for session in caught_up:
                is_visible = channel.firsts.get(session, seq) <= entry.target
                session.send_frame(frame if is_visible else withheld)
        else:
            for session in caught_up:
                session.send_frame(frame)
        if caught_up:
            self._record_new_event(body, len(caught_up))
        if channel.positions:
            channel.mark_caught_up()

    def _detach_user(self, channel: Channel, user: UserId, seq: Seq) -> None:
        """Detach the sessions of `user` before the entry at `seq` that removes the user.

        A session below `seq` reads the entry in `_catch_up`. A session at or above `seq` stays
        attached, because its user has joined again.
        """
        for session in list(self._list_sessions(user)):
            if session in channel.caught_up:
                self._detach_one(session, channel, Seq(seq - 1))

    async def _fill(self, channel: Channel) -> None:
        """Read the log above `channel.seq`, and deliver the entries up to `channel.head`."""
        try:
            while channel.seq < channel.head:
                large, entries = await self._chat_log.list_live(channel.chat, channel.seq, PAGE)
                if large is not None and large != channel.large:
                    self._end(channel, channel.epoch)
                    return
                for entry in entries:
                    if entry.seq > channel.seq + 1:
                        self._skip_gap(channel, Seq(entry.seq - 1))
                    if entry.seq == channel.seq + 1:
                        self._deliver(channel, entry)
                if not entries:
                    self._reset_head(channel)
        except ChatError as exc:
            log.warning("channel.fill_stopped", chat=channel.chat, error=exc.message)
            channel.head = channel.seq  # `refresh` reads the chat's head again
        finally:
            channel.is_filling = False

    def _reset_head(self, channel: Channel) -> None:
        """Lower the head to `channel.seq`, the end of the log; recover the sessions above it."""
        channel.head = channel.seq
        self._detach_and_recover(
            [s for s, position in channel.positions.items() if position > channel.seq], channel
        )

    def _skip_gap(self, channel: Channel, upto: Seq) -> None:
        """Skip a gap: entries up to `upto` were trimmed from the log."""
        # Sessions below `channel.seq` still read the log; those at or above `upto` missed nothing.
        missed = [s for s, position in channel.positions.items() if channel.seq < position < upto]
        missed += channel.caught_up
        channel.seq = upto
        self._detach_and_recover(missed, channel)
        channel.mark_caught_up()

    def _detach_and_recover(self, sessions: Sequence[ChannelReader], channel: Channel) -> None:
        """Detach sessions, and send the chat's summary instead of the entries that they missed."""
        # A missed entry may have removed the session's user, so delivery cannot just continue.
        for session in sessions:
            self._detach_one(session, channel, None)
            session.recover_chat(channel.chat)

    def _end(self, channel: Channel, epoch: Epoch) -> None:
        """End an outdated channel. In the same epoch, `finish` sends the remaining entries."""
        if self._channels.get(channel.chat) is channel:
            del self._channels[channel.chat]
            self._spawn(self._leave(channel.chat), f"leave-{channel.chat}")
        channel.head = channel.seq
        if epoch != channel.epoch:
            # The hot tier has a new epoch: all sessions start from a snapshot.
            self._detach_and_recover([*channel.caught_up, *channel.positions], channel)

    async def _catch_up(self, session: ChannelReader, channel: Channel) -> None:
        """Read the log for one session until it has caught up with the channel."""
        chat = channel.chat
        try:
            while (position := channel.positions.get(session)) is not None:
                if position >= channel.seq:
                    channel.mark_caught_up()
                    return
                await session.wait_for_room()
                entries = await self._chat_log.list_for(session.user, chat, position, PAGE)
                if channel.positions.get(session) != position:
                    return
                if not entries or entries[0].seq != position + 1:
                    self._detach_and_recover([session], channel)
                    return
                position = self._send_page(session, position, entries, channel.seq)
                if session in channel.positions:
                    channel.positions[session] = position
                    if position < channel.seq and is_leaving(session, position, entries):
                        self._detach_one(session, channel, position)
        except ChatError as exc:
            log.warning("channel.catch_up_stopped", chat=chat, error=exc.message)
            if session in channel.positions:
                self._detach_and_recover([session], channel)

    def _send_page(
        self, session: ChannelReader, position: Seq, entries: Sequence[ChannelEntry], upto: Seq
    ) -> Seq:
        """Send contiguous entries above chat seq `position`. Return the last seq sent.

        Stops at `upto`, or before the entry that removes the user.
        """
        for seq, body, *_ in entries:
            if seq != position + 1 or seq > upto or find_removed_user(body) == session.user:
                break
            session.send_frame(self._encode_frame(body))
            position = seq
        return position

    # refresh

    async def refresh(self) -> None:
        """Renew the subscriptions, and find entries whose delivery was lost.

        Raises:
            Unavailable: Redis does not respond.
        """
        for opened in list(self._channels.values()):
            self._drop_if_empty(opened)  # empty if its session ended before `attach`
        chats = list(self._channels)
        for chat, head in zip(chats, await self._subscriptions.subscribe(chats), strict=True):
            channel = self._channels.get(chat)
            if channel is None:
                continue
            is_other = head.is_open and head.large != channel.large
            if head.epoch != channel.epoch or is_other:
                self._end(channel, head.epoch)
            elif head.is_open and head.seq > channel.seq:
                self._notify_seq(channel, head.seq)


def _parse_known(known_seqs: Mapping[str, int] | None) -> list[tuple[ChatId, int]]:
    return [(ChatId(chat), seq) for chat, seq in (known_seqs or {}).items()]
