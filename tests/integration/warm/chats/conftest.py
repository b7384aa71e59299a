"""Fixtures of the chat tests, with the throughput limits of AWS."""

from __future__ import annotations

import pytest

from chatserver.warm.chats.directory import Directory
from chatserver.warm.chats.member_states import MemberStates
from tests.integration.warm.support import Tables
from tests.support.servers.limits import dynamodb

__all__ = ["dynamodb"]


@pytest.fixture
def directory(tables: Tables) -> Directory:
    """The directory of the tables."""
    return Directory(tables.client)


@pytest.fixture
def state(tables: Tables, directory: Directory) -> MemberStates:
    """The member state of the same tables."""
    return MemberStates(tables.client, directory)
