"""Redis key names of the core; a feature has its own in `keys.py`. No other module builds keys.

``{pN}`` is the hash tag of a partition. All keys of one chat, or of one user, share a slot, so one
script can use them together. ``N = crc16(id) % partitions``; ids cannot contain ``{``, ``}`` or
``:`` (see `chatserver.domain.ids`), so keys never collide.

| key                     | type   | content                                                     |
|-------------------------|--------|-------------------------------------------------------------|
| ``{pN}:epoch``          | hash   | ``epoch``, ``replid`` of the Redis that created it,         |
|                         |        | ``partitions``, ``tenant``, ``blocked``                     |
| ``{pN}:chat:<chat>``    | hash   | ``seq ts base stored dead kind name``, ``gate``:            |
|                         |        | ``epoch:version`` and write policy, with ``:p`` while a     |
|                         |        | fan-out is pending,                                         |
|                         |        | ``done``: seq up to which every inbox has the entries, if a |
|                         |        | fan-out is pending,                                         |
|                         |        | ``large``: version at which it became a large chat,         |
|                         |        | ``turns``: seqs of large-chat transitions,                  |
|                         |        | ``s:<sender>``: the newest seq of a sender, and             |
|                         |        | ``#<digest>`` of (sender, ref): the position of the entry   |
|                         |        | with this ref, for at least a day                           |
| ``{pN}:members:<chat>`` | hash   | user → ``<role>:<joined seq>``, with ``:<until>m`` appended |
|                         |        | if muted; joined seq: chat seq at which the user joined     |
| ``{pN}:turnover:<chat>`` | hash  | ``<version>:<user>`` → ``in:<seq>``, ``out:<seq>:<after>``, |
|                         |        | ``<version>:+`` → ``up:<seq>``, ``down:<seq>``: pending     |
|                         |        | notices of joins, leaves and large-chat transitions         |
| ``{pN}:log:<chat>``     | stream | ``<seq>-0``: timestamp → ``receiver\\n`` and message JSON   |
| ``{pN}:over:<chat>``    | hash   | seq → current state of an entry that was changed or lost    |
|                         |        | its text                                                    |
| ``{pN}:revs:<chat>``    | zset   | seq of an entry in ``over`` → seq of its last change        |
| ``{pN}:uncounted:<chat>`` | zset | seqs of the newest entries that never count as unread       |
| ``{pN}:expiring:<chat>`` | zset  | seq of a message → its expiry (Unix seconds)                |
| ``{pN}:hidden:<user>``  | hash   | chat → seqs that the user deleted for themselves            |
| ``{pN}:backlog``        | stream | committed entries that are not persisted yet                |
| ``{pN}:dead``           | stream | backlog entries that could not be persisted, with a reason  |
| ``{pN}:undelivered``    | zset   | chat → commit time (ms) of its oldest unfinished fan-out    |
| ``{pN}:idle``           | zset   | chat → time of its last recorded activity (s)               |
| ``{pN}:changing``       | zset   | ``<chat>:<id>`` → deadline of a membership change (ms)      |
| ``{pN}:inbox:<user>``   | stream | ``0-<seq>``: chat → chat seq, or ``<first>-<last>`` of      |
|                         |        | several messages, or ``!`` → event                          |
| ``{pN}:box:<user>``     | hash   | user state: ``known`` epoch; per chat ``c:`` when listed,   |
|                         |        | ``r:`` read, ``d:`` received, ``t:`` last seq delivered by  |
|                         |        | ``append_to_inboxes``, ``m:`` last reported mark of each    |
|                         |        | member                                                      |
| ``{pN}:online:<user>``  | zset   | gateway → expiry (ms)                                       |
| ``{pN}:seen:<user>``    | hash   | presence and sessions of the user, over all gateways:       |
|                         |        | ``g:<gateway>`` state, ``s:<session>`` gateway, ``last``,   |
|                         |        | ``v``; expires                                              |
| ``{pN}:watched:<user>`` | zset   | gateways subscribed to the user's presence → expiry (ms)    |
| ``{pN}:revoked:<user>`` | hash   | revocations of the user: ``before``, ``banned``,            |
|                         |        | ``s:<login>``; expires                                      |
| ``{pN}:limit:<kind>:<subject>`` | hash | a token bucket: ``tokens``, ``at``; expires when full   |
| ``{pN}:room:<user>``    | string | number of groups that the user can still join; expires      |
| ``{pN}:login-attempts:<user>:<source>`` | hash | login attempts from a network or a     |
|                         |        | known device: ``tokens``, ``at``; expires when full         |
| ``{pN}:guesses:<user>`` | hash   | login attempts from all unknown devices; expires when full  |
| ``{pN}:answer:<name>``  | string | stored response for an idempotency key; expires             |
| ``{pN}:answers:<user>`` | set    | names of responses that may contain data of the user;       |
|                         |        | expires                                                     |
| ``{pN}:gateways``       | zset   | gateway → time at which it counts as dead (ms)              |
| ``{pN}:where``          | hash   | user → gateways, comma-separated; a copy of ``online``      |
| ``{pN}:watchers:<chat>`` | zset  | gateways subscribed to a large chat → expiry (ms)           |
| ``{pN}:large:<user>``   | hash   | chat → newest periods in which the user's devices read the  |
|                         |        | chat's log instead of the inbox:                            |
|                         |        | ``<inbox seq>:<since>:<until>``                             |
| ``{pN}:lease:<work>``   | hash   | ``owner``, ``token``, ``until_ms``                          |
| ``{pN}:checkpoint``     | hash   | ``id`` of the last persisted backlog entry, ``token`` of    |
|                         |        | its writer, and the backlog positions of the other readers  |
| ``{pN}:progress``       | hash   | chat → seq up to which it is persisted past the checkpoint  |
| ``{gw:<id>}:stream``      | stream | stream of a gateway, bounded                               |
| ``{pN}:job:<job>``      | hash   | progress of an API job: ``total``, ``done``,                |
|                         |        | ``failed``, ``state``, ``at``; expires                      |
| ``{jwks}:keys``         | hash   | key set of the host application: ``at``, ``body``; expires  |
| ``{jwks}:fetching``     | string | exists while no fetch is due; expires                       |
| ``{rpc}:calls``         | stream | calls from gateways to the warm tier, bounded               |
| ``{hook}:calls``        | stream | calls from gateways to ``before_send``, bounded             |
| ``{search}:calls``      | stream | searches from gateways, bounded                              |
| ``{pN}:blocks:<user>``  | set    | users who block this user or are blocked by this user       |
| ``{cost}:units:<day>``  | hash   | DynamoDB units by purpose; expires                          |
| ``{cost}:reads:<day>``  | zset   | chat → read units, of the heaviest chats; expires           |
| ``{cost}:writes:<day>`` | zset   | chat → write units, likewise; expires                       |
| ``{cost}:flushes:<day>`` | hash  | process → number of the last usage report that was added to |
|                         |        | the totals; expires                                         |
| ``{figures}:log``       | stream | process statistics, every two seconds, bounded; expires     |
| ``{audit}:rounds``      | hash   | partition → result of the audit's last pass over its chats  |
| ``{audit}:findings``    | stream | latest findings of the audit, bounded                       |
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from chatserver.domain.ids import ChatId, GatewayId, UserId

T = TypeVar("T")
SLOTS = 16_384  # number of slots in a Redis Cluster
# The word in the key of each declared method, and whether the key names a chat or user.
_WORDS: dict[str, tuple[str, bool]] = {}


def get_slot(key: str | bytes) -> int:
    """Return the key's Redis Cluster slot, computed from its hash tag if it has one."""
    name = key.encode() if isinstance(key, str) else key
    start = name.find(b"{") + 1
    end = name.find(b"}", start)
    if start > 0 and end > start:
        name = name[start:end]
    return binascii.crc_hqx(name, 0) % SLOTS


