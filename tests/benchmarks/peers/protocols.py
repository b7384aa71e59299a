"""The wire protocols of the comparison, each as a client of `load`."""

from __future__ import annotations

import base64
import json
from typing import Any

from chatserver.dev.servers import HOST
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.loadtest import wire
from chatserver.protocol.frames import SUBPROTOCOL
from tests.benchmarks.group_messages import CHAT
from tests.benchmarks.peers.load import ROOM, Client, Script

# With a mask of zeros, as in `wire`, some servers skip the work of unmasking.
_MASK = 0x5A
_MASKED = bytes(byte ^ _MASK for byte in range(256))


def encode_frame(payload: bytes) -> bytes:
    """Encode a WebSocket text frame."""
    head = wire.encode_client_frame(payload)[: -len(payload) - 4]
    return head + bytes([_MASK]) * 4 + payload.translate(_MASKED)


class WebSocket(Client):
    def upgrade(self, path: str, subprotocol: str | None = None) -> tuple[bytes, bytes]:
        address = wire.Address(HOST, self.load.port, path)
        return wire.build_upgrade_request(address, subprotocol)[0], b"\r\n\r\n"

    def encode_json(self, **fields: Any) -> bytes:
        return encode_frame(json.dumps(fields, separators=(",", ":")).encode())


class Ours(WebSocket):
    """`chat.v1`."""

    acknowledgment = rb'"type":"ack","id":(\d+),'

    def log_in(self) -> Script:
        yield self.upgrade("/", SUBPROTOCOL)
        token = self.load.token(self.user)
        hello = self.encode_json(type="hello", v=1, token=token, device=f"{self.user}-d")
        yield hello, b'"type":"welcome"'

    def enter(self) -> Script:
        self._chat = CHAT.encode()
        if not self.load.is_room:
            self._chat = direct_chat_id(UserId(self.user), UserId(self.recipient)).encode()
            yield self.encode_json(type="open_direct", id=1, user=self.recipient), self._chat

    def encode(self, number: int, text: bytes) -> bytes:
        return encode_frame(
            b'{"type":"send","id":%d,"chat":"%b","ref":"%d","body":"%b"}'
            % (number, self._chat, number, text)
        )


class SocketIo(WebSocket):
    """Socket.IO 5 on Engine.IO 4, only over WebSocket; see `socketio.js`."""

    acknowledgment = rb"43(\d+)\["

    def log_in(self) -> Script:
        yield self.upgrade("/socket.io/?EIO=4&transport=websocket")
        rooms = [self.user, ROOM] if self.load.is_room else [self.user]
        yield encode_frame(b"40" + json.dumps({"rooms": rooms}).encode()), b'40{"sid"'

    def encode(self, number: int, text: bytes) -> bytes:
        recipient = self.recipient.encode()
        return encode_frame(b'42%d["message","%b","%b"]' % (number, recipient, text))


class PlainJson(WebSocket):
    """The protocol of `ws.js`."""

    acknowledgment = rb'{"ack":(\d+)}'

    def log_in(self) -> Script:
        yield self.upgrade(f"/?room={self.user}" + (f"&room={ROOM}" if self.load.is_room else ""))

    def encode(self, number: int, text: bytes) -> bytes:
        recipient = self.recipient.encode()
        return encode_frame(b'{"id":%d,"to":"%b","text":"%b"}' % (number, recipient, text))


class Xmpp(Client):
    """XMPP over TCP, without TLS; rooms are MUC rooms. The server acknowledges nothing."""

    DOMAIN = "localhost"
    PASSWORD = "secret"
    _STREAM = (
        f"<?xml version='1.0'?><stream:stream to='{DOMAIN}' version='1.0' xmlns='jabber:client' "
        "xmlns:stream='http://etherx.jabber.org/streams'>"
    ).encode()

    def log_in(self) -> Script:
        secret = base64.b64encode(f"\0{self.user}\0{self.PASSWORD}".encode())
        sasl = b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>%b</auth>"
        bind = b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"
        yield self._STREAM, b"</stream:features>"
        yield sasl % secret, b"<success"
        yield self._STREAM, b"</stream:features>"
        yield bind, b"</iq>"
        yield b"<presence/>", b"<presence"

    def enter(self) -> Script:
        to, kind = f"{self.recipient}@{self.DOMAIN}", "chat"
        if self.load.is_room:
            to, kind = f"{ROOM}@conference.{self.DOMAIN}", "groupchat"
            joining = (
                f"<presence to='{to}/{self.user}'><x xmlns='http://jabber.org/protocol/muc'>"
                "<history maxstanzas='0'/></x></presence>"
            )
            yield joining.encode(), b"110"  # the status code of the user's own presence
        self._head = f"<message type='{kind}' to='{to}' id='".encode()

    def encode(self, number: int, text: bytes) -> bytes:
        return b"%b%d'><body>%b</body></message>" % (self._head, number, text)


class Nats(Client):
    """NATS: a subject per user and room. The server acknowledges nothing."""

    def log_in(self) -> Script:
        yield b"", b"INFO "
        subjects = [self.user, ROOM] if self.load.is_room else [self.user]
        subscribe = "".join(f"SUB {name} {n}\r\n" for n, name in enumerate(subjects))
        yield b'CONNECT {"verbose":false}\r\n' + subscribe.encode() + b"PING\r\n", b"PONG"

    def encode(self, number: int, text: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (self.recipient.encode(), len(text), text)
