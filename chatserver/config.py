"""Settings by section, read once at startup.

Sources, in ascending precedence: defaults, a TOML file (``--config`` or ``CHAT_CONFIG``), a
directory of secrets (``CHAT_SECRETS_DIR``: files named like the variables), environment variables
``CHAT_<SECTION>_<NAME>``. All unknown settings and invalid values are reported together, and the
process does not start.

The file is long but contains mostly declarations, one class per section.
"""

from __future__ import annotations

import ipaddress
import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from chatserver.domain.access.reserved_names import RESERVED_NAMES
from chatserver.domain.page_limits import BYTES_MAX, ITEMS_MAX, PageBounds
from chatserver.domain.text import BODY_BYTES_MAX, BODY_CHARS_MAX, BODY_TOP, BodyBounds
from chatserver.domain.write_sharding import SHARDS_MAX, is_shards
from chatserver.errors import ConfigError

PREFIX = "CHAT_"
_NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR", "CHAT_FAILPOINT", "CHAT_TOKEN"}


class Section(BaseModel):
    """Base class of settings sections; refuses unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _read_list(cls, value: object, info: ValidationInfo) -> object:
        """Parse a list given as JSON text, because variables and secret files are text."""
        field = cls.model_fields[str(info.field_name)]
        if not isinstance(value, str) or get_origin(field.annotation) is not list:
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError('must be a list as JSON has it: ["one", "two"]') from None


class Redis(Section):
    """Redis, the hot tier."""

    url: str = Field("redis://127.0.0.1:6379/0", description="address of Redis 7 or Valkey")
    cluster: bool = Field(False, description="url names any node of a Redis Cluster")
    sentinels: list[str] = Field(
        default_factory=list,
        description="Sentinels, redis://host:26379, that know the master; url says who we are",
    )
    sentinel_master: str = Field("mymaster", description="what the Sentinels call it")
    partitions: int = Field(
        1, ge=1, le=1024, description="fixed at first start; of a cluster 64 or more"
    )
    wait_replicas: int = Field(
        0, ge=0, le=5, description="replicas that must have a message before its ack"
    )
    wait_fsync: bool = Field(
        False,
        description="an ack waits until Redis has the message on its disk; Redis 7.2 or Valkey",
    )
    connect_timeout_s: float = Field(
        2.0, gt=0, le=60, description="deadline of a connection's beginning"
    )
    call_timeout_s: float = Field(2.0, gt=0, le=60, description="deadline of one call")
    batch_max: int = Field(128, ge=1, le=1024, description="messages in one script call")
    queue_max: int = Field(20_000, ge=1, description="sends waiting for Redis in one gateway")
    backlog_max: int = Field(2_000_000, ge=1000, description="unpersisted messages per partition")
    chat_backlog_max: int = Field(100_000, ge=100, description="unpersisted messages of one chat")
    inbox_max: int = Field(1000, ge=10, description="events kept per user")
    log_max: int = Field(1000, ge=10, description="messages kept per chat once persisted")
    ref_ttl_s: int = Field(86_400, ge=60, description="how long a retry is recognised")
    chat_idle_s: int = Field(
        604_800, ge=1, description="a chat that is persisted leaves Redis when unused for so long"
    )
    mail_max: int = Field(20_000, ge=100, description="entries in a gateway's mailbox")

    @model_validator(mode="after")
    def _check_log_max(self) -> Self:
        if self.log_max < self.inbox_max:  # an inbox refers to messages in logs
            raise ValueError("log_max must be at least inbox_max")
        return self

    @model_validator(mode="after")
    def _check_sentinels(self) -> Self:
        if self.sentinels and (self.cluster or self.url.startswith("unix:")):
            raise ValueError("sentinels name the one server; a cluster or a unix: url has none")
        return self


def _check_networks(texts: list[str]) -> list[str]:
    for text in texts:
        ipaddress.ip_network(text, strict=False)  # its ValueError describes the problem
    return texts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Gateway(Section):
    """WebSocket gateway processes."""

    host: str = Field("127.0.0.1", description="address to listen at")
    port: int = Field(8081, ge=0, le=65_535, description="port to listen at")
    origins: list[str] = Field(
        default_factory=list, description="allowed Origin values; empty: only clients without one"
    )
    trusted_proxies: list[str] = Field(
        default_factory=list, description="addresses and ranges whose X-Forwarded-For is believed"
    )
    frame_bytes_max: int = Field(
        65_536,
        ge=1024,
        le=1_048_576,
        description="longest message of a client; longer ones close the connection",
    )
    fragments_max: int = Field(1000, ge=1, description="parts of one WebSocket message")
    control_frames_per_s: float = Field(
        10.0, ge=1, le=1000, description="pings and pongs of a peer; ten seconds' worth at once"
    )
    handshake_timeout_s: float = Field(5.0, gt=0, description="deadline of the HTTP upgrade")
    hello_timeout_s: float = Field(10.0, gt=0, description="a client must say who it is within it")
    held_timeout_s: float = Field(
        5.0, gt=0, le=60, description="a frame waits so long for a snapshot, then it is refused"
    )
    message_timeout_s: float = Field(30.0, gt=0, description="a fragmented message must be whole")
    ping_interval_s: float = Field(
        25.0, gt=0, description="how often a client is pinged, with jitter"
    )
    pong_timeout_s: float = Field(
        10.0, gt=0, description="a client that does not answer a ping for so long is gone"
    )
    send_queue_bytes_max: int = Field(
        1_048_576, ge=16_384, description="what may wait for one slow client; then it is closed"
    )
    slow_timeout_s: float = Field(10.0, gt=0, description="a peer that takes nothing for so long")
    sends_in_flight_max: int = Field(64, ge=1, le=1024, description="unanswered per session")
    stored_timeout_s: float = Field(
        6.0, gt=0, le=300, description="how long an ack of a send to be stored waits for DynamoDB"
    )
    expires_s_max: int = Field(
        31_536_000, ge=1, le=31_536_000, description="longest life of a message that expires"
    )
    sessions_per_user_max: int = Field(
        20, ge=1, description="over all gateways; beyond it the oldest is closed"
    )
    connections_max: int = Field(
        50_000, ge=1, description="sockets of one process; more are refused"
    )
    unauthenticated_max: int = Field(
        10_000,
        ge=4,
        description="sockets of one process without a good hello; beyond it the oldest is closed",
    )
    unauthenticated_per_address_max: int = Field(
        1000, ge=4, description="the same of one address; trusted proxies have no such bound"
    )
    online_ttl_s: float = Field(60.0, gt=1, description="a dead gateway's presence ends after")
    drain_s: float = Field(
        10.0, ge=0, description="how long an ending process gives its clients to leave"
    )
    drain_reconnects_per_s: int = Field(
        1000, ge=1, description="clients that one ending process sends to the others a second"
    )
    rpc_timeout_s: float = Field(
        3.0, gt=0, description="deadline of a call that a worker answers from DynamoDB or S3"
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, texts: list[str]) -> list[str]:
        return _check_networks(texts)

    @model_validator(mode="after")
    def _check_pong(self) -> Self:
        if self.pong_timeout_s >= self.ping_interval_s:
            raise ValueError("pong_timeout_s must be shorter than ping_interval_s")
        return self


class Presence(Section):
    """Presence of users."""

    away_after_s: float = Field(300.0, gt=0, description="without use, a device counts as away")
    offline_grace_s: float = Field(
        10.0, ge=0, le=300, description="a device that comes back in time was never gone"
    )
    last_seen_ttl_s: float = Field(604_800.0, ge=60, description="how long last seen is known")
    watched_max: int = Field(500, ge=1, le=10_000, description="users that a session may watch")


class Limits(Section):
    """Rate limits: token buckets shared by all gateways, each with a burst and a refill rate."""

    sends_burst: int = Field(500, ge=1, description="messages of one user")
    sends_per_s: float = Field(50.0, gt=0, description="refilled so fast")
    requests_burst: int = Field(
        500, ge=64, description="tokens of one user for other frames and HTTP requests, by cost"
    )
    requests_per_s: float = Field(50.0, gt=0, description="refilled so fast")
    connections_burst: int = Field(1000, ge=1, description="handshakes of one address")
    connections_per_s: float = Field(100.0, gt=0, description="refilled so fast")
    failures_burst: int = Field(100, ge=1, description="refused hellos of one address")
    failures_per_s: float = Field(1.0, gt=0, description="refilled so fast")
    logins_burst: int = Field(
        10, ge=1, description="wrong passwords for one account from one network or known device"
    )
    logins_per_s: float = Field(0.05, gt=0, description="refilled so fast")
    guesses_burst: int = Field(
        30,
        ge=1,
        description="wrong passwords for one account from all unknown devices; then they wait",
    )
    guesses_per_s: float = Field(0.1, gt=0, description="refilled so fast")
    entries_burst: int = Field(
        60, ge=1, description="logins and registrations of one network (IPv4 /24, IPv6 /64)"
    )
    entries_per_s: float = Field(0.5, gt=0, description="refilled so fast")
    memory_burst_bytes: int = Field(
        4_000_000, ge=300_000, description="Redis memory that one user's requests may take at once"
    )
    memory_bytes_per_s: float = Field(
        180.0, gt=0, description="refilled so fast: with the burst, 20 MB of one user a day"
    )
    calls_burst: int = Field(2000, ge=1, description="HTTP requests of one address")
    calls_per_s: float = Field(200.0, gt=0, description="refilled so fast")


class Chats(Section):
    """Groups, messages and pages of history."""

    members_max: int = Field(100_000, ge=2, le=100_000, description="members of one chat")
    body_chars_max: int = Field(
        BODY_CHARS_MAX, ge=1, le=BODY_TOP, description="characters of one message"
    )
    body_bytes_max: int = Field(BODY_BYTES_MAX, ge=4, le=BODY_TOP, description="the same in UTF-8")
    page_max: int = Field(
        ITEMS_MAX, ge=1, le=ITEMS_MAX, description="events, messages or chats of one answer"
    )
    page_bytes_max: int = Field(
        BYTES_MAX, ge=1, le=4 * BYTES_MAX, description="how long one answer is together"
    )
    fanout_members_max: int = Field(
        256, ge=2, le=10_000, description="a chat of more members has no inboxes: it is a large one"
    )
    per_user_max: int = Field(
        2_000, ge=1, le=2_000, description="groups of one user, and as many direct chats"
    )
    new_contacts_per_day: int = Field(
        50, ge=1, description="direct chats with strangers that a user may open first in a day"
    )
    invitations: Literal["ask_strangers", "always", "never"] = Field(
        "ask_strangers", description="who is asked before somebody adds them to a group"
    )
    invitations_max: int = Field(
        100, ge=1, le=500, description="pending invitations of one user; the oldest makes room"
    )

    @property
    def request_bytes_max(self) -> int:
        """The size that a request or frame must be allowed, so that the longest body fits.

        In the worst case, JSON encodes a two-byte character in six bytes.
        """
        return max(65_536, 3 * self.body_bytes_max + 8_192)

    @property
    def body_bounds(self) -> BodyBounds:
        """The maximum length of a message body."""
        return BodyBounds(self.body_chars_max, self.body_bytes_max)

    @property
    def page_bounds(self) -> PageBounds:
        """The maximum size of one page."""
        return PageBounds(self.page_max, self.page_bytes_max)


class Warm(Section):
    """DynamoDB, the warm tier."""

    endpoint: str | None = Field(None, description="unset: AWS")
    streams_endpoint: str | None = Field(None, description="of Streams; unset: as `endpoint`")
    region: str = Field("us-east-1", description="of AWS")
    access_key: str | None = Field(None, description="unset: the usual AWS credential chain")
    secret_key: SecretStr | None = Field(None, description="belongs to `access_key`")
    table_prefix: str = Field(
        "chat_", pattern=r"^[A-Za-z0-9_.-]{0,64}$", description="before the name of each table"
    )
    tenant: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9-]{0,31})?$",
        description="set: whose items these are, of several deployments that share the tables",
    )
    billing: Literal["on_demand", "provisioned"] = Field(
        "on_demand", description="how new tables are paid"
    )
    read_units: int = Field(100, ge=1, description="of each table, when provisioned")
    write_units: int = Field(100, ge=1, description="of each table, when provisioned")
    stream: bool = Field(False, description="needed where TTL removes what is archived")
    call_timeout_s: float = Field(5.0, gt=0, description="deadline of one call, retries included")
    connections_max: int = Field(32, ge=1, description="of one process to DynamoDB")
    attempts_max: int = Field(5, ge=1, description="tries of one call, with jittered backoff")
    body_inline_bytes_max: int = Field(
        32_768, ge=256, le=262_144, description="longer bodies are objects in the bucket"
    )
    body_put_timeout_s: float = Field(
        1.5, gt=0, le=30, description="then the bucket is away, and bodies stay in their items"
    )
    bodies_sweep_s: float = Field(
        3600.0, gt=0, description="how often `worker sweep` looks for those that nobody points to"
    )
    schema_version: int | None = Field(
        None, ge=0, description="act as a release of this schema would; unset: the newest known"
    )
    schema_check_s: float = Field(
        20.0, gt=0, le=600, description="how often a process looks whether its schema still fits"
    )
    migrate_lease_s: float = Field(
        30.0,
        ge=0.1,
        le=600,
        description="so long `chatserver migrate` waits for a dead one",
    )
    shard_writes_per_s: int = Field(
        500, ge=0, description="write units of one partition, above them a chat is spread; 0: never"
    )
    shards_max: int = Field(16, ge=2, le=SHARDS_MAX, description="of a chat; a power of two")
    shard_window_s: float = Field(10.0, gt=0, le=600, description="what is measured at a time")
    shard_calm_s: float = Field(
        600.0, ge=0, description="a chat is drawn together when it was calm for so long"
    )
    shard_refresh_s: float = Field(
        5.0, gt=0, le=60, description="how often a process looks which chats are spread"
    )

    @field_validator("shards_max")
    @classmethod
    def _check_shards(cls, shards: int) -> int:
        if not is_shards(shards):
            raise ValueError("must be a power of two")
        return shards


class Cold(Section):
    """S3, the cold tier."""

    endpoint: str | None = Field(None, description="unset: AWS")
    public_endpoint: str | None = Field(
        None, description="what clients reach S3 by, if not by `endpoint`"
    )
    region: str = Field("us-east-1", description="of AWS")
    tenant: str = Field("", description="is what warm.tenant is: objects are below its name")
    bucket: str = Field(
        "chatserver",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="holds archive, files, long messages and exports",
    )
    access_key: str | None = Field(None, description="unset: the usual AWS credential chain")
    secret_key: SecretStr | None = Field(None, description="belongs to `access_key`")
    origins: list[str] = Field(
        default_factory=list, description="pages that may upload to the bucket and read from it"
    )
    call_timeout_s: float = Field(10.0, gt=0, description="deadline of one call, retries included")
    connections_max: int = Field(32, ge=1, description="of one process to S3")
    attempts_max: int = Field(4, ge=1, description="tries of one call, with jittered backoff")

    @property
    def client_urls(self) -> list[str]:
        """The base URLs at which clients reach the bucket."""
        if url := self.public_endpoint or self.endpoint:
            return [url]
        # The SDK may sign URLs for either host.
        hosts = (f"s3.{self.region}.amazonaws.com", "s3.amazonaws.com")
        return [f"https://{self.bucket}.{host}" for host in hosts]


class Attachments(Section):
    """File attachments."""

    size_bytes_max: int = Field(26_214_400, ge=1, le=1_073_741_824, description="of one file")
    per_message_max: int = Field(10, ge=0, le=10, description="files of one message")
    waiting_max: int = Field(20, ge=1, description="a user's uploads that no message has yet")
    waiting_bytes_max: int = Field(209_715_200, ge=1, description="and how large they are together")
    upload_s: int = Field(300, ge=10, le=300, description="how long an upload may be begun")
    link_s: int = Field(300, ge=10, le=300, description="how long a link to a file holds")
    unreferenced_s: int = Field(
        86_400, ge=60, description="an upload that no message has is removed after"
    )
    settle_s: float = Field(
        60.0, ge=0, description="added to it, for messages that were on their way to Redis"
    )
    sweep_interval_s: float = Field(
        60.0, gt=0, description="how often `worker sweep` looks for files to remove"
    )
    image_bytes_max: int = Field(20_971_520, ge=1, description="larger ones get no thumbnail")
    image_pixels_max: int = Field(40_000_000, ge=1, description="larger ones get no thumbnail")
    thumb_px: int = Field(480, ge=16, le=2048, description="longer side of a thumbnail")
    thumb_timeout_s: float = Field(
        10.0, gt=0, le=60, description="an image that takes more CPU time gets no thumbnail"
    )
    thumb_memory_bytes_max: int = Field(
        1_073_741_824, ge=134_217_728, description="an image that takes more gets no thumbnail"
    )
    thumbs_in_flight_max: int = Field(1, ge=1, le=64, description="made at once by one worker")


class Auth(Section):
    """Authentication: tokens, local accounts and the host application's tokens."""

    secret: SecretStr = Field(
        SecretStr(""), description="HS256 key of at least 32 bytes; there is no default"
    )
    audience: str = Field("chatserver", description="the `aud` of our tokens")
    issuer: str | None = Field(
        None, description="the `iss` of our tokens; unset: none is asked for"
    )
    lifetime_s_max: int = Field(3600, ge=60, le=86_400, description="longest life of a token")
    leeway_s: int = Field(60, ge=0, le=300, description="how far clocks may differ")
    local_accounts: bool = Field(True, description="people log in with user name and password")
    registration: Literal["open", "closed"] = Field(
        "open", description="closed: only the host application makes accounts"
    )
    admins: list[str] = Field(
        default_factory=list, description="users who see the admin page; nobody registers as one"
    )
    reserved_names: list[str] = Field(
        default_factory=lambda: list(RESERVED_NAMES),
        description="names that nobody registers, nor any that look like them",
    )
    access_ttl_s: int = Field(900, ge=60, le=3600, description="life of a token of a log in")
    refresh_ttl_s: int = Field(
        2_592_000, ge=600, le=31_536_000, description="a login that is not used for so long ends"
    )
    refresh_grace_s: int = Field(
        30, ge=0, le=300, description="a refresh token that was just used still gets its answer"
    )
    devices_max: int = Field(50, ge=1, le=500, description="logins of one user; the oldest ends")
    cookie_secure: bool = Field(True, description="browsers send the cookie over HTTPS only")
    passphrase_chars_min: int = Field(8, ge=8, le=64, description="shortest password")
    argon2_memory_kib: int = Field(65_536, ge=8, le=4_194_304, description="of one argon2id")
    argon2_passes: int = Field(3, ge=1, le=100, description="of one argon2id")
    argon2_lanes: int = Field(1, ge=1, le=16, description="of one argon2id")
    argon2_at_once_max: int = Field(
        2,
        ge=1,
        le=64,
        description="at once in one process, plus one for guesses and one for known devices",
    )
    login_wait_s_max: float = Field(
        2.0, gt=0, le=30, description="longest estimated wait for a password check; then refused"
    )
    login_delay_s: float = Field(
        3.0,
        ge=0,
        le=30,
        description="wait of an unknown device at an account past limits.guesses_burst",
    )
    host_algorithm: Literal["HS256", "RS256", "ES256", "EdDSA"] | None = Field(
        None, description="set: tokens of the host application are taken, signed so"
    )
    host_secret: SecretStr | None = Field(None, description="for HS256, at least 32 bytes")
    host_public_keys: str | None = Field(None, description="PEM, one after another")
    host_jwks_url: str | None = Field(None, description="where the host application has its keys")
    host_issuer: str | None = Field(None, description="the `iss` of its tokens")
    host_audience: str | None = Field(None, description="their `aud`; unset: auth.audience")
    jwks_ttl_s: int = Field(300, ge=10, le=86_400, description="keys are fetched so often")
    jwks_refetch_s: int = Field(10, ge=1, le=3600, description="and no more often than this")

    @property
    def token_s_max(self) -> int:
        """The longest time after its creation that a token may still be accepted."""
        return self.lifetime_s_max + self.leeway_s

    @model_validator(mode="after")
    def _check_host(self) -> Self:
        sources = [
            name
            for name in ("host_secret", "host_public_keys", "host_jwks_url")
            if getattr(self, name) is not None
        ]
        if self.host_algorithm is None:
            if sources:
                raise ValueError(f"{sources[0]} needs host_algorithm")
            return self
        if self.local_accounts:
            # Otherwise a user could register the name of one of the host application's users.
            raise ValueError("host_algorithm needs local_accounts = false: both name users")
        takes_secret = self.host_algorithm == "HS256"
        if len(sources) != 1 or (sources == ["host_secret"]) != takes_secret:
            raise ValueError(
                "host_algorithm HS256 needs host_secret, the others host_public_keys or "
                "host_jwks_url; and nothing else"
            )
        return self


