"""Uses everything in the product that writes to Redis at least once."""

from __future__ import annotations

import asyncio
import contextlib

from chatserver import config
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, DeviceId, GatewayId, Mid, Ref, Seq, SessionId, UserId
from chatserver.domain.inboxes import Delivery, ListedChat
from chatserver.domain.membership_change_types import ChangeEntry, MembershipChange
from chatserver.domain.message_change_types import ChangeOutcome, MessageChange
from chatserver.domain.messages import (
    CommitOutcome,
    InboxCommit,
    PendingDraft,
    UndeliveredCommit,
    compute_digest,
)
from chatserver.domain.presence import GatewayPresence, PresenceState
from chatserver.errors import Unavailable
from chatserver.features.attachments.hot import MediaJobs, SendableFiles, SlowImages
from chatserver.features.attachments.model import File
from chatserver.features.companions.hot.pending_responses import PendingMessage, PendingResponses
from chatserver.features.companions.hot.response_stream import ResponseStream
from chatserver.features.companions.hot.token_budget import TokenBudgets
from chatserver.features.companions.settings import Companions
from chatserver.features.link_previews.hot import PreviewCache
from chatserver.features.link_previews.model import PageSummary
from chatserver.features.push.hot import DueChats, PushState
from chatserver.features.search.frames import Search
from chatserver.features.search.hot import WORK, IndexFeed
from chatserver.features.social.hot import CountQueue, PostWakeUp
from chatserver.features.social.model import PostIds
from chatserver.features.webhooks.hot import WebhookQueue
from chatserver.hot.bus.gateway_stream import GatewayStream, GatewayStreamWriter
from chatserver.hot.bus.idempotent_responses import IdempotentResponses, StoredResponse
from chatserver.hot.bus.job_progress import JobProgress
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.bus.rpc_queue import RpcQueue
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.chats.expiring_messages import ExpiringMessages
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.group_commit import PartitionedCommit
from chatserver.hot.chats.hot_chat_writer import HotChatWriter
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.chats.membership import HotMembership, MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.hot.chats.persist_backlog import Backlog, CommitEntry, HideEntry
from chatserver.hot.jwks_cache import JwksCache
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.keys import Keys
from chatserver.hot.redis.memory_usage import list_memory
from chatserver.hot.users.blocks import HotBlocks
from chatserver.hot.users.group_quotas import GroupQuotas
from chatserver.hot.users.inbox import Inboxes
from chatserver.hot.users.login_rate_limits import LoginRateLimits
from chatserver.hot.users.presence_states import PresenceStates
from chatserver.hot.users.revocations import Revocations
from chatserver.hot.users.token_buckets import RateLimits
from chatserver.hot.users.user_gateways import UserGateways
from chatserver.hot.users.user_sessions import Claim, UserSessions
from chatserver.hot.worker_leases import Lease
from chatserver.operations.audit.hot import AuditResults, DatedFinding, Round
from chatserver.operations.cost.hot import UsageTotals
from chatserver.operations.overview.hot import MEASURED_MAX, BacklogStats, ProcessStatsLog
from chatserver.protocol import codec
from chatserver.protocol.webhook_messages import BeforeSend
from chatserver.requests.registry import make_call
from chatserver.telemetry.dynamodb_usage import KINDS, Part, UsageAccumulator
from chatserver.telemetry.process_stats import Backlog as FullBacklog
from chatserver.telemetry.process_stats import Snapshot

PARTITIONS = 64
GATEWAY = GatewayId("gw1")
TTL_S = 600  # keys must not expire before the test has read them


def users_near(chat: ChatId, count: int) -> list[UserId]:
    """Return users in the chat's own partition."""
    keys = Keys(PARTITIONS)
    names = (UserId(f"u{n}") for n in range(100_000))
    near = (user for user in names if keys.get_partition(user) == keys.get_partition(chat))
    return [next(near) for _ in range(count)]


