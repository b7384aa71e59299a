"""Dependencies of data exports and account erasures."""

from __future__ import annotations

from functools import cached_property

from chatserver.container import storage_feature_ports
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import SYSTEM_USER
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.features.privacy.cold import ExportFiles
from chatserver.features.privacy.hot import RedisUserData
from chatserver.features.privacy.service import Lockout, Privacy
from chatserver.features.privacy.warm.jobs import JobRows
from chatserver.features.privacy.warm.user_data import PersonalRows
from chatserver.service.history.user_messages import UserMessages
from chatserver.service.messaging.message_erasure import MessageEraser


class PrivacyContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self._client = core.dynamodb.for_feature("privacy")
        self.jobs = JobRows(self._client)
        self.rows = PersonalRows(
            client=self._client,
            settings=core.settings.warm,
            shards=core.write_shards,
            bodies=core.long_bodies,
        )
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
    def rewrite_exported(self) -> storage_feature_ports.RewriteExported:
        return self._core.get_port(storage_feature_ports.REWRITE_EXPORTED)

    @cached_property
    def erase_indexed(self) -> storage_feature_ports.EraseIndexed:
        return self._core.get_port(storage_feature_ports.ERASE_INDEXED)

    @cached_property
    def privacy(self) -> Privacy:
        return Privacy(
            jobs=self.jobs,
            lockout=self.lockout,
            sign=self.exports.sign_link,
            clock=self._core.clock,
            reserved=self._core.reserved_users,
        )
