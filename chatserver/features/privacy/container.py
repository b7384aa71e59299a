"""Dependencies of data exports and account erasures."""

from __future__ import annotations

from functools import cached_property

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import SYSTEM_USER
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.features.privacy.cold import ExportFiles
from chatserver.features.privacy.hot import RedisUserData
from chatserver.features.privacy.service import Lockout, PrivacyRequests
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.service.history.user_messages import UserMessages
from chatserver.service.messaging.message_erasure import MessageEraser


class PrivacyContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("privacy")
        self.jobs = JobRows(self._client)
        self.rows = PersonalRows(self._client, core.write_shards, core.long_bodies)
        self.exports = ExportFiles(core.store)
        self.redis_data = RedisUserData(core.hot)

    @property
    def accounts(self) -> AccountRows:
        return self._core.get(AccountContainer).rows

    @property
    def search_entries(self) -> SearchEntries:
        return self._core.get(AccountContainer).search_entries

    @cached_property
    def lockout(self) -> Lockout:
        return Lockout(
            rows=self.accounts,
            revocations=self._core.revocations,
            ender=self._core.session_ender,
            redis_data=self.redis_data,
            clock=self._core.clock,
        )

    @cached_property
    def user_messages(self) -> UserMessages:
        return UserMessages(self.rows, self._core.manifests, self._core.cold_log)

    @cached_property
    def eraser(self) -> MessageEraser:
        return MessageEraser(
            commits=self._core.change_committer,
            audiences=self._core.audiences,
            messages=self.user_messages,
            system=SYSTEM_USER,
        )

    @cached_property
    def privacy(self) -> PrivacyRequests:
        return PrivacyRequests(
            jobs=self.jobs,
            lockout=self.lockout,
            sign=self.exports.sign_link,
            clock=self._core.clock,
            reserved=self._core.reserved_users,
        )
