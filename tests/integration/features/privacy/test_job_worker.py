"""Jobs of exports and erasures: claims, retries, and failure reasons."""

from __future__ import annotations

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.errors import Unavailable
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.model import Job, new_job_id
from chatserver.features.privacy.worker.job_worker import ClaimedJob, JobLost, JobWorker
from chatserver.features.privacy.worker.limited_zip_file import open_zip
from tests.integration.workers.support import make_users

ALICE = UserId("alice")


async def request_export(container: StorageContainer) -> str:
    await make_users(container, ALICE)
    now_ms = int(container.clock.time() * 1000)
    job = Job(new_job_id(), "export", ALICE, now_ms, now_ms)
    await container.get(PrivacyContainer).jobs.create_export(job, 3)
    return job.id


async def get_job(container: StorageContainer, id_: str) -> Job:
    job = await container.get(PrivacyContainer).jobs.find(id_)
    assert job is not None
    return job


async def test_too_large_export_fails_with_a_reason(container: StorageContainer) -> None:
    """It is not retried, and another export may be requested."""
    id_ = await request_export(container)

    async def work(_: ClaimedJob) -> None:
        async with open_zip(bytes_max=100) as archive:
            await archive.put_text("a.txt", bytes(range(256)))

    worker = JobWorker(container=container, owner="w1", kind="export", work=work, tries_max=5)
    assert await worker.step()

    job = await get_job(container, id_)
    assert (job.state, "would exceed 100 bytes" in job.why) == ("failed", True)
    assert not await worker.step()
    assert await request_export(container) != id_


async def test_export_that_keeps_failing_ends_with_a_reason(
    container: StorageContainer,
) -> None:
    """Retries are delayed. After the last attempt, the job has failed."""
    id_ = await request_export(container)

    async def work(_: ClaimedJob) -> None:
        raise Unavailable("the bucket is down")

    worker = JobWorker(container=container, owner="w1", kind="export", work=work, tries_max=1)
    assert await worker.step()
    waiting = await get_job(container, id_)
    assert waiting.until_ms > waiting.changed_ms
    assert not await worker.step()
    assert await container.get(PrivacyContainer).jobs.update(waiting, until_ms=0)
    assert await worker.step()

    job = await get_job(container, id_)
    assert job.state == "failed"
    assert "the bucket is down" in job.why


async def test_job_claimed_by_another_worker_cannot_be_changed_by_the_first(
    container: StorageContainer,
) -> None:
    """A worker that was paused until its claim expired cannot change the job."""
    id_ = await request_export(container)
    jobs, now_ms = container.get(PrivacyContainer).jobs, int(container.clock.time() * 1000)
    first = await jobs.claim(id_, "w1", now_ms, 60_000)
    assert first is not None
    assert await jobs.claim(id_, "w2", now_ms, 60_000) is None

    second = await jobs.claim(id_, "w2", now_ms + 60_000, 60_000)

    assert second is not None
    assert second.tries == 2
    with pytest.raises(JobLost):
        await ClaimedJob(container, first).update(progress=50)
    with pytest.raises(JobLost):
        await ClaimedJob(container, first).finish(state="ready", expires_at=1)
    assert (await get_job(container, id_)).holder == "w2"
