"""Texts that clients and probes receive while Redis refuses writes or a data store is down.

They name the tier and quote neither its error text nor an address; the logs do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from chatserver.dev.servers import HOST, Server, is_http_ready
from tests.support.rawchat import RawChat, get_refusal
from tests.support.servers.processes import eventually, free_port, redis_client
from tests.support.stack import PATIENT, Stack, open_stack, start_async
from tests.support.wire import Ended

TIMEOUT_S = 20
Fault = Callable[[Stack], contextlib.AbstractContextManager[None]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own, because the tests break its data stores."""
    folder = tmp_path_factory.mktemp("refusing")
    with open_stack(folder, fsync="everysec", env=PATIENT) as made:
        yield made


@pytest.fixture(scope="module")
def api(stack: Stack) -> Server:
    return stack.start_api()


@pytest.fixture(scope="module")
def probe_port(stack: Stack) -> int:
    """The port of a worker's probes."""
    port = free_port()
    stack.start_worker("rpc", CHAT_TELEMETRY_METRICS_PORT=str(port))
    return port


@pytest.fixture
async def pair(stack: Stack) -> AsyncIterator[tuple[RawChat, str]]:
    """A user's device and the chat with another user."""
    await stack.add_users(["alice", "bob"])
    async with stack.chat_of("alice") as alice:
        yield alice, await alice.open_direct("bob")


async def get_problem(port: int) -> str:
    """Wait until /readyz returns 503; return its text."""
    texts = list[str]()

    async def is_unready() -> bool:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            answer = await client.get(f"http://{HOST}:{port}/readyz")
        texts.append(answer.text)
        return answer.status_code == 503

    await eventually(is_unready)  # type: ignore[arg-type]  # mypy loses the type variable
    return texts[-1]


async def wait_until_ready(*ports: int) -> None:
    for port in ports:
        await eventually(functools.partial(is_http_ready, port, "/readyz"))


def list_ports(stack: Stack) -> set[str]:
    """Return the ports of the data stores."""
    return {str(server.port) for server in (stack.redis, stack.dynamodb)}


def assert_is_public(text: str, stack: Stack, *words: str) -> None:
    """Check that the text has none of the words, and no address."""
    for part in (*words, HOST, *list_ports(stack)):
        assert part not in text, text


@contextlib.contextmanager
def missing_replicas(stack: Stack) -> Iterator[None]:
    """Redis answers writes with NOREPLICAS."""
    with redis_client(stack.redis_url) as admin:
        admin.config_set("min-replicas-to-write", "1")
        try:
            yield
        finally:
            admin.config_set("min-replicas-to-write", "0")


@contextlib.contextmanager
def failed_snapshot(stack: Stack) -> Iterator[None]:
    """Redis answers writes with MISCONF: a folder has the name of the snapshot file."""
    with redis_client(stack.redis_url) as admin:
        obstacle = stack.redis.launch.folder / str(admin.config_get("dbfilename")["dbfilename"])
        (obstacle / "inner").mkdir(parents=True)
        admin.config_set("save", "3600 1000000")
        admin.bgsave()
        try:
            yield
        finally:
            admin.config_set("save", "")
            (obstacle / "inner").rmdir()
            obstacle.rmdir()


@pytest.mark.parametrize(
    ("fault", "word"), [(missing_replicas, "NOREPLICAS"), (failed_snapshot, "MISCONF")]
)
async def test_client_of_a_redis_that_refuses_writes_gets_no_raw_text(
    stack: Stack,
    api: Server,
    probe_port: int,
    pair: tuple[RawChat, str],
    fault: Fault,
    word: str,
) -> None:
    """This holds for frames, HTTP responses and probes. The log has the text."""
    alice, chat = pair
    headers = {"Authorization": f"Bearer {stack.token('alice')}"}
    path = f"{api.endpoint}/v1/chats/{chat}/messages"
    with fault(stack):
        problems = [await get_problem(port) for port in (stack.port, api.port, probe_port)]
        sent = await get_refusal(alice.send(chat, "hello"))
        called = await get_refusal(alice.request("open_direct", user="bob"))
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers) as client:
            posted = await client.post(path, json={"body": "hello"})
    await wait_until_ready(stack.port, api.port, probe_port)

    assert [sent.code, called.code, posted.json()["code"]] == ["unavailable"] * 3
    for text in (sent.message, called.message, posted.json()["detail"], *problems):
        assert_is_public(text, stack, word)
        assert "Redis does not accept writes" in text
    assert all("chatserver doctor" in problem for problem in problems)
    for server in (stack.gateways[0], api):
        assert word in server.log_path.read_text()


async def test_client_of_a_dynamodb_that_is_down_gets_no_address(
    stack: Stack, api: Server, probe_port: int, pair: tuple[RawChat, str]
) -> None:
    """The rpc worker and the API call DynamoDB; their logs have the address."""
    alice, _ = pair
    headers = {"Authorization": f"Bearer {stack.token('alice')}"}
    stack.dynamodb.kill()
    try:
        problems = [await get_problem(port) for port in (api.port, probe_port)]
        called = await get_refusal(alice.request("open_direct", user="carol"))
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers) as client:
            posted = await client.post(f"{api.endpoint}/v1/chats", json={"members": ["bob"]})
    finally:
        await start_async(stack.dynamodb)
    await wait_until_ready(api.port, probe_port)

    assert (called.code, posted.json()["code"]) == ("unavailable", "unavailable")
    for text in (called.message, posted.json()["detail"], *problems):
        assert_is_public(text, stack)
        assert "DynamoDB" in text
    logs = [api.log_path, *(worker.log_path for worker in stack.workers.values())]
    assert all(f"{HOST}:{stack.dynamodb.port}" in log.read_text() for log in logs)


async def test_client_of_a_redis_that_is_down_gets_no_address(
    stack: Stack, api: Server, probe_port: int, pair: tuple[RawChat, str]
) -> None:
    """The connection's error text names the address, in the log only."""
    alice, chat = pair
    headers = {"Authorization": f"Bearer {stack.token('alice')}"}
    stack.redis.kill()
    try:
        problems = [await get_problem(port) for port in (stack.port, api.port, probe_port)]
        sent = await get_refusal(alice.send(chat, "hello"))
        with pytest.raises(Ended) as closed:
            await stack.chat_of("bob").start()
        async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=headers) as client:
            listed = await client.get(f"{api.endpoint}/v1/chats")
    finally:
        await start_async(stack.redis)
    await wait_until_ready(stack.port, api.port, probe_port)

    for text in (sent.message, str(closed.value), listed.json()["detail"], *problems):
        assert_is_public(text, stack)
        assert "Redis is unavailable" in text
    assert f"{HOST}:{stack.redis.port}" in stack.gateways[0].log_path.read_text()