class Api(Section):
    """HTTP API processes."""

    host: str = Field("127.0.0.1", description="address to listen at")
    port: int = Field(8080, ge=0, le=65_535, description="port to listen at")
    gateway_url: str = Field("ws://127.0.0.1:8081/", description="what the web client connects to")
    demo_users: list[str] = Field(
        default_factory=list, description="one-click login; only `chatserver dev` sets it"
    )
    system_user: str = Field(
        "system", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="who sends for the host application"
    )
    trusted_proxies: list[str] = Field(
        default_factory=list,
        description="addresses and ranges whose X-Forwarded-For and X-Forwarded-Proto are believed",
    )
    connections_max: int = Field(
        2000, ge=16, description="of one process; beyond it the one that waits longest is closed"
    )
    connections_per_address_max: int = Field(
        200, ge=4, description="of one address to one process; trusted proxies have no such bound"
    )
    head_timeout_s: float = Field(
        10.0, gt=0, le=600, description="deadline of a request's head, from its first byte"
    )
    body_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="deadline of a request's body, from the end of its head"
    )
    write_timeout_s: float = Field(
        30.0, gt=0, le=3600, description="a client that does not read a response for so long"
    )
    idle_timeout_s: float = Field(
        75.0,
        gt=0,
        le=3600,
        description="between two requests; longer than the load balancer's idle timeout",
    )
    tls_in_front: bool = Field(
        False, description="clients come by https only, though no X-Forwarded-Proto says so"
    )
    hsts_s: int = Field(
        31_536_000,
        ge=0,
        description="max-age of Strict-Transport-Security in responses over https; 0: not sent",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, texts: list[str]) -> list[str]:
        return _check_networks(texts)

    @model_validator(mode="after")
    def _check_demo_users(self) -> Self:
        if self.demo_users and self.trusted_proxies:
            raise ValueError("demo_users log in without a password: not behind trusted_proxies")
        if self.demo_users and not _is_loopback(self.host):
            raise ValueError(
                "demo_users log in without a password: host must be a loopback address"
            )
        return self


