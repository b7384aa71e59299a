"""Swarms: settings, faults and actions that make one kind of failure common.

Without a swarm, each seed draws from everything (`run.draw_settings`, `script.write_script`). A
quarter of the mixed seeds has one of these swarms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Swarm(NamedTuple):
    """Changes to a usual seed: settings, the kinds of faults, and the weights of user actions.

    Actions without a weight are rare.
    """

    settings: Mapping[str, Mapping[str, Any]] = {}
    kinds: tuple[str, ...] = ()
    actions: Mapping[str, int] = {}


_CUTS: Final = ("cut", "crash_device", "reset_link", "refuse_link", "deafen_link")

SWARMS: Final = {
    # Large chats whose log is trimmed while devices are offline and members change.
    "trimmed_logs": Swarm(
        {"redis": {"log_max": 10, "inbox_max": 10}, "chats": {"fanout_members_max": 2}},
        (*_CUTS, "pause_gateway", "end_gateway", "kill_worker", "stop_dynamodb"),
        {"send": 30, "send_as_all": 10, "join_or_leave": 10, "invite_or_remove": 10},
    ),
    # Users leave groups while Redis restarts; bare devices must not get events twice.
    "leave_at_restart": Swarm(
        {},
        ("kill_redis", "cut_redis_log", "crash_device", "kill_gateway"),
        {"send": 20, "join_or_leave": 20, "invite_or_remove": 20},
    ),
    # Workers die between two writes; `stored` must reach each sender.
    "stored_at_kill": Swarm(
        {"persist": {"lease_s": 2}},
        ("kill_worker", "pause_worker", "fail_dynamodb", "slow_dynamodb", "kill_redis"),
        {"send": 30, "edit": 10, "react": 10},
    ),
    # Messages are deleted for everyone and for oneself while gateways die at any callback.
    "delete_at_kill": Swarm(
        {},
        ("kill_gateway", "crash_device", "kill_redis", "cut", "deafen_link"),
        {"send": 20, "remove_message": 30, "restart_device": 10, "edit": 10},
    ),
    # Gateways die between the commit of a message and its delivery in other partitions.
    "delivery_at_kill": Swarm(
        {"redis": {"partitions": 3}},
        ("kill_gateway",),
        {"send": 30, "send_as_all": 10},
    ),
    # Redis is emptied while DynamoDB lacks messages, and users go on at once.
    "send_after_flush": Swarm(
        {},
        ("flush_redis", "slow_dynamodb", "stop_dynamodb"),
        {"send": 60, "send_as_all": 10},
    ),
    # Workers stop for longer than their lease, while writes are slow and the logs are small.
    "late_writes": Swarm(
        {"redis": {"log_max": 10, "inbox_max": 10}},
        ("pause_worker", "slow_dynamodb"),
        {"send": 60, "send_as_all": 10, "edit": 10},
    ),
    # Gateways are paused until their users count as offline, and miss more than an inbox keeps.
    "lagging_gateways": Swarm(
        {"redis": {"log_max": 10, "inbox_max": 10}, "gateway": {"online_ttl_s": 1.2}},
        ("pause_gateway", "deafen_link"),
        {"send": 60, "send_as_all": 20},
    ),
    # Redis loses messages that DynamoDB does not have yet, while users change these messages.
    "change_after_loss": Swarm(
        {},
        ("cut_redis_log", "fail_over_redis", "flush_redis", "stop_dynamodb", *_CUTS),
        {"send": 30, "react": 15, "remove_message": 20, "edit": 10},
    ),
}
