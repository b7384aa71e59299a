"""Epochs: checks of the settings stored in Redis, and the joined epoch of all partitions."""

from __future__ import annotations

import pytest

from chatserver import config
from chatserver.domain.ids import Epoch
from chatserver.errors import ConfigError
from chatserver.hot.redis.epochs import LoadedEpoch, join_epochs

SETTINGS = config.Redis(partitions=4).for_tenant("acme")


@pytest.mark.parametrize(
    ("partitions", "tenant", "problem"),
    [
        (4, "other", r"CHAT_REDIS_URL\): this Redis belongs to .*other.*acme"),
        (8, "acme", r"redis\.partitions: is 4, .* initialized with 8"),
    ],
)
def test_redis_of_other_settings_is_refused(partitions: int, tenant: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        LoadedEpoch(Epoch("E1"), partitions, tenant, "").check_settings(SETTINGS)
    LoadedEpoch(Epoch("E1"), 4, "acme", "").check_settings(SETTINGS)


def test_joined_epoch_depends_on_every_partition() -> None:
    """The joined epoch of one partition is its epoch."""
    first, second = Epoch("E1"), Epoch("E2")

    assert join_epochs([first]) == first
    assert len({join_epochs([first, second]), join_epochs([first, first]), first, second}) == 4