class Outbound(Section):
    """Outbound HTTP requests: webhooks, push services and key sets of token issuers."""

    allow_private: list[str] = Field(
        default_factory=list,
        description="addresses and ranges that may be called although they are not public",
    )
    ports: list[Annotated[int, Field(ge=1, le=65_535)]] = Field(
        default_factory=lambda: [443],
        description="ports of public addresses that may be called; 80 is for plain HTTP",
    )
    connections_max: int = Field(200, ge=1, le=10_000, description="of one process")
    connections_per_host_max: int = Field(
        32, ge=1, le=1000, description="of one process to one host"
    )

    @field_validator("allow_private")
    @classmethod
    def _check_networks(cls, texts: list[str]) -> list[str]:
        for text in texts:
            ipaddress.ip_network(text, strict=False)  # its ValueError describes the problem
        return texts


class Webhooks(Section):
    """Webhooks to the host application: before-send and events."""

    secret: SecretStr = Field(
        SecretStr(""), description="signs what is sent; at least 32 bytes where there is a URL"
    )
    before_send_url: str | None = Field(None, description="asked about each message; unset: nobody")
    before_send_timeout_s: float = Field(
        1.0, gt=0, le=10, description="deadline of the answer about a message"
    )
    before_send_policy: Literal["open", "closed"] = Field(
        "open", description="what becomes of a message without an answer: it passes, or is refused"
    )
    before_send_in_flight_max: int = Field(
        2_000, ge=1, le=20_000, description="messages being asked about, in one process"
    )
    breaker_failures: int = Field(5, ge=1, description="so many in a row, and nobody is asked")
    breaker_s: float = Field(10.0, gt=0, le=600, description="for so long")
    events_url: str | None = Field(None, description="told of what happened; unset: nobody")
    timeout_s: float = Field(5.0, gt=0, le=30, description="deadline of telling of an event")
    attempts_max: int = Field(12, ge=1, le=30, description="then an event is a dead letter")
    backoff_s: float = Field(2.0, gt=0, le=60, description="first pause; each next one is longer")
    backoff_s_max: float = Field(3600.0, gt=0, le=86_400, description="longest pause")
    in_flight_max: int = Field(16, ge=1, le=256, description="events told at once, per partition")
    pending_max: int = Field(
        100_000, ge=1, description="events that wait per partition; more are dead letters at once"
    )

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        has_url = self.before_send_url is not None or self.events_url is not None
        if has_url and len(self.secret.get_secret_value().encode()) < 32:
            raise ValueError("secret must be at least 32 bytes; try: openssl rand -hex 32")
        return self