def parse_partition(key: str | bytes) -> int:
    """Return the partition of a key that starts with ``{pN}``."""
    name = key.decode() if isinstance(key, bytes) else key
    return int(name[2 : name.index("}")])


def parse_entry_id(entry_id: str) -> tuple[int, int]:
    """Return the id of a stream entry as a value that can be compared."""
    ms, _, n = entry_id.partition("-")
    return int(ms), int(n)


def _declare(word: str, *, has_subject: bool) -> None:
    """Let `Keys.of` find a key; its method has the name of the word, with underscores."""
    declared = _WORDS.setdefault(word.replace("-", "_"), (word, has_subject))
    assert declared == (word, has_subject), f"two kinds of keys are named {word}"


def per_partition(name: str) -> Callable[[Keys, int], str]:
    """Return the method for a key ``{pN}:<name>``, which `Keys.of` finds by its name."""
    _declare(name, has_subject=False)

    def build(keys: Keys, partition: int) -> str:
        return f"{{p{partition}}}:{name}"

    return build


def per_chat(name: str) -> Callable[[Keys, ChatId], str]:
    """Return the method for a key ``{pN}:<name>:<chat>``."""
    _declare(name, has_subject=True)

    def build(keys: Keys, chat: ChatId) -> str:
        return f"{{p{keys.get_partition(chat)}}}:{name}:{chat}"

    return build


