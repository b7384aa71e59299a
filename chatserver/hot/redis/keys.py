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
|                         |        | ``done``: seq up to which every inbox has the entries,      |
|                         |        | ``large``: version at which it became a large chat,         |
|                         |        | ``turns``: seqs of large-chat transitions, and              |
|                         |        | ``s:<sender>``: the newest seq of a sender                  |
| ``{pN}:members:<chat>`` | hash   | user → ``<role>:<joined seq>``, with ``:<until>m`` appended |
|                         |        | if muted; joined seq: chat seq at which the user joined     |
| ``{pN}:turnover:<chat>`` | hash  | ``<version>:<user>`` → ``in:<seq>``, ``out:<seq>:<after>``, |
|                         |        | ``<version>:+`` → ``up:<seq>``, ``down:<seq>``: pending     |
|                         |        | notices of joins, leaves and large-chat transitions         |
| ``{pN}:log:<chat>``     | stream | ``<seq>-0``: timestamp → ``receiver\\n`` and message JSON   |
| ``{pN}:refs-even:<chat>``,                                                                    |
| ``{pN}:refs-odd:<chat>`` | hash | digest of (sender, ref) → position of the entry with this ref. |
|                         |        | New refs alternate daily between the two keys; each key     |
|                         |        | expires after two days                                      |
| ``{pN}:over:<chat>``    | hash   | seq → current state of an entry that was changed or lost    |
|                         |        | its text                                                    |
| ``{pN}:revs:<chat>``    | zset   | seq of an entry in ``over`` → seq of its last change        |
| ``{pN}:asides:<chat>``  | zset   | seqs of the newest entries that never count as unread       |
| ``{pN}:expiring:<chat>`` | zset  | seq of a message → its expiry (Unix seconds)                |
| ``{pN}:hidden:<user>``  | hash   | chat → seqs that the user deleted for themselves            |
| ``{pN}:backlog``        | stream | committed entries that are not persisted yet                |
| ``{pN}:dead``           | stream | backlog entries that could not be persisted, with a reason  |
| ``{pN}:undelivered``    | zset   | chat → commit time (ms) of its oldest unfinished fan-out    |
| ``{pN}:idle``           | zset   | chat → time of its last recorded activity (s)               |
| ``{pN}:changing``       | zset   | ``<chat>:<id>`` → deadline of a membership change (ms)      |
| ``{pN}:inbox:<user>``   | stream | ``<seq>-<n>``: chat → chat seq, or ``!`` → event            |
| ``{pN}:seqs``           | hash   | user → seq of the newest inbox entry                        |
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
|                         |        | its writer, ``waiting``: messages and marks in the backlog, |
|                         |        | and the backlog positions of the other readers              |
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

from chatserver.domain.ids import ChatId, GatewayId, UserId

SLOTS = 16_384  # number of slots in a Redis Cluster


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

    # per partition

    def epoch(self, partition: int) -> str:
        return f"{{p{partition}}}:epoch"

    def backlog(self, partition: int) -> str:
        return f"{{p{partition}}}:backlog"

    def dead(self, partition: int) -> str:
        return f"{{p{partition}}}:dead"

    def undelivered(self, partition: int) -> str:
        return f"{{p{partition}}}:undelivered"

    def idle(self, partition: int) -> str:
        return f"{{p{partition}}}:idle"

    def lease(self, partition: int, work: str) -> str:
        return f"{{p{partition}}}:lease:{work}"

    def checkpoint(self, partition: int) -> str:
        return f"{{p{partition}}}:checkpoint"

    def progress(self, partition: int) -> str:
        return f"{{p{partition}}}:progress"

    def gateways(self, partition: int) -> str:
        return f"{{p{partition}}}:gateways"

    def changing(self, partition: int) -> str:
        return f"{{p{partition}}}:changing"

    def seqs(self, partition: int) -> str:
        return f"{{p{partition}}}:seqs"

    def where(self, partition: int) -> str:
        return f"{{p{partition}}}:where"

    # per chat

    def chat(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:chat:{chat}"

    def members(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:members:{chat}"

    def turnover(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:turnover:{chat}"

    def log(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:log:{chat}"

    def over(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:over:{chat}"

    def revs(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:revs:{chat}"

    def expiring(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:expiring:{chat}"

    def unread_exclusions(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:asides:{chat}"

    def watchers(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:watchers:{chat}"

    def refs_even(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:refs-even:{chat}"

    def refs_odd(self, chat: ChatId) -> str:
        return f"{{p{self.get_partition(chat)}}}:refs-odd:{chat}"

    # per user

    def inbox(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:inbox:{user}"

    def box(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:box:{user}"

    def hidden(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:hidden:{user}"

    def blocks(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:blocks:{user}"

    def online(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:online:{user}"

    def seen(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:seen:{user}"

    def watched(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:watched:{user}"

    def revoked(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:revoked:{user}"

    def job(self, job: UserId) -> str:
        return f"{{p{self.get_partition(job)}}}:job:{job}"

    # per user or address

    def limit(self, kind: str, subject: str) -> str:
        return f"{{p{self.get_partition(UserId(subject))}}}:limit:{kind}:{subject}"

    def room(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:room:{user}"

    def login_attempts(self, user: UserId, source: str) -> str:
        return f"{{p{self.get_partition(user)}}}:login-attempts:{user}:{source}"

    def guesses(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:guesses:{user}"

    def answer(self, name: UserId) -> str:
        return f"{{p{self.get_partition(name)}}}:answer:{name}"

    def answers(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:answers:{user}"

    def large(self, user: UserId) -> str:
        return f"{{p{self.get_partition(user)}}}:large:{user}"

    # per file

    def cost_units(self, day: str) -> str:
        return f"{{cost}}:units:{day}"

    def cost_reads(self, day: str) -> str:
        return f"{{cost}}:reads:{day}"

    def cost_writes(self, day: str) -> str:
        return f"{{cost}}:writes:{day}"

    def cost_flushes(self, day: str) -> str:
        return f"{{cost}}:flushes:{day}"

    # per process, or shared

    def gateway_stream(self, gateway: GatewayId) -> str:
        return f"{{gw:{gateway}}}:stream"

    def jwks(self) -> str:
        return "{jwks}:keys"

    def jwks_fetching(self) -> str:
        return "{jwks}:fetching"

    def hook_calls(self) -> str:
        return "{hook}:calls"

    def rpc_calls(self) -> str:
        return "{rpc}:calls"

    def search_calls(self) -> str:
        return "{search}:calls"

    def figures(self) -> str:
        return "{figures}:log"

    def audit_rounds(self) -> str:
        return "{audit}:rounds"

    def audit_findings(self) -> str:
        return "{audit}:findings"
