"""The queue of slow images: users take turns, and interrupted images are tried again."""

from __future__ import annotations

import pytest

from chatserver.domain.ids import UserId
from chatserver.features.attachments import hot
from chatserver.features.attachments.hot import SlowImages
from chatserver.features.attachments.keys import AttachmentKeys
from tests.integration.features.attachments.support import FileStack
from tests.support.constants import constants
from tests.support.servers.processes import eventually_equal

KEYS = AttachmentKeys(1)

pytest_plugins = ["tests.integration.features.attachments.fixtures"]
pytestmark = [pytest.mark.asyncio(loop_scope="session")]
ALICE, BOB, MALLORY = UserId("alice"), UserId("bob"), UserId("mallory")
LEASE_S = 600.0
MODULE = hot.__name__


async def open_queue(store: FileStack) -> SlowImages:
    """Return the queue, without images of other tests."""
    for key in (KEYS.slow_images(), KEYS.held_images(), KEYS.image_attempts(), KEYS.image_turns()):
        await store.worker.hot.call("DEL", key)
    return SlowImages(store.worker.hot)


async def claim_all(queue: SlowImages) -> list[str]:
    """Claim all images that are due."""
    claimed = []
    while (image := await queue.claim(LEASE_S)) is not None:
        claimed.append(image.file)
    return claimed


async def test_slow_images_of_users_take_turns(store: FileStack) -> None:
    """A user with one image waits for at most one image of each other user."""
    queue = await open_queue(store)
    for number in range(5):
        await queue.add(f"m{number}", MALLORY)
    first = await queue.claim(LEASE_S)
    await queue.add("b0", BOB)
    await queue.add("b1", BOB)
    await queue.add("a0", ALICE)

    assert first is not None and first.file == "m0"
    rest = await claim_all(queue)
    assert set(rest[:2]) == {"a0", "b0"}
    assert rest.index("b1") < rest.index("m2")


async def test_claimed_slow_image_is_claimed_again_after_its_lease(store: FileStack) -> None:
    """Attempts are counted; a finished image is gone."""
    queue = await open_queue(store)
    await queue.add("a0", ALICE)
    first = await queue.claim(0.0)
    second = await queue.claim(LEASE_S)

    assert first is not None and second is not None
    assert (first.attempts, second.attempts) == (1, 2)
    assert await queue.claim(LEASE_S) is None
    await queue.finish(second)
    await queue.postpone(second, 0.0)  # a late worker does not bring it back
    assert await queue.claim(LEASE_S) is None
    assert not await store.worker.hot.call("EXISTS", KEYS.image_turns())


async def test_postponed_slow_image_waits_for_its_backoff(store: FileStack) -> None:
    """Other images are processed in the meantime."""
    queue = await open_queue(store)
    await queue.add("a0", ALICE)
    image = await queue.claim(LEASE_S)
    assert image is not None
    await queue.postpone(image, 600.0)
    await queue.add("b0", BOB)

    assert await claim_all(queue) == ["b0"]
    await queue.postpone(image, 0.0)

    await eventually_equal(lambda: claim_all(queue), ["a0"])


async def test_full_queue_drops_an_image_of_the_user_with_most(store: FileStack) -> None:
    """A user with many images does not push out those of others."""
    queue = await open_queue(store)
    with constants({f"{MODULE}.SLOW_IMAGES_MAX": 4}):
        await queue.add("a0", ALICE)
        for number in range(6):
            await queue.add(f"m{number}", MALLORY)
        await queue.add("b0", BOB)
        await queue.add("b0", BOB)  # a repetition

    assert sorted(await claim_all(queue)) == ["a0", "b0", "m0", "m1"]
