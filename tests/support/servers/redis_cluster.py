"""Redis Cluster of real servers on loopback, for slot migration and failover tests."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from chatserver.dev.ports import is_port_free
from chatserver.dev.servers import HOST, Server, redis_launch
from chatserver.hot.redis.keys import SLOTS, get_slot
from tests.support.servers.processes import free_port

NODE_TIMEOUT_MS = 800
LONG_NODE_TIMEOUT_MS = 30_000
_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-config-file": "nodes.conf",
    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
    "cluster-replica-validity-factor": "0",  # a replica may be elected whatever its age
    "cluster-require-full-coverage": "no",
    "cluster-migration-barrier": "10",  # replicas stay with their masters
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}


class ClusterNode:
    """A server of the cluster, and a connection to it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        while not (port + 10_000 < 32_000 and is_port_free(port + 10_000)):
            port = free_port()  # the cluster bus is 10,000 above
        launch = redis_launch(folder / f"redis-{port}", port, appendonly="no")
        options = [arg for name, value in _OPTIONS.items() for arg in (f"--{name}", value)]
        self.server = Server(dataclasses.replace(launch, argv=[*launch.argv, *options]))
        self.port = port
        self.admin: Any = redis.Redis(host=HOST, port=port, socket_timeout=20)
        self.admin.response_callbacks.clear()

    @property
    def id(self) -> str:
        """The node's id in the cluster."""
        return str(self.request("CLUSTER", "MYID").decode())

    def request(self, *args: Any) -> Any:
        """Send a command and return the raw reply."""
        return self.admin.execute_command(*args)

    def info(self, section: str) -> dict[str, str]:
        """Return a section of INFO."""
        text = self.request("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def info_of_cluster(self) -> dict[str, str]:
        """Return the reply to CLUSTER INFO."""
        text = self.request("CLUSTER", "INFO").decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    @property
    def is_master(self) -> bool:
        """True if the node is a master."""
        return self.server.process is not None and self.info("replication")["role"] == "master"


class RedisCluster:
    """Three masters, each with an optional replica. `open_redis_cluster` creates one."""

    def __init__(self, folder: Path, *, replicas: bool) -> None:
        self.nodes = [ClusterNode(folder) for _ in range(6 if replicas else 3)]

    @property
    def url(self) -> str:
        """The address of one of the nodes."""
        node = next(node for node in self.nodes if node.server.process is not None)
        return f"redis://{HOST}:{node.port}/0"

    def start(self) -> None:
        """Start all servers and create a cluster."""
        for node in self.nodes:
            node.server.start()
        masters, replicas = self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(masters):
            first, last = number * SLOTS // 3, (number + 1) * SLOTS // 3
            node.request("CLUSTER", "ADDSLOTS", *range(first, last))
        for number, node in enumerate(self.nodes):
            node.request("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:
                node.request("CLUSTER", "MEET", HOST, other.port)
        self.wait(
            lambda: all(self._is_known(node) for node in self.nodes), "all nodes know each other"
        )
        for master, replica in zip(masters, replicas, strict=False):
            replica.request("CLUSTER", "REPLICATE", master.id)
        self.wait_until_whole()

    def _is_known(self, node: ClusterNode) -> bool:
        lines = node.request("CLUSTER", "NODES").decode().splitlines()
        met = [line for line in lines if "handshake" not in line and " connected" in line]
        return len(met) == len(self.nodes)

    def wait_until_whole(self) -> None:
        """Wait until every slot is served and every replica is connected."""
        self.wait(lambda: all(self._is_whole(node) for node in self.nodes), "the cluster is whole")

    def _is_whole(self, node: ClusterNode) -> bool:
        state, link = node.info_of_cluster(), node.info("replication")
        if link["role"] == "master":
            is_linked = len(self.nodes) == 3 or "state=online" in link.get("slave0", "")
        else:
            is_linked = link["master_link_status"] == "up"
        return is_linked and state["cluster_state"] == "ok" and state["cluster_slots_ok"] == "16384"

    def wait(self, condition: Callable[[], bool], what: str, deadline_s: float = 60.0) -> None:
        """Wait until a condition holds; a Redis error counts as false."""
        give_up = time.monotonic() + deadline_s
        while True:
            try:
                if condition():
                    return
            except redis.RedisError:
                pass
            assert time.monotonic() < give_up, f"{what}: not within {deadline_s:g} s"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kill all servers."""
        for node in self.nodes:
            node.admin.close()
            node.server.kill()

    # slot owners

    def masters(self) -> list[ClusterNode]:
        """Return the running masters."""
        return [node for node in self.nodes if node.is_master]

    def owner_of(self, key: str) -> ClusterNode:
        """Return the master that serves a key."""
        slot = get_slot(key)
        for node in self.masters():
            for start, end, (_, port, *_), *_ in node.request("CLUSTER", "SLOTS"):
                if start <= slot <= end and port == node.port:
                    return node
        raise AssertionError(f"no node serves {key}")

    # slot migration

    def start_move(self, key: str, target: ClusterNode) -> ClusterNode:
        """Start to migrate the slot of a key; return its source node."""
        slot, source = get_slot(key), self.owner_of(key)
        target.request("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.request("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return source

    def move_keys(self, key: str, source: ClusterNode, target: ClusterNode, batch: int = 10) -> int:
        """Migrate the keys of a slot in batches; return their number."""
        slot, count = get_slot(key), 0
        while names := source.request("CLUSTER", "GETKEYSINSLOT", slot, batch):
            source.request("MIGRATE", HOST, target.port, "", 0, 15_000, "KEYS", *names)
            count += len(names)
        return count

    def end_move(self, key: str, target: ClusterNode) -> None:
        """Assign the slot to the node that has its keys now."""
        slot = get_slot(key)
        target.request("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        for node in self.masters():
            if node is not target:
                node.request("CLUSTER", "SETSLOT", slot, "NODE", target.id)

    def move_slot(self, key: str, target: ClusterNode) -> int:
        """Migrate the slot of a key; return the number of its keys."""
        source = self.start_move(key, target)
        count = self.move_keys(key, source, target)
        self.end_move(key, target)
        return count

    # failover

    def use_short_node_timeout(self) -> None:
        """Use the short node timeout, so that a dead or stalled master is replaced quickly."""
        self._set_node_timeout(NODE_TIMEOUT_MS)

    def use_long_node_timeout(self) -> None:
        """Use the long node timeout, so that a stalled node is not declared dead."""
        self.wait_until_whole()
        self._set_node_timeout(LONG_NODE_TIMEOUT_MS)
        self.wait_until_whole()

    def _set_node_timeout(self, timeout_ms: int) -> None:
        for node in self.nodes:
            node.request("CONFIG", "SET", "cluster-node-timeout", timeout_ms)

    def cut_replication(self, master: ClusterNode) -> None:
        """Prevent replication from a master, so that its further writes exist only there."""
        master.request("ACL", "SETUSER", "default", "-psync", "-sync")
        replica = self.replica_of(master)
        master.request("CLIENT", "KILL", "TYPE", "replica")
        self.wait(
            lambda: replica.info("replication")["master_link_status"] == "down",
            "the replica is disconnected",
        )

    def restore_replication(self, master: ClusterNode) -> None:
        """Restore replication from a master, and wait until it is connected."""
        master.request("ACL", "SETUSER", "default", "+psync")
        self.wait_until_whole()
        # Last, because a replica that was just refused PSYNC would use SYNC, as before Redis 2.8.
        # Such a replica acknowledges nothing, and WAIT would block forever.
        master.request("ACL", "SETUSER", "default", "+sync")

    def wait_replicated(self, master: ClusterNode) -> None:
        """Wait until the replica has all current data of a master."""
        replica, sent = (
            self.replica_of(master),
            int(master.info("replication")["master_repl_offset"]),
        )
        self.wait(
            lambda: int(replica.info("replication")["slave_repl_offset"]) >= sent,
            "the replica has all data",
        )

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        """Return the replica of a master."""
        return next(
            node
            for node in self.nodes
            if node.server.process is not None
            and node.info("replication").get("master_port") == str(master.port)
        )


@contextmanager
def open_redis_cluster(folder: Path, *, replicas: bool = False) -> Iterator[RedisCluster]:
    """Start a cluster and stop it at the end of the block."""
    cluster = RedisCluster(folder, replicas=replicas)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
