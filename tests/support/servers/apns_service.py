"""APNs test server: HTTP/2 over TLS, with a self-signed certificate.

It accepts the same requests as the real service and returns the replies set by a test. The server
side of `h2` handles the protocol, so the client must send valid HTTP/2. The signature of each
request is verified with the public half of the key in the settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from tests.support.servers.processes import eventually
from tests.support.servers.push_service import HOST, Reply, Taken

KEY_ID, TEAM_ID, TOPIC = "ABC123DEFG", "DEF123GHIJ", "com.example.chat"
RESET = 0  # a Reply with this status resets the stream instead


def pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    """Encode a key in the format of Apple's .p8 files."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class _Connection(asyncio.Protocol):
    """One client. A delayed reply does not block other requests."""

    def __init__(self, service: ApnsService) -> None:
        self.service = service
        self.core = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.requests: dict[int, tuple[dict[str, str], bytearray]] = {}
        self.reply_tasks: set[asyncio.Task[None]] = set()
        self.transport: asyncio.Transport
        self.is_ignoring_data = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.service.connections.append(self)
        self.service.connected += 1
        self.core.local_settings = Settings(client=False, initial_values=self.service.http2)
        self.core.initiate_connection()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.service.connections.remove(self)
        for task in self.reply_tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        if self.is_ignoring_data:
            return
        for event in self.core.receive_data(data):
            match event:
                case events.RequestReceived():
                    self.requests[event.stream_id] = (dict(event.headers), bytearray())
                case events.DataReceived():
                    self.requests[event.stream_id][1].extend(event.data)
                    if self.service.opens_window:
                        size = event.flow_controlled_length
                        self.core.acknowledge_received_data(size, event.stream_id)
                case events.StreamEnded():
                    task = asyncio.create_task(self.respond(event.stream_id))
                    self.reply_tasks.add(task)
                    task.add_done_callback(self.reply_tasks.discard)
        self.flush()

    async def respond(self, stream: int) -> None:
        headers, body = self.requests.pop(stream)
        reply = await self.service.record(Taken(headers[":path"], headers, bytes(body)))
        if reply.status == RESET:
            self.core.reset_stream(stream, ErrorCodes[reply.body])
        else:
            answered = [(":status", str(reply.status)), *reply.headers.items()]
            self.core.send_headers(stream, answered, end_stream=not reply.body)
            if reply.body:
                self.core.send_data(stream, reply.body.encode(), end_stream=True)
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.core.data_to_send())


class ApnsService:
    """APNs on loopback; see `open_apns_service`."""

    def __init__(self, certificate: Path) -> None:
        self.url = ""
        self.certificate = certificate
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.http2: dict[SettingCodes, int] = {}
        self.taken: list[Taken] = []
        self.tokens: list[str] = []  # the distinct provider tokens
        self.replies: dict[str, list[Reply]] = {}
        self.connections: list[_Connection] = []
        self.connected = 0
        self.opens_window = True

    def settings(self) -> dict[str, Any]:
        """Return the settings section `notify` of a worker that sends here without delays."""
        return {
            "apns_key": pem_of(self.key),
            "apns_key_id": KEY_ID,
            "apns_team_id": TEAM_ID,
            "apns_topic": TOPIC,
            "apns_url": self.url,
            "delay_s": 0.05,
        }

    def set_replies(self, device: str, *replies: Reply) -> None:
        """Set the replies to pushes for a device, in order; afterwards the reply is 200."""
        self.replies[f"/3/device/{device}"] = list(replies)

    def requests_for(self, device: str) -> list[Taken]:
        """Return the requests for a device, including refused ones."""
        return [one for one in self.taken if one.path == f"/3/device/{device}"]

    async def wait_for(self, device: str, count: int) -> list[dict[str, Any]]:
        """Wait for `count` pushes to a device; return the payloads."""
        found = self.requests_for
        await eventually(lambda: len(found(device)) >= count, 60, f"{count} pushes")
        return [json.loads(one.body) for one in found(device)]

    def go_away(self, last_stream: int, why: str = "", *, is_over: bool = True) -> None:
        """Send GOAWAY on all connections; with `is_over`, close them."""
        for one in self.connections:
            one.core.close_connection(0, why.encode(), last_stream)
            one.flush()
            if is_over:
                one.transport.close()

    def ignore_data(self) -> None:
        """Ignore all data of the open connections, like a broken network path."""
        for one in self.connections:
            one.is_ignoring_data = True

    def drop(self) -> None:
        """Abort all connections."""
        for one in list(self.connections):
            one.transport.abort()

    def check(self, taken: Taken) -> None:
        """Check that a request is signed as Apple requires, with our key and a recent timestamp."""
        scheme, _, token = taken.headers["authorization"].partition(" ")
        assert scheme == "bearer"
        assert jwt.get_unverified_header(token) == {"alg": "ES256", "kid": KEY_ID, "typ": "JWT"}
        claims = jwt.decode(token, self.key.public_key(), ["ES256"], issuer=TEAM_ID)
        assert claims.keys() == {"iss", "iat"}
        assert abs(time.time() - claims["iat"]) < 3600
        if token not in self.tokens:
            self.tokens.append(token)

    async def record(self, taken: Taken) -> Reply:
        """Record a request and return the reply."""
        self.taken.append(taken)
        try:
            self.check(taken)
        except (AssertionError, jwt.PyJWTError) as exc:
            body = json.dumps({"reason": "InvalidProviderToken", "why": repr(exc)})
            return Reply(403, body=body)
        replies = self.replies.get(taken.path) or []
        if not replies:
            return Reply(200)
        reply = replies[0]
        if reply.times is not None:
            reply.times -= 1
            if reply.times == 0:
                replies.pop(0)
        if reply.gate is not None:
            await reply.gate.wait()
        return reply


def _make_certificate(folder: Path) -> Path:
    """Create a certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "apns of a test")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("apns.example")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "apns.pem"
    path.write_text(pem_of(key) + made.public_bytes(Encoding.PEM).decode())
    return path


@contextlib.asynccontextmanager
async def open_apns_service(folder: Path, protocol: str = "h2") -> AsyncIterator[ApnsService]:
    """Serve until the block ends. A client trusts it with SSL_CERT_FILE=`certificate`."""
    service = ApnsService(_make_certificate(folder))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(service.certificate)
    tls.set_alpn_protocols([protocol])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(service), HOST, 0, ssl=tls)
    service.url = f"https://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        for replies in service.replies.values():
            for reply in replies:
                if reply.gate is not None:
                    reply.gate.set()
        service.drop()
        await server.wait_closed()