def draft_of(chat: ChatId, sender: UserId) -> PendingDraft:
    """Return a draft of a message to the chat."""
    return PendingDraft(
        chat=chat,
        sender=sender,
        ref=Ref("r1"),
        mid=Mid("M1"),
        digest=compute_digest("text", "hi", None),
        tail=codec.encode_message_tail(chat, "M1", sender, "r1", "text", "hi", None),
        request_id=1,
        is_stored_wanted=False,
        listener=None,  # type: ignore[arg-type]  # the commit does not call it
    )


async def use_everything(hot: HotClient) -> None:
    """Write every kind of key, and run every script with all kinds of arguments."""
    await hot.health.check()
    keys = hot.keys
    outcomes: asyncio.Queue[CommitOutcome] = asyncio.Queue()
    audiences = Audiences(hot, load_chat=None)  # type: ignore[arg-type]  # all chats are open
    commits = PartitionedCommit(hot, GATEWAY, lambda _, outcome: outcomes.put_nowait(outcome))
    far_users = [UserId(f"far{n}") for n in range(5)]
    presence = UserGateways(hot, GATEWAY, TTL_S)
    await presence.set_online(far_users)
    for number in range(4):
        chat, is_near = ChatId(f"chat-{number}"), number % 2 == 1
        users = users_near(chat, 3) if is_near else far_users
        members = dict.fromkeys(users, ("member", 0))
        await HotChatWriter(hot).open_chat(chat, "group", None, 1, members, (0, 0), [])
        commits.submit(draft_of(chat, users[0]), await audiences.get(chat))
        assert isinstance(await outcomes.get(), InboxCommit if is_near else UndeliveredCommit)
        ExpiringMessages(hot).add(chat, {1: 9_000_000_000})
        await use_inboxes(hot, chat, users, is_settled=number > 0)
        await use_message_changes(hot, chat, users[0])
        await use_backlog(hot, keys.get_partition(chat), chat)
        await use_membership(hot, chat, users, audiences)
        await use_pushes(hot, chat, users)
        await use_search(hot, keys.get_partition(chat))
        await use_moderation(hot, chat, users)
        await use_companions(hot, keys.get_partition(chat), chat, users[0])
        await LargeChatSubscriptions(hot, GATEWAY, TTL_S).subscribe([chat])
    await presence.set_offline(far_users[1:])
    await GroupQuotas(hot).put({far_users[0]: 2})
    await GroupQuotas(hot).consume(far_users)
    await use_sessions(hot, far_users)
    await use_files(hot, far_users[0])
    await use_like_counts(hot)
    await use_usage_totals(hot)
    await use_process_stats(hot)
    await GatewayStream(hot, GATEWAY).renew()
    queue = RpcQueue(hot=hot, consumer="test", clock=SystemClock()).iter_calls()
    waiting = asyncio.ensure_future(anext(queue))
    calling = asyncio.ensure_future(RpcClient(hot, GATEWAY, 60).load_chat(ChatId("c")))
    await waiting
    calling.cancel()
    await queue.aclose()
    with contextlib.suppress(Unavailable):
        question = BeforeSend("c", "u", "r", "text", "hello")
        await RpcClient(hot, GATEWAY, 0.01).request_verdict(question)
    with contextlib.suppress(Unavailable):
        call, key = make_call(UserId("u"), Search(1, "hello")), hot.keys.search_calls()
        await RpcClient(hot, GATEWAY, 0.01).forward_frame(call, is_needed=True, key=key)


async def use_companions(hot: HotClient, partition: int, chat: ChatId, user: UserId) -> None:
    """Start and stop a response of a companion while another session waits."""
    lease = Lease(
        hot=hot, partition=partition, work="assistant", owner="me", ttl_s=TTL_S, clock=SystemClock()
    )
    await lease.claim()
    pending, deltas = PendingResponses(hot, partition), ResponseStream(hot)
    budgets = TokenBudgets(hot, Companions())
    await pending.record([HideEntry("1-0", ChatId(f"{partition:026d}"), user, Seq(1))])
    entry = PendingMessage("999999999999999-0", chat, newest=1, changed=1)
    await pending._record("0-0", [entry])
    begun = await pending.start(lease, chat)
    assert begun is not None and begun.seq == 1
    await budgets.reserve(user, chat, "turn", 10)
    await deltas.begin(chat, "turn", begun.seq, 600)
    deltas.append(chat, 1, "Hello")
    assert await deltas.stop(chat) == 1
    await deltas.end(chat, 2, "stopped", 600)
    assert (await deltas.find(chat) or begun) != begun
    await pending.schedule_retry(begun, 1)
    if user.endswith("0"):
        await budgets.charge(user, chat, "turn", 5)
        await pending.finish(begun)
    await lease.release()


