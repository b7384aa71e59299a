"""Epochs of the partitions, which show whether Redis has lost data.

A replaced or restarted server may have lost recent writes (guarantees P1, P5), so its partitions
get a new epoch, and devices start over from a snapshot. The server is recognized by its replication
id. If data is deleted at runtime, the id stays the same, so each process also checks periodically
that the epochs still exist (`HotClient.watch_epochs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from chatserver import config
from chatserver.domain.access.tenants import format_tenant
from chatserver.domain.ids import ULID_TIME_CHARS, Epoch, new_id
from chatserver.errors import ConfigError
from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.pipelined_connection import PipelinedConnection
from chatserver.hot.redis.replies import call_on
from chatserver.hot.redis.scripts import load_script


class LoadedEpoch(NamedTuple):
    """A partition's epoch, and the settings stored in Redis.

    `blocked`: an operator's reason for blocking this Redis; empty if it is not blocked.
    """

    epoch: Epoch
    partitions: int
    tenant: str
    blocked: str

    def check_settings(self, settings: config.Redis) -> None:
        """Check the tenant and the number of partitions. Raises ConfigError."""
        if self.tenant != settings.tenant:
            raise ConfigError(
                f"redis.url (CHAT_REDIS_URL): this Redis belongs to "
                f"{format_tenant(self.tenant)}, but warm.tenant (CHAT_WARM_TENANT) is "
                f"{format_tenant(settings.tenant)}; each tenant needs its own Redis"
            )
        if self.partitions != settings.partitions:
            raise ConfigError(
                f"redis.partitions: is {settings.partitions}, but this Redis was "
                f"initialized with {self.partitions}; to change it, drain and empty Redis"
            )


async def read_epoch(
    wire: PipelinedConnection, keys: Keys, settings: config.Redis, partition: int
) -> LoadedEpoch:
    """Return the partition's epoch without writing; the epoch is empty if there is none yet."""
    epoch, partitions, tenant, blocked = await call_on(
        wire, "HMGET", keys.epoch(partition), "epoch", "partitions", "tenant", "blocked"
    )
    return LoadedEpoch(
        Epoch((epoch or b"").decode()),
        int(partitions or settings.partitions),
        settings.tenant if tenant is None else tenant.decode(),
        (blocked or b"").decode(),
    )


async def load_epoch(
    wire: PipelinedConnection,
    keys: Keys,
    settings: config.Redis,
    partition: int,
    replid: str,
    came_from: str,
) -> LoadedEpoch:
    """Return the partition's epoch, or a new one if its server may have lost recent writes.

    `came_from`: the previous server's replication id, if the partition moved without data loss.
    """
    script = load_script("get_or_create_epoch")
    names, args = script.bind(
        keys.of(partition, *script.keys),
        {
            "replid": replid,
            "came_from": came_from,
            "suffix": new_id()[ULID_TIME_CHARS:],
            "partitions": settings.partitions,
            "tenant": settings.tenant,
        },
    )
    # EVAL, not EVALSHA: this runs rarely, and Redis may have lost the script.
    epoch, partitions, tenant, blocked = await call_on(
        wire, "EVAL", script.source, len(names), *names, *args
    )
    return LoadedEpoch(Epoch(epoch.decode()), partitions, tenant.decode(), blocked.decode())


def join_epochs(epochs: Sequence[Epoch]) -> Epoch:
    """Join the partitions' epochs into one epoch. A single epoch is returned unchanged."""
    if len(epochs) == 1:
        return epochs[0]
    digest = hashlib.sha256(",".join(epochs).encode()).hexdigest()
    return Epoch(digest[:26])