class Persist(Section):
    """Persist worker, which moves messages to the warm tier."""

    batch_max: int = Field(
        32, ge=1, le=1000, description="backlog entries read at once; one is up to redis.batch_max"
    )
    writes_in_flight_max: int = Field(
        8, ge=1, le=64, description="batches on their way to DynamoDB at once"
    )
    lease_s: float = Field(10.0, gt=1, description="a dead worker is followed after")
    write_timeout_s: float = Field(4.0, gt=0, description="must be shorter than lease_s")
    idle_ms: int = Field(1000, ge=1, le=2000, description="longest sleep without new entries")
    slow_chats_max: int = Field(
        16, ge=0, le=1000, description="chats whose writes fail that the others do not wait for"
    )
    ahead_max: int = Field(
        200_000,
        ge=0,
        le=2_000_000,
        description="messages read past the oldest that is not stored, per partition",
    )
    ahead_bytes_max: int = Field(
        67_108_864, ge=0, description="memory for them; the others are read again when it is time"
    )

    @model_validator(mode="after")
    def _check_lease(self) -> Self:
        if self.write_timeout_s >= self.lease_s:
            raise ValueError("write_timeout_s must be shorter than lease_s")
        return self


class Notify(Section):
    """Push notifications. Disabled without a VAPID, FCM or APNs key."""

    delay_s: float = Field(
        3.0, ge=0, le=300, description="a message that is read within it is not pushed"
    )
    preview: bool = Field(True, description="pushes carry the beginning of the text")
    large: Literal["mentions", "none"] = Field(
        "mentions", description="who is told of a message to a large chat"
    )
    fresh_s: float = Field(3600.0, ge=1, description="older messages are not pushed any more")
    subscriptions_max: int = Field(10, ge=1, le=20, description="browsers and apps of one user")
    poll_ms: int = Field(500, ge=10, le=10_000, description="how often the worker looks")
    timeout_s: float = Field(10.0, gt=0, le=60, description="deadline of one call")
    attempts_max: int = Field(4, ge=1, le=10, description="of what a service surely did not take")
    give_up_s: float = Field(300.0, ge=1, le=3600, description="no attempt is made after it")
    ttl_s: int = Field(86_400, ge=0, le=2_419_200, description="how long a push service keeps one")
    in_flight_max: int = Field(8, ge=1, le=100, description="calls to one push service at once")
    vapid_public: str = Field("", description="what browsers subscribe with: chatserver vapid")
    vapid_private: SecretStr = Field(SecretStr(""), description="what the worker signs with")
    subject: str = Field("", description="mailto: or https: of who runs this, for push services")
    fcm_account: SecretStr = Field(
        SecretStr(""), description="JSON of the Google service account that sends by FCM"
    )
    fcm_url: str = Field("https://fcm.googleapis.com", description="where FCM is")
    apns_key: SecretStr = Field(
        SecretStr(""), description="text of the .p8 key that sends by APNs, without FCM"
    )
    apns_key_id: str = Field("", description="what Apple calls this key")
    apns_team_id: str = Field("", description="whose key it is")
    apns_topic: str = Field("", description="bundle id of the application")
    apns_url: str = Field(
        "https://api.push.apple.com",
        description="where APNs is; builds of developers: https://api.sandbox.push.apple.com",
    )
    apns_sound: str = Field("default", max_length=64, description="empty: pushes are silent")