async def use_like_counts(hot: HotClient) -> None:
    """Queue a like for counting, and wake up the timeline workers."""
    post = PostIds(SystemClock()).next()
    queue = CountQueue(hot, 100)
    await queue.check_capacity(post)
    await queue.add("likes", post, 1)
    await PostWakeUp(hot).notify()


async def use_moderation(hot: HotClient, chat: ChatId, users: list[UserId]) -> None:
    """Restrict a chat, block a user, and queue webhook events in all states."""
    assert await HotMembership(hot).set_write_policy(chat, 99, ":s1")
    await HotBlocks(hot).add(users[0], users[1])
    events = WebhookQueue(hot, hot.keys.get_partition(chat), 1000)
    await events.append([b"1", b"2", b"3", b"4"])
    first, second, third, _ = (await events.list_pending(100))[-4:]
    await events.postpone(first, 9_000_000_000_000)
    await events.dead_letter(second, "why")
    await events.postpone(third, 1)
    await events.requeue_due(1, 100)


async def use_files(hot: HotClient, owner: UserId) -> None:
    """Record an uploaded image that may be sent and must be processed."""
    file = File(
        "file-1", owner, ChatId("chat-0"), "a.png", "image/png", 1, "00", 0, 9_000_000_000, "ready"
    )
    await SendableFiles(hot).put(file, 0.0, is_update=False)
    await MediaJobs(hot).add(file.id)
    slow_images = SlowImages(hot)
    await slow_images.add("01KAJ5ZC2X", file.owner)
    finished = await slow_images.claim(TTL_S)
    assert finished is not None
    await slow_images.finish(finished)
    await slow_images.add(file.id, file.owner)
    assert await slow_images.claim(TTL_S) is not None
    await slow_images.add("01KAJ5ZC2Y", file.owner)


async def use_sessions(hot: HotClient, users: list[UserId]) -> None:
    """Act as a gateway whose users connect, subscribe to presence and use up rate limits."""
    seen = PresenceStates(hot=hot, gateway=GATEWAY, online_ttl_s=TTL_S, keep_s=TTL_S)
    await seen.extend_expiry()
    claims = [Claim(user, SessionId("s1"), DeviceId("d1"), 0) for user in users]
    await UserSessions(hot=hot, gateway=GATEWAY, sessions_max=20, keep_s=TTL_S).claim(claims)
    await seen.publish([GatewayPresence(user, PresenceState.ONLINE, 0.0) for user in users])
    await seen.subscribe(users)
    await seen.unsubscribe(users[1:])
    await Revocations(hot, 60).put(users[0], before=1, logins=["l1"], is_banned=True)
    assert await JobProgress(hot, SystemClock()).begin("j1", 1)
    key_sets = JwksCache(hot)
    assert await key_sets.claim_fetch(TTL_S)
    await key_sets.put(1.0, b"{}")
    assert await IdempotentResponses(hot).claim("n1", "digest") is None
    await IdempotentResponses(hot).put("n2", StoredResponse("digest", 200), UserId("alice"))
    await PreviewCache(hot).put("https://example.org/", PageSummary("Example"))
    limits = RateLimits(
        hot, config.Limits(sends=config.RateLimit(0.01, 500))
    )  # a full bucket expires in a second
    for user in users:
        await limits.find("sends", user).pay("messages")
    await limits.close()
    await LoginRateLimits(hot, config.Limits()).begin(LoginAttempt(users[0], "n1", is_known=False))


