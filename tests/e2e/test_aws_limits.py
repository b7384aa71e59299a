"""`chatserver dev --aws-limits`: users get no errors, although DynamoDB refuses requests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.reference.support import SETTINGS, Addresses, Server, User, wait_for
from tests.support.devrun import dev_run
from tests.support.servers.limits import count_refusals

USERS = 24
RENEWALS = 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with dev_run(tmp_path_factory.mktemp("limits") / "data") as run:
        run.start("--aws-limits", env=SETTINGS)
        addresses = Addresses(*run.ports, settings=run.folder / "settings.env")
        with Server(addresses) as running:
            yield running
        assert run.end() == 0, run.text()


def count_refused(server: Server, code: str) -> int:
    """Return how many requests DynamoDB refused with this code."""
    return count_refusals(f"http://127.0.0.1:{server.addresses.dynamodb}")[code]


def test_follows_and_likes_of_many_users_at_once_are_counted_exactly(server: Server) -> None:
    """Concurrent follows of one user and likes of one post are all counted."""
    author, *fans = server.add_users(USERS + 1)
    post = author.post("/v1/me/posts", {"content": "Hello"})["id"]

    def follow_and_like(fan: User) -> None:
        fan.put(f"/v1/me/following/{author.id}")
        fan.put(f"/v1/users/{author.id}/posts/{post}/like")

    with ThreadPoolExecutor(USERS) as pool:
        list(pool.map(follow_and_like, fans))

    wait_for(
        lambda: (
            author.get(f"/v1/users/{author.id}")["followers"] == USERS
            and author.get(f"/v1/users/{author.id}/posts/{post}")["likes"] == USERS
        ),
        "the counts",
    )
    followers = author.pages(f"/v1/users/{author.id}/followers")
    assert len(followers) == USERS


def test_concurrent_session_renewals_leave_one_active_session(server: Server) -> None:
    """DynamoDB cancels overlapping transactions; every request gets a session."""
    (user,) = server.add_users(1)
    companion = server.add_companion()
    first = user.post(f"/v1/companions/{companion}/session")["session"]["chat"]

    with ThreadPoolExecutor(RENEWALS) as pool:
        path = f"/v1/companions/{companion}/session/renewal"
        answers = list(pool.map(lambda _: user.post(path), range(RENEWALS)))

    # The list reads the table and not an index.
    sessions = user.pages("/v1/companion-sessions", companion=companion)
    active = [each["chat"] for each in sessions if "delete_time" not in each]
    assert len(active) == 1 and first not in active
    renewed = {answer["session"]["chat"] for answer in answers}
    assert renewed <= {each["chat"] for each in sessions}
    assert count_refused(server, "TransactionCanceledException") > 0


def test_new_chat_is_listed_despite_index_lag(server: Server) -> None:
    """After the lag, both members find the chat and its messages."""
    ann, ben = server.add_users(2)
    chat = ann.put(f"/v1/direct-chats/{ben.id}")["chat"]

    ann.post(f"/v1/chats/{chat}/messages", {"body": "Lunch at one?"})

    for user in (ann, ben):
        wait_for(lambda user=user: chat in str(user.get("/v1/chats")), "the chat")  # type: ignore[misc]  # bound now
        messages = user.get(f"/v1/chats/{chat}/messages")["messages"]
        assert [each["body"] for each in messages] == ["Lunch at one?"]
    wait_for(lambda: "Lunch at one?" in str(ben.get("/v1/me/received")), "the index")