class Assistant(Section):
    """AI companion responses."""

    turns_in_flight_max: int = Field(
        3, ge=1, le=100, description="answers being made for one user at once"
    )
    turns_max: int = Field(256, ge=1, le=4096, description="answers made at once by one worker")
    tokens_per_day: int = Field(
        200_000, ge=1, description="of models, for one user and day (UTC), questions included"
    )
    first_delta_s: float = Field(30.0, gt=0, le=300, description="a model has to begin within it")
    between_s: float = Field(20.0, gt=0, le=300, description="a model may pause for so long")
    answer_s: float = Field(180.0, gt=0, le=900, description="for an answer in all")
    attempts_max: int = Field(3, ge=1, le=10, description="of a model that has said nothing yet")
    backoff_s: float = Field(0.5, gt=0, le=60, description="first pause; each next one is longer")
    flush_ms: int = Field(
        100, ge=0, le=1000, description="deltas are joined for so long, but for the first one"
    )
    context_messages_max: int = Field(
        100, ge=4, le=ITEMS_MAX, description="messages of a session that a model is given"
    )
    summary_tokens_max: int = Field(
        600, ge=50, le=4000, description="of the summary of what a model is given no more"
    )
    join_s: int = Field(
        120, ge=1, le=3600, description="devices may join an answer for so long after its end"
    )
    lease_s: float = Field(10.0, gt=1, le=600, description="a dead worker is followed after")
    openai_url: str = Field(
        "https://api.openai.com/v1",
        pattern=r"^https?://",
        description="where OpenAI's API is, or one like it: vLLM, Ollama",
    )
    openai_key: SecretStr = Field(SecretStr(""), description="of that API")
    bedrock_endpoint: str | None = Field(None, description="unset: AWS")
    bedrock_region: str = Field("us-east-1", description="of Amazon Bedrock")
    bedrock_access_key: str | None = Field(
        None, description="unset: the usual AWS credential chain"
    )
    bedrock_secret_key: SecretStr | None = Field(
        None, description="belongs to `bedrock_access_key`"
    )
    scripted_delta_ms: int = Field(
        50, ge=0, le=10_000, description="pace of the model that follows a script"
    )