async def use_inboxes(
    hot: HotClient, chat: ChatId, users: list[UserId], *, is_settled: bool
) -> None:
    """Deliver, finish a fan-out, append events, mark, load, and make the chat large and small."""
    inboxes, epoch = Inboxes(hot), hot.get_epoch(hot.keys.get_partition(chat))
    await inboxes.deliver([Delivery(u, chat, Seq(0), Seq(1), epoch) for u in users])
    if is_settled:
        await UndeliveredChats(hot, GatewayStreamWriter(hot)).finish([(chat, Seq(1))])
    await inboxes.append_event(users, chat, b"event", is_listed=True)
    await inboxes.append_marks(users, chat, b"event", users[1], 2)
    await inboxes.mark(users[1], chat, Seq(1), Seq(1))
    await inboxes.lower_marks(users[1], chat, Seq(1), 1, 1)
    own_epoch = hot.get_epoch(hot.keys.get_partition(users[0]))
    await inboxes.open_user_state(
        users[0], [ListedChat(chat, Seq(0), Seq(0), Seq(0), 1)], own_epoch
    )
    news = [(user, Seq(1), "!", b"event") for user in users]
    await inboxes.append_transition(chat, 2, news, is_large=True, epoch=epoch)
    await inboxes.append_transition(chat, 3, news, is_large=False, epoch=epoch)


async def use_message_changes(hot: HotClient, chat: ChatId, user: UserId) -> None:
    """Hide the first message for oneself, edit it twice, then delete it for everyone."""
    await HiddenMessages(hot).hide(user, chat, Seq(1))
    await HiddenMessages(hot).open_hidden(user, {chat: [1], ChatId("other"): [2]})
    await HiddenMessages(hot).remove_hidden(user, ChatId("other"), [3])
    for number, kind in enumerate(("edit", "edit", "delete")):
        ref, mid = Ref(f"a{number}"), Mid("M")
        tail = codec.encode_entry_tail(chat, mid, user, ref, kind, "x", 1)
        made = MessageChange(chat, user, ref, mid, "dd", kind, Seq(1), "x", tail)
        changed = await MessageChangeCommitter(hot, GATEWAY).commit_change(made)
        assert changed.outcome is ChangeOutcome.COMMITTED


async def use_membership(
    hot: HotClient, chat: ChatId, users: list[UserId], audiences: Audiences
) -> None:
    """Begin a change that removes one member and adds another, and leave it unfinished."""
    membership = HotMembership(hot)
    await membership.end(await membership.begin(chat, 1))
    await membership.begin(chat, 1)
    entries = [
        ChangeEntry(users[-1], "", False, b'"chat":"c"}'),
        ChangeEntry("new", "member", True, b'"chat":"c"}'),
    ]
    change = MembershipChange(
        chat, 2, "Name", "all", users[0], Ref("change"), Mid("M2"), "d1", entries
    )
    assert await membership.apply(change)
    await membership.list_overdue(hot.keys.get_partition(chat))
    _, changes = await audiences.get_with_notices(chat)
    await membership.delete_notices(chat, [each for each in changes if not each.is_in])
    await MemberCheck(hot, audiences).get_reader(chat, users[0])


async def use_usage_totals(hot: HotClient) -> None:
    """Record the usage of a day, and read the memory of Redis."""
    usage = UsageAccumulator()
    usage.record_units("persist", "messages", "write", 4.5)
    for kind in KINDS:
        usage.record_chat_units(kind, {"chat-1": 1.0, "chat-2": 2.0}, 4.5)
    usage.record_messages(1)
    await UsageTotals(hot).add(Part("process", 1, "2026-01-31", usage.drain()))
    found = await UsageTotals(hot).get_day("2026-01-31")
    assert found.chats["write"] == {"chat-1": 1.5, "chat-2": 3.0}
    servers = await list_memory(hot)
    assert sum(server.keys for server in servers) > 100
    assert len({server.server for server in servers}) == len(servers)