def per_user(name: str) -> Callable[[Keys, UserId], str]:
    """Return the method for a key ``{pN}:<name>:<user>``."""
    _declare(name, has_subject=True)

    def build(keys: Keys, user: UserId) -> str:
        return f"{{p{keys.get_partition(user)}}}:{name}:{user}"

    return build


def unpartitioned(key: str) -> Callable[[Keys], str]:
    """Return the method for a key that exists once."""
    return lambda keys: key


class Keys:
    """Builds keys for a fixed number of partitions."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def get_partition(self, name: ChatId | UserId) -> int:
        """Return the partition of a chat or user."""
        if self.partitions == 1:
            return 0
        # CRC-16/XMODEM, as Redis Cluster uses for slots
        return binascii.crc_hqx(name.encode(), 0) % self.partitions

    def group_by_partition(
        self, items: Iterable[T], get_subject: Callable[[T], ChatId | UserId]
    ) -> dict[int, list[T]]:
        """Return `items` by the partition of their chat or user."""
        groups: dict[int, list[T]] = {}
        for item in items:
            groups.setdefault(self.get_partition(get_subject(item)), []).append(item)
        return groups

    def of(self, subject: ChatId | UserId | int, *names: str) -> dict[str, str | bytes | int]:
        """Return keys of a partition, or of a chat or user and its partition, by method name.

        For scripts, whose headers use the same names.
        """
        partition = subject if isinstance(subject, int) else self.get_partition(subject)
        start, keys = f"{{p{partition}}}:", dict[str, str | bytes | int]()
        for name in names:
            word, has_subject = _WORDS[name]
            keys[name] = f"{start}{word}:{subject}" if has_subject else start + word
        return keys

    epoch = per_partition("epoch")
    backlog = per_partition("backlog")
    dead = per_partition("dead")
    undelivered = per_partition("undelivered")
    idle = per_partition("idle")
    checkpoint = per_partition("checkpoint")
    progress = per_partition("progress")
    gateways = per_partition("gateways")
    changing = per_partition("changing")
    where = per_partition("where")

    def lease(self, partition: int, work: str) -> str:
        return f"{{p{partition}}}:lease:{work}"

    chat = per_chat("chat")
    members = per_chat("members")
    turnover = per_chat("turnover")
    log = per_chat("log")
    over = per_chat("over")
    revs = per_chat("revs")
    expiring = per_chat("expiring")
    uncounted = per_chat("uncounted")
    watchers = per_chat("watchers")

    inbox = per_user("inbox")
    box = per_user("box")
    hidden = per_user("hidden")
    blocks = per_user("blocks")
    online = per_user("online")
    seen = per_user("seen")
    watched = per_user("watched")
    revoked = per_user("revoked")
    room = per_user("room")
    guesses = per_user("guesses")
    answers = per_user("answers")
    large = per_user("large")

    def answer(self, name: UserId) -> str:
        return f"{{p{self.get_partition(name)}}}:answer:{name}"

    def job(self, job: UserId) -> str:
        return f"{{p{self.get_partition(job)}}}:job:{job}"

    def limit(self, kind: str, subject: str) -> str:
        return f"{{p{self.get_partition(UserId(subject))}}}:limit:{kind}:{subject}"

    def login_attempts(self, user: UserId, source: str) -> str:
        return f"{{p{self.get_partition(user)}}}:login-attempts:{user}:{source}"

    def cost_units(self, day: str) -> str:
        return f"{{cost}}:units:{day}"

    def cost_reads(self, day: str) -> str:
        return f"{{cost}}:reads:{day}"

    def cost_writes(self, day: str) -> str:
        return f"{{cost}}:writes:{day}"

    def cost_flushes(self, day: str) -> str:
        return f"{{cost}}:flushes:{day}"

    def gateway_stream(self, gateway: GatewayId) -> str:
        return f"{{gw:{gateway}}}:stream"

    jwks = unpartitioned("{jwks}:keys")
    jwks_fetching = unpartitioned("{jwks}:fetching")
    hook_calls = unpartitioned("{hook}:calls")
    rpc_calls = unpartitioned("{rpc}:calls")
    search_calls = unpartitioned("{search}:calls")
    figures = unpartitioned("{figures}:log")
    audit_rounds = unpartitioned("{audit}:rounds")
    audit_findings = unpartitioned("{audit}:findings")