class Privacy(Section):
    """Data exports and erasure of user data."""

    export_days: int = Field(7, ge=1, le=30, description="how long an export can be downloaded")
    exports_per_day_max: int = Field(3, ge=1, le=100, description="that one user may ask for")
    export_bytes_max: int = Field(
        5_368_709_120, ge=1_048_576, le=1_099_511_627_776, description="of one ZIP"
    )
    export_tries_max: int = Field(5, ge=1, le=100, description="then an export has failed")
    link_s: int = Field(300, ge=10, le=300, description="how long a link to an export holds")
    fresh_s: int = Field(
        300, ge=10, le=3600, description="who has no password erases himself with so new a token"
    )
    settle_s: float = Field(
        10.0, ge=0, le=600, description="an erasure waits so long for what was under way"
    )
    lease_s: float = Field(60.0, ge=1, le=600, description="a job of a dead worker is taken after")
    poll_s: float = Field(2.0, gt=0, le=60, description="how often workers look for jobs")
    receipt_days: int = Field(365, ge=1, le=3650, description="how long a receipt is kept")


class Counters(Section):
    """Like counters."""

    flush_s: float = Field(
        2.0, ge=0.1, le=60, description="counts are never more than so far behind likes"
    )
    queue_max: int = Field(
        100_000, ge=1000, description="likes waiting per partition; more are refused"
    )
    batch_max: int = Field(5000, ge=1, le=50_000, description="likes counted at once")
    writes_in_flight_max: int = Field(
        16, ge=1, le=64, description="counts on their way to DynamoDB at once"
    )
    lease_s: float = Field(10.0, ge=1, le=600, description="a dead worker is followed after")