async def use_process_stats(hot: HotClient) -> None:
    """Record the stats of a process, and the results of an audit."""
    snapshot = Snapshot("api", "", "host", 1, 1, 2.0, backlog=await measure_backlogs(hot))
    await ProcessStatsLog(hot).append("process", snapshot)
    page = await ProcessStatsLog(hot).list_after("0-0", 10)
    assert [(each.process, each.snapshot) for each in page.snapshots] == [("process", snapshot)]
    results = AuditResults(hot)
    await results.put_round(Round(3, 1, 2, 4, 5, 0, 0, 1))
    await results.add_findings([DatedFinding(2, "orphan", "chat-1", 1, 2)])
    assert [each.chats for each in await results.list_rounds()] == [4]
    assert [each.chat for each in await results.list_findings(10)] == ["chat-1"]


async def measure_backlogs(hot: HotClient) -> FullBacklog:
    """Return the lengths of the backlogs of all partitions, measured in several calls."""
    found, stats = None, BacklogStats(hot, SystemClock())
    for _ in range(0, PARTITIONS, MEASURED_MAX):
        found = await stats.measure()
    assert found is not None
    counts = [await Backlog(hot, partition).count_waiting() for partition in range(PARTITIONS)]
    assert found.entries == sum(counts)
    return found


async def use_pushes(hot: HotClient, chat: ChatId, users: list[UserId]) -> None:
    """Scan the backlog for pushes and finish one; another chat is still due."""
    partition = hot.keys.get_partition(chat)
    lease = Lease(
        hot=hot, partition=partition, work="notify", owner="me", ttl_s=TTL_S, clock=SystemClock()
    )
    await lease.claim()
    chats, push_state = DueChats(hot, lease), PushState(hot)
    entries = await Backlog(hot, partition).list_after(await chats.get_checkpoint(), 10)
    assert await chats.schedule(entries[-1].id, {chat: Seq(1), ChatId("other"): Seq(1)}, 0)
    (due, _) = sorted(await chats.claim_due(10, 60), key=lambda one: one.chat != chat)
    await chats.finish(due, Seq(1))
    await push_state.find_needs(chat, users)
    await push_state.record_devices(users[0])
    await push_state.record_no_devices(users[1])
    assert await push_state.claim(users[2], "subscription", chat, (Seq(2), 1))
    await lease.release()


async def use_search(hot: HotClient, partition: int) -> None:
    """Record the position of an indexer that starts, and request an erasure."""
    lease = Lease(
        hot=hot, partition=partition, work=WORK, owner="me", ttl_s=TTL_S, clock=SystemClock()
    )
    await lease.claim()
    feed = IndexFeed(hot)
    assert not (await feed.record_position(lease, partition, "")).is_complete
    await feed.request_erasure(partition, "gone")
    assert (await feed.list_requests(partition)).erasures == ["gone"]
    await lease.release()


async def use_backlog(hot: HotClient, partition: int, chat: ChatId) -> None:
    """Persist one entry of the backlog and make its message a dead letter."""
    lease = Lease(
        hot=hot, partition=partition, work="persist", owner="me", ttl_s=TTL_S, clock=SystemClock()
    )
    await lease.claim()
    backlog = Backlog(hot, partition)
    (entry, *_) = await backlog.list_after("0-0", 1)
    if isinstance(entry, CommitEntry):
        await backlog.add_dead_letter(entry.messages[0], "replayed")
        (letter,) = await backlog.list_dead("0-0", 1)
        await backlog.remove_dead(letter, chat)
        assert await backlog.list_dead("0-0", 1) == []
        await backlog.add_dead_letter(entry.messages[0], "why not")
    await backlog.record_persisted({chat: Seq(1)}, {}, hot.get_epoch(partition))
    assert await Eviction(hot).evict_idle(partition, now_s=2**40) == 0
    with contextlib.suppress(TimeoutError):  # not persisted yet
        async with asyncio.timeout(0.1):
            await hot._wait_persisted(partition, hot.get_epoch(partition))
    assert await backlog.record_persisting_id(lease, entry.id)
    assert [each.id for each in await backlog.list_between(entry.id, entry.id)] == [entry.id]
    epoch = hot.get_epoch(partition)
    assert await backlog.checkpoint(lease, entry.id, epoch)
    assert await backlog.record_persisted_seqs(lease, {chat: Seq(1)}, epoch)
    assert await backlog.get_progress() == {chat: 1}
    await lease.release()
