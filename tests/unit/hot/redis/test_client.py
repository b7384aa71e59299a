"""Error messages for Redis replies, and invalid addresses."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.domain.ids import Epoch
from chatserver.errors import CorruptData, NotFound, Overloaded, Unavailable
from chatserver.hot.redis.factory import make_hot
from chatserver.hot.redis.replies import translate_reply_error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", Overloaded),
        ("NOREPLICAS Not enough good replicas to write.", Unavailable),
        ("LOADING Redis is loading the dataset in memory", Unavailable),
        ("BUSY Redis is busy running a script.", Unavailable),
        ("MISCONF Errors writing to the AOF file: No space left on device", Unavailable),
        ("READONLY You can't write against a read only replica.", Unavailable),
        ("MASTERDOWN Link with MASTER is down", Unavailable),
        ("CLUSTERDOWN The cluster is down", Unavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
        ("EXECABORT Transaction discarded because of previous errors.", Unavailable),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CorruptData),
        ("ERR unknown command 'XADDD'", CorruptData),
        ("ERR The ID specified in XADD is equal or smaller than the target", CorruptData),
    ],
)
def test_translate_reply_error_returns_temporary_or_permanent_error(
    text: str, expected: type[Exception]
) -> None:
    """Errors that may pass are temporary; broken invariants are never retried."""
    error = translate_reply_error(Exception(text))

    assert type(error) is expected
    assert error.temporary == (expected is not CorruptData)


def test_translate_reply_error_returns_own_errors_unchanged() -> None:
    """A call that got no reply already has the correct error."""
    error = NotFound("x")

    assert translate_reply_error(error) is error


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://example:7000/2", "example:7000"),
        ("redis://example", "example:6379"),
        ("rediss://user:secret@example:7000/0", "example:7000"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
    ],
)
def test_hot_client_name_contains_no_secrets(url: str, name: str) -> None:
    """The name is in every error and log line."""
    assert make_hot(config.Redis(url=url)).name == name


def test_whole_epoch_changes_with_the_epoch_of_any_partition() -> None:
    """If any part of Redis lost data, every device is notified (guarantee P1)."""
    hot = make_hot(config.Redis(partitions=3))
    hot.epochs = [Epoch("E1"), Epoch("E2"), Epoch("E3")]
    first = hot.whole_epoch
    hot.epochs[2] = Epoch("E4")

    assert hot.whole_epoch not in (first, *hot.epochs)
    assert hot.get_device_epoch(Epoch("E4")) == hot.whole_epoch
    assert hot.get_device_epoch(Epoch("E3")) == "E3", "no device is in an old epoch"
    hot.epochs[2] = Epoch("E3")
    assert hot.whole_epoch == first


def test_whole_epoch_of_one_partition_is_its_epoch() -> None:
    hot = make_hot(config.Redis(partitions=1))
    hot.epochs = [Epoch("E1")]

    assert hot.whole_epoch == hot.get_device_epoch(Epoch("E1")) == "E1"