class Timeline(Section):
    """Delivery of posts to timelines."""

    fanout_followers_max: int = Field(
        10_000, ge=0, description="posts of authors with more followers are merged in by readers"
    )
    page: int = Field(500, ge=1, le=5000, description="followers between two notes of the place")
    writes_in_flight_max: int = Field(8, ge=1, le=64, description="batches of 25 rows")
    days: int = Field(30, ge=1, le=3650, description="how long a post stays in timelines")
    poll_s: float = Field(0.1, gt=0, le=60, description="how often workers ask whether to look")
    look_s: float = Field(
        5.0, gt=0, le=600, description="and how often they look without being told"
    )
    lease_s: float = Field(10.0, ge=1, le=600, description="a dead worker is followed after")
    merged_max: int = Field(
        50, ge=1, le=1000, description="of whom one reader follows, so many are merged in"
    )


class Archive(Section):
    """Archive: moving old messages from DynamoDB to S3, and reading them."""

    retention_s: int = Field(
        0, ge=0, description="older messages move to S3; 0: none do, what is there stays readable"
    )
    sweep_interval_s: float = Field(3600.0, gt=0, description="how often the worker looks")
    lease_s: float = Field(60.0, gt=0.5, le=600, description="a dead worker is followed after")
    segment_entries_min: int = Field(
        200, ge=1, le=10_000, description="so many make a segment; a smaller one is filled up"
    )
    wait_s: int = Field(86_400, ge=0, description="fewer wait for so long, then they move too")
    segment_entries_max: int = Field(1000, ge=1, le=10_000, description="of one segment")
    segment_bytes_max: int = Field(4_194_304, ge=65_536, le=16_777_216, description="unpacked")
    deletes_in_flight_max: int = Field(16, ge=1, le=64, description="in DynamoDB")
    cache_bytes_max: int = Field(
        67_108_864, ge=1, description="of a process's memory for segments that were read"
    )
    removal: Literal["worker", "ttl"] = Field(
        "worker", description="who takes out of DynamoDB what has moved"
    )
    ttl_margin_s: int = Field(
        172_800, ge=0, description="TTL removes so long after a message is old enough to move"
    )

    ttl_sweep: bool = Field(
        False, description="where no DynamoDB removes by TTL, the worker does; not on AWS"
    )
    stream_poll_s: float = Field(
        5.0, gt=0, le=300, description="how often the Stream is asked where nothing comes"
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        latest_s = self.wait_s + 2 * self.sweep_interval_s
        if self.removal == "ttl" and self.retention_s and self.ttl_margin_s <= latest_s:
            raise ValueError("ttl_margin_s: must be more than wait_s and two sweep_interval_s")
        if self.segment_entries_min > self.segment_entries_max:
            raise ValueError("segment_entries_min: must be at most segment_entries_max")
        return self


class Audit(Section):
    """Audit: periodic comparison of the tiers."""

    interval_s: float = Field(86_400.0, gt=0, description="from one round to the next")
    read_units_per_s: int = Field(
        100, ge=1, description="capacity units of DynamoDB for it, at most, in each process"
    )
    lease_s: float = Field(60.0, gt=0.5, le=600, description="a dead worker is followed after")
    confirm_s: float = Field(
        1.0, ge=0, le=60, description="what seems wrong is looked at again after"
    )
    orphan_age_s: int = Field(
        3600, ge=0, description="younger objects without a row may be on their way"
    )


class Repair(Section):
    """Repair worker, which finishes the fan-outs of dead gateways."""

    after_ms: int = Field(
        1000,
        ge=100,
        description="a fan-out that is not finished for so long is finished by the worker",
    )
    interval_ms: int = Field(500, ge=50, description="how often it looks")


class Telemetry(Section):
    """Logs, metrics and traces."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the least that is logged"
    )
    format: Literal["json", "console"] = Field(
        "json", description="JSON a line, or lines for people"
    )
    metrics_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="serves /metrics, /healthz and /readyz; unset: nowhere",
    )
    metrics_host: str = Field(
        "127.0.0.1", description="where; any other address must not be one that clients reach"
    )
    traces: Literal["off", "otlp"] = Field(
        "off", description="spans of messages, sent by OTLP over HTTP; needs the extra `otel`"
    )
    traces_endpoint: str = Field(
        "http://127.0.0.1:4318/v1/traces", description="whole URL of the collector"
    )
    traces_sample: float = Field(
        0.01, ge=0, le=1, description="share of messages; every process takes the same ones"
    )


class Settings(BaseSettings):
    """All settings of a process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="_",
        env_nested_max_split=1,
        enable_decoding=False,  # `Section` parses lists, with better errors
        extra="forbid",
        frozen=True,
    )

    redis: Redis = Redis()
    gateway: Gateway = Gateway()
    chats: Chats = Chats()
    presence: Presence = Presence()
    limits: Limits = Limits()
    warm: Warm = Warm()
    cold: Cold = Cold()
    attachments: Attachments = Attachments()
    auth: Auth = Auth()
    api: Api = Api()
    outbound: Outbound = Outbound()
    webhooks: Webhooks = Webhooks()
    persist: Persist = Persist()
    archive: Archive = Archive()
    audit: Audit = Audit()
    repair: Repair = Repair()
    notify: Notify = Notify()
    assistant: Assistant = Assistant()
    privacy: Privacy = Privacy()
    counters: Counters = Counters()
    timeline: Timeline = Timeline()
    telemetry: Telemetry = Telemetry()

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        wanted = self.chats.request_bytes_max
        if self.gateway.frame_bytes_max < wanted and self.chats.body_bytes_max > BODY_BYTES_MAX:
            raise ValueError(
                f"gateway.frame_bytes_max: must be at least {wanted}, so that a message of "
                f"chats.body_bytes_max ({self.chats.body_bytes_max}) fits into a frame"
            )
        return self

    @model_validator(mode="after")
    def _share_tenant(self) -> Self:
        if self.cold.tenant not in ("", self.warm.tenant):
            raise ValueError("cold.tenant: must be as warm.tenant, or unset")
        # One setting for both tiers, so that they cannot differ.
        self.__dict__["cold"] = self.cold.model_copy(update={"tenant": self.warm.tenant})
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, secrets, file; no dotenv."""
        sources: tuple[PydanticBaseSettingsSource, ...] = (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=_read_secrets()),
        )
        path = os.environ.get("CHAT_CONFIG")
        if path:
            sources += (TomlConfigSettingsSource(settings_cls, Path(path)),)
        return sources


class _SigningSettings(Settings):
    """The settings of a process that signs or verifies tokens."""

    model_config = SettingsConfigDict(validate_default=True)

    @field_validator("auth")
    @classmethod
    def _check_secret(cls, auth: Auth) -> Auth:
        if problem := _secret_problem(auth):
            raise ValueError(problem)
        return auth


def load_settings(*, requires_secret: bool = False, **overrides: Any) -> Settings:
    """Load the settings of this process.

    `overrides` are sections as mappings with the highest precedence, for flags and tests.
    `requires_secret`: the process signs or verifies tokens.

    Raises:
        ConfigError: the settings are invalid; `problems` lists every problem.
    """
    problems = _unknown_variables()
    path = os.environ.get("CHAT_CONFIG")
    if path and not Path(path).is_file():
        problems.append(f"CHAT_CONFIG: there is no file {path}")
        raise ConfigError(problems)
    try:
        settings = (_SigningSettings if requires_secret else Settings)(**overrides)
    except ValidationError as exc:
        raise ConfigError([*problems, *_told(exc)]) from None
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([*problems, f"CHAT_CONFIG: {path} is not TOML: {exc}"]) from None
    except UnicodeDecodeError as exc:
        raise ConfigError([*problems, f"CHAT_CONFIG: {path} is not UTF-8: {exc}"]) from None
    if problems:
        raise ConfigError(problems)
    return settings


def _told(wrong: ValidationError) -> Iterator[str]:
    """Yield one problem per invalid setting, with its name and its variable."""
    variables = {f"{section}.{name}": one for one, (section, name) in _variables().items()}
    for error in wrong.errors():
        name = ".".join(str(part) for part in error["loc"])
        why = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
        if why.startswith(_SECRET):
            yield why
            continue
        if error["type"] == "extra_forbidden":
            if f"{PREFIX}{name.replace('.', '_')}".upper() in os.environ:
                continue  # reported for its variable
            why = "no such setting"
        setting = ".".join(name.split(".")[:2])
        if setting in variables:
            name += f" ({variables[setting]})"
        yield f"{name}: {why[:1].lower()}{why[1:]}" if name else why


def check_secret(settings: Settings) -> None:
    """Check that a process which trusts tokens has a valid signing key.

    Raises:
        ConfigError: `auth.secret` is unset or shorter than 32 bytes.
    """
    if problem := _secret_problem(settings.auth):
        raise ConfigError([problem])


_SECRET = "auth.secret (CHAT_AUTH_SECRET)"  # noqa: S105  # the name of a setting


def _secret_problem(auth: Auth) -> str | None:
    if len(auth.secret.get_secret_value().encode()) >= 32:
        return None
    return f"{_SECRET}: must be at least 32 bytes; try: openssl rand -hex 32"


def _variables() -> dict[str, tuple[str, str]]:
    """Return the section and setting of each environment variable, by variable name."""
    return {
        f"{PREFIX}{section}_{name}".upper(): (section, name)
        for section, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        for name in field.annotation.model_fields
    }


def _read_secrets() -> dict[str, dict[str, str]]:
    """Return the settings in ``CHAT_SECRETS_DIR``: one file per setting, named like its variable.

    Raises:
        ConfigError: the directory does not exist.
    """
    folder = os.environ.get("CHAT_SECRETS_DIR")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise ConfigError([f"CHAT_SECRETS_DIR: there is no directory {folder}"])
    found: dict[str, dict[str, str]] = {}
    for variable, (section, name) in _variables().items():
        for file in (Path(folder, variable), Path(folder, variable.lower())):
            if file.is_file():
                found.setdefault(section, {})[name] = file.read_text().strip()
    return found


def _unknown_variables() -> list[str]:
    known = _variables()
    return [
        f"{name}: no such setting"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in known and name not in _NOT_SETTINGS
    ]
