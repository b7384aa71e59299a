"""Pairs of users chat, as in ../load/pairs.py, with Locust.

Needs `locust` and `websocket-client`; set CHAT_AUTH_SECRET.

    locust -f locustfile.py --headless --users 20 --run-time 30s --host ws://127.0.0.1:8081/
"""

import base64
import hmac
import itertools
import json
import os
import random
import secrets
import time
from typing import ClassVar

import gevent
from gevent.event import Event
from locust import User, task
from websocket import create_connection

RUN = secrets.token_hex(4)
NUMBERS = itertools.count(1)


def encode(fields: bytes) -> str:
    return base64.urlsafe_b64encode(fields).rstrip(b"=").decode()


def sign_token(user: str) -> str:
    """Return an access token (docs/accounts.md)."""
    now = int(time.time())
    header = {"alg": "HS256", "typ": "chat+jwt"}
    claims = {"sub": user, "aud": "chatserver", "iat": now, "exp": now + 3600}
    claims["jti"] = secrets.token_hex(8)
    text = ".".join(encode(json.dumps(fields).encode()) for fields in (header, claims))
    secret = os.environ["CHAT_AUTH_SECRET"].encode()
    return f"{text}.{encode(hmac.digest(secret, text.encode(), 'sha256'))}"


class Chatter(User):
    """A user with a peer: 1 and 2 are a pair, 3 and 4, and so on."""

    arrived: ClassVar[dict[str, Event]] = {}  # by the `ref` of a message

    def on_start(self) -> None:
        number = next(NUMBERS)
        self.name, self.peer = (
            f"locust-{RUN}-{each}" for each in (number, number + 1 if number % 2 else number - 1)
        )
        self.ids = itertools.count(1)
        self.chat = ""
        self.socket = create_connection(
            self.host, subprotocols=["chat.v1"], suppress_origin=True, timeout=60
        )
        device = f"{self.name}-d"
        self.write(type="hello", v=1, token=sign_token(self.name), device=device)
        gevent.spawn(self.read)
        while not self.chat:  # until the peer has connected, too
            self.write(type="open_direct", id=next(self.ids), user=self.peer)
            gevent.sleep(1)

    def write(self, **fields: object) -> None:
        self.socket.send(json.dumps(fields))

    def read(self) -> None:
        while True:
            frame = json.loads(self.socket.recv())
            if frame["type"] == "ok" and "chat" in frame:
                self.chat = frame["chat"]["chat"]
            elif frame["type"] == "event" and frame["kind"] == "message":
                message = frame["message"]
                if message["sender"] == self.peer and message["ref"] in self.arrived:
                    self.arrived[message["ref"]].set()

    def wait_time(self) -> float:
        return random.expovariate(0.5)

    @task
    def chat_with_peer(self) -> None:
        ref, begin = secrets.token_hex(8), time.monotonic()
        arrived = self.arrived[ref] = Event()
        self.write(type="send", id=next(self.ids), chat=self.chat, ref=ref, body="How are you?")
        is_delivered = arrived.wait(1.0)
        del self.arrived[ref]
        self.environment.events.request.fire(
            request_type="chat",
            name="delivered",
            response_time=(time.monotonic() - begin) * 1000,
            response_length=0,
            exception=None if is_delivered else TimeoutError("not delivered within 1 s"),
        )
