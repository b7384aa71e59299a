"""Redis checks for `chatserver doctor`. Read-only, also in an empty Redis."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import redis.asyncio
import redis.exceptions

from chatserver import config
from chatserver.domain.clock import Clock
from chatserver.errors import ChatError, ConfigError
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import make_hot
from chatserver.operations.doctor.model import DoctorFinding, make_finding

STORE: Final = "redis"
OLDEST: Final = (7, 0)
CLOCKS_S_MAX: Final = 1.0
MEMORY_SHARE_MAX: Final = 0.8
WAITING_MAX: Final = 0.5  # A backlog above this share of its limit (`backlog_max`) is a finding.
WORKERS: Final = ("persist", "repair")  # workers that every deployment needs

REWRITE_BYTES_MIN: Final = 256_000_000
_REWRITE_SIZE: Final = "auto-aof-rewrite-min-size"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


_require = functools.partial(make_finding, STORE)
_recommend = functools.partial(make_finding, STORE, level="note")


async def check_redis(
    settings: config.Redis, clock: Clock, extra_workers: Sequence[str] = ()
) -> list[DoctorFinding]:
    """Return the findings about Redis. `extra_workers`: additional workers that must run.

    Guarantees:
        Redis problems are returned, never raised.
        Cost: about ten small commands per server, and four per partition.
    """
    hot = make_hot(settings, is_read_only=True)
    try:
        await hot.connect()
    except ConfigError as exc:
        return [
            DoctorFinding(STORE, "problem", problem, "correct the setting")
            for problem in exc.problems
        ]
    except ChatError as exc:
        reason, _, fix = exc.message.partition("; ")
        return [DoctorFinding(STORE, "problem", reason, fix)]
    try:
        findings = [DoctorFinding(STORE, "ok", f"responds at {hot.name} and runs the scripts")]
        for name, key in sorted(hot.get_keys_by_server().items()):
            findings += await _check_server(hot, name, key, clock)
        return findings + await _check_workers(hot, [*WORKERS, *extra_workers])
    except (ChatError, redis.exceptions.RedisError, OSError) as exc:
        reason = exc.message if isinstance(exc, ChatError) else str(exc)
        return [
            DoctorFinding(
                STORE, "problem", reason, "check the log of Redis, then run this command again"
            )
        ]
    finally:
        await hot.close()


async def _check_server(hot: HotClient, name: str, key: str, clock: Clock) -> list[DoctorFinding]:
    client = hot.create_blocking_client(key)
    try:
        info: dict[str, Any] = await hot.with_deadline(client.info())
        before = clock.time()
        seconds, micros = await hot.with_deadline(client.time())
        after = clock.time()
        findings = [*_check_version(name, info), *_check_persistence(name, info)]
        findings += check_replicas(name, info, hot.settings.wait_replicas)
        findings.append(_check_memory(name, info))
        findings += await _check_rewrites(hot, client, name, info)
        # The server read its clock between `before` and `after`, which may be far apart on a busy
        # machine.
        theirs = seconds + micros / 1e6
        skew_s = max(before - theirs, theirs - after, 0.0)
        findings.append(
            _recommend(
                f"{name}: its clock is less than {CLOCKS_S_MAX:g} s off",
                is_met=skew_s < CLOCKS_S_MAX,
                fix=f"it is {skew_s:.1f} s off; run chrony or NTP on both machines",
            )
        )
        return findings
    finally:
        await client.aclose()


def _check_version(name: str, info: dict[str, Any]) -> list[DoctorFinding]:
    version = str(info.get("redis_version", ""))
    match = _VERSION.match(version)
    is_new = match is not None and (int(match[1]), int(match[2])) >= OLDEST
    oldest = ".".join(map(str, OLDEST))
    return [
        _require(
            f"{name}: version {version} is {oldest} or newer",
            is_met=is_new,
            fix=f"upgrade it to {oldest} or newer",
        ),
    ]


def _check_persistence(name: str, info: dict[str, Any]) -> list[DoctorFinding]:
    """Check whether a Redis server loses data if its process or machine crashes."""
    is_logged = bool(int(info.get("aof_enabled", 0)))
    findings = [
        _recommend(
            f"{name}: keeps its data in a crash (append-only file)",
            is_met=is_logged,
            fix="set `appendonly yes` (not needed with MemoryDB); without it, a crash of Redis "
            "loses messages that are acked as `hot` and not stored yet",
        ),
    ]
    if is_logged and info.get("aof_last_write_status", "ok") != "ok":
        findings.append(
            DoctorFinding(STORE, "problem", f"{name}: cannot write its append-only file",
                    "check its disk; it is full or read-only")
        )  # fmt: skip
    return findings


async def _check_rewrites(
    hot: HotClient, client: redis.asyncio.Redis, name: str, info: dict[str, Any]
) -> list[DoctorFinding]:
    """Check that the append-only file is not rewritten too often; nothing if that is unknown."""
    if not int(info.get("aof_enabled", 0)):
        return []
    try:
        settings = await hot.with_deadline(client.config_get(_REWRITE_SIZE))
    except redis.exceptions.ResponseError:  # the user is not allowed to run CONFIG
        return []
    size = int(settings.get(_REWRITE_SIZE, 0))
    return [
        _recommend(
            f"{name}: does not rewrite a small append-only file",
            is_met=size >= REWRITE_BYTES_MIN,
            fix=f"set `{_REWRITE_SIZE} 1gb` (now {size / 1e6:,.0f} MB); under load, frequent "
            "rewrites slow it down",
        )
    ]


def _check_memory(name: str, info: dict[str, Any]) -> DoctorFinding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    usage = f"{name}: uses {used / 1e6:,.0f} MB"
    if most == 0:
        fix = "set `maxmemory` below the memory of the machine, with `maxmemory-policy noeviction`"
        return DoctorFinding(STORE, "note", f"{usage} and has no limit", fix)
    if used >= most:
        fix = "add memory, and check why workers do not persist; meanwhile, sends are refused"
        return DoctorFinding(
            STORE, "problem", f"{usage} and is full: maxmemory is {most / 1e6:,.0f} MB", fix
        )
    share = f"{usage}, less than {MEMORY_SHARE_MAX:.0%} of its {most / 1e6:,.0f} MB"
    fix = "raise maxmemory, or lower redis.log_max, redis.inbox_max or redis.chat_idle_s"
    return _require(share, is_met=used < most * MEMORY_SHARE_MAX, fix=fix)


async def _check_workers(hot: HotClient, workers: Sequence[str]) -> list[DoctorFinding]:
    """Check that workers hold the leases for all partitions, and that backlogs are short."""
    keys, most = hot.keys, hot.settings.backlog_max
    idle: dict[str, list[int]] = {worker: [] for worker in workers}
    full: list[int] = []
    for partition in range(keys.partitions):
        for worker in workers:
            if not await hot.call("HGET", keys.lease(partition, worker), "owner"):
                idle[worker].append(partition)
        if await Backlog(hot, partition).count_waiting() > most * WAITING_MAX:
            full.append(partition)
    findings = [
        _require(
            f"a worker `{worker}` serves each partition",
            is_met=not without,
            fix=f"none serves {_join(without)}; run `chatserver worker {worker}`, or `worker all`",
        )
        for worker, without in idle.items()
    ]
    findings.append(
        _require(
            f"each partition has fewer than {most * WAITING_MAX:,.0f} unpersisted commits",
            is_met=not full,
            fix=f"{_join(full)}: check the log of `worker persist`; at {most:,}, sends are refused",
        )
    )
    return findings


def _join(partitions: list[int]) -> str:
    listed = ", ".join(map(str, partitions[:5]))
    return f"partition {listed}" + (" and others" if len(partitions) > 5 else "")


def check_replicas(name: str, info: Mapping[str, Any], wait_replicas: int) -> list[DoctorFinding]:
    """Return whether enough replicas remain if a server fails.

    A replica that becomes the master has one replica less than its predecessor. `info` is the
    server's reply to INFO.
    """
    replicas = int(info.get("connected_slaves", 0))
    findings = [
        _recommend(
            f"{name}: has a replica",
            is_met=replicas > 0,
            fix="add a replica; otherwise, there is no failover",
        )
    ]
    if wait_replicas:
        findings.append(
            _recommend(
                f"{name}: has at least {wait_replicas + 1} replicas "
                f"(CHAT_REDIS_WAIT_REPLICAS is {wait_replicas})",
                is_met=replicas > wait_replicas,
                fix=f"it has {replicas}; add replicas. If one of its servers fails, each message "
                "waits for DynamoDB until the server is back",
            )
        )
    # Redis reports this field only if `min-replicas-to-write` is set.
    if "min_slaves_good_slaves" in info:
        findings.append(
            _recommend(
                f"{name}: has at least 2 replicas (min-replicas-to-write is set)",
                is_met=replicas > 1,
                fix=f"it has {replicas}; add replicas. If one of its servers fails, Redis refuses "
                "all writes until the server is back",
            )
        )
    return findings
