"""Brings events and signals to devices: those here at once, those elsewhere through mailboxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, assert_never

from chatserver.domain.ids import ChatId, Epoch, GatewayId, Seq, SessionId, UserId
from chatserver.domain.logins import Marks
from chatserver.domain.messages import Places
from chatserver.domain.presence import Sight, State
from chatserver.gateway.channels import Channels
from chatserver.gateway.desk import Tally
from chatserver.gateway.framing import text_frame, text_header
from chatserver.gateway.registry import Registry
from chatserver.hot.mailbox import (
    Answer,
    AnyRecord,
    ChannelSignal,
    Echo,
    EndSessions,
    Nudge,
    Postman,
    Publish,
    Push,
    Replaced,
    SightMail,
    SignalMail,
    StoredMail,
)
from chatserver.hot.posting import Poster
from chatserver.hot.rpc import WarmCalls
from chatserver.protocol import codec, frames
from chatserver.service.stored import StoredWaits


class Router:
    """The pushes of one gateway. An event is encoded once per inbox place, not per device."""

    def __init__(
        self,
        gateway: GatewayId,
        registry: Registry,
        postman: Postman,
        stored: StoredWaits,
        warm: WarmCalls,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self._far = Poster(postman, gateway)
        self._registry = registry
        self._by_user = registry.by_user
        # As of the last push: the epoch of its partition, what devices are told, and how an event
        # frame begins; and the latter two for every epoch met since any of them changed.
        self._epoch = self._told = Epoch("")
        self._head = b""
        self._heads: dict[Epoch, tuple[Epoch, bytes]] = {}
        self._postman = postman
        self.channels: Channels  # set by the server, once it has the parts they work with
        self._stored = stored
        self._warm = warm
        # Told of what concerns the places of sessions; set by who keeps those.
        self.on_sight: Callable[[UserId, Sight], None] = lambda user, sight: None
        self.on_replaced: Callable[[UserId, SessionId], None] = lambda user, session: None
        self.on_revoked: Callable[[UserId, Marks, str], None] = lambda user, marks, why: None
        self.on_echo: Callable[[Echo], None] = lambda echo: None

    # what this gateway has to tell

    def push(self, users: Sequence[UserId], epoch: Epoch, places: Places, body: bytes) -> None:
        """Bring an event to the devices of `users`, each at its place of the inbox."""
        if epoch != self._epoch:
            self._turn_to(epoch)
        by_user, head, offset, told = self._by_user, self._head, places.offset, self._told
        shared = len(head) + len(body)
        tally = self._tally
        pushed = tally.pushed
        for user, first in zip(users, places.firsts, strict=True):
            sessions = by_user.get(user)
            if sessions:
                seq = Seq(first + offset)
                place = b"%d" % seq
                length = shared + len(place)
                header = text_header(length)
                # In pieces: the body, by far the longest, is copied once, into the socket's buffer.
                parts = (header, head, place, body)
                for session in sessions:
                    session.push(told, seq, parts, length + len(header))
        # Once in a turn, if traces are off: what is late is late for all that is written together.
        if (tally.first is None or tally.traced is not None) and tally.pushed != pushed:
            tally.note_fresh(body, tally.pushed - pushed)
        if places.far is not None:
            self._far.push(users, epoch, places, body)

    def _turn_to(self, epoch: Epoch) -> None:
        found = self._heads.get(epoch)
        if found is None:
            told = self._postman.told_epoch(epoch)
            found = self._heads[epoch] = (told, codec.event_head(told))
        self._epoch, (self._told, self._head) = epoch, found

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Say that the inbox has grown to `seq`: sessions read what they lack."""
        self._nudge_here(user, seq)
        self._far.nudge(user, seq, gateways)

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: bytes | Literal[0]
    ) -> None:
        """Bring an entry of a large chat to its members here; `far`: gateways with others."""
        self.channels.push(chat, epoch, seq, body)
        self._far.publish(chat, epoch, seq, body, far)

    def nudge_channel(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Say that a large chat has grown to `seq`."""
        self.channels.nudge(chat, seq)
        self._far.nudge_channel(chat, seq, gateways)

    def _nudge_here(self, user: UserId, seq: Seq) -> None:
        for session in self._registry.sessions_of(user):
            session.nudge(seq)

    def signal(self, user: UserId, frame: bytes, gateways: Sequence[GatewayId]) -> None:
        """Bring a signal to the user's devices; best effort."""
        self._signal_here(user, frame)
        self._far.signal(user, frame, gateways)

    def signal_channel(
        self, chat: ChatId, user: UserId, frame: bytes, gateways: Sequence[GatewayId]
    ) -> None:
        """Bring a signal of `user` to the other members of a large chat; best effort."""
        self.channels.signal(chat, user, frame)
        self._far.signal_channel(chat, user, frame, gateways)

    def _signal_here(self, user: UserId, frame: bytes) -> None:
        for session in self._registry.sessions_of(user):
            session.signal(frame)

    def forget_epoch(self) -> None:
        """The epoch of some partition is another one, so devices are told another, too."""
        self._epoch = Epoch("")
        self._heads.clear()

    # what others tell this gateway

    def take(self, record: AnyRecord) -> None:
        """Act on a record of the mailbox."""
        match record:
            case Push():
                users = [UserId(user) for user in record.users]
                here = Places([Seq(seq) for seq in record.seqs], 0, None)
                self.push(users, Epoch(record.epoch), here, record.body)
            case Nudge():
                self._nudge_here(UserId(record.user), Seq(record.seq))
            case Publish() if record.body:
                self.channels.push(
                    ChatId(record.chat), Epoch(record.epoch), Seq(record.seq), record.body
                )
            case Publish():
                self.channels.nudge(ChatId(record.chat), Seq(record.seq))
            case ChannelSignal():
                self.channels.signal(ChatId(record.chat), UserId(record.user), record.frame)
            case SignalMail():
                self._signal_here(UserId(record.user), record.frame)
            case StoredMail():
                self._take_stored(record)
            case SightMail():
                sight = Sight(State(record.state), record.last_ms, record.version)
                self.on_sight(UserId(record.user), sight)
            case Replaced():
                self.on_replaced(UserId(record.user), SessionId(record.session))
            case EndSessions():
                marks = Marks(record.before, frozenset(record.logins), record.is_banned)
                self.on_revoked(UserId(record.user), marks, record.reason)
            case Answer():
                self._warm.answered(record)
            case Echo():
                self.on_echo(record)
            case _ as never:
                assert_never(never)

    def _take_stored(self, record: StoredMail) -> None:
        chat, upto = ChatId(record.chat), Seq(record.upto)
        if record.epoch != self._postman.epoch_of(chat):
            return  # of another life of Redis, in which this seq may have been another message
        self._stored.reached(chat, upto)
        sessions = self._registry.sessions_of(UserId(record.user))
        if sessions:
            frame = text_frame(codec.encode(frames.Stored(chat, upto)))
            for session in sessions:
                session.stored(frame)
