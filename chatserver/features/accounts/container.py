"""Dependencies of accounts."""

from __future__ import annotations

from functools import cached_property

from chatserver.auth.device_tokens import DeviceTokens
from chatserver.auth.passwords import Passwords
from chatserver.auth.refresh_token_format import RefreshTokens, parse_refresh_token
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.reserved_names import RESERVED_NAMES, ReservedNames
from chatserver.features.accounts.service.login_tokens import LoginTokens
from chatserver.features.accounts.service.password_logins import PasswordLogins
from chatserver.features.accounts.service.profiles import Profiles
from chatserver.features.accounts.service.user_search import UserSearch
from chatserver.features.accounts.warm.accounts import AccountRows
from chatserver.features.accounts.warm.search_entries import SearchEntries
from chatserver.hot.users.login_rate_limits import LoginRateLimits


class AccountContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        client = core.dynamodb.for_feature("accounts")
        self.rows = AccountRows(client)
        self.search_entries = SearchEntries(client)

    @cached_property
    def logins(self) -> LoginTokens:
        return LoginTokens(
            rows=self.rows,
            tokens=self._core.tokens,
            refresh_tokens=RefreshTokens(self._core.settings.auth),
            parse=parse_refresh_token,
            revocation=self._core.revocation,
            settings=self._core.settings.auth,
            clock=self._core.clock,
        )

    @cached_property
    def profiles(self) -> Profiles:
        return Profiles(self.rows, self._core.clock)

    @cached_property
    def password_logins(self) -> PasswordLogins:
        auth = self._core.settings.auth
        return PasswordLogins(
            rows=self.rows,
            profiles=self.profiles,
            passwords=Passwords(auth),
            logins=self.logins,
            revocation=self._core.revocation,
            attempts=LoginRateLimits(self._core.hot, self._core.settings.limits),
            devices=DeviceTokens(auth, self._core.clock),
            settings=auth,
            clock=self._core.clock,
            reserved=ReservedNames([*self._core.reserved_users, *RESERVED_NAMES]),
        )

    @cached_property
    def user_search(self) -> UserSearch:
        return UserSearch(self.search_entries, self.rows, self._core.block_policy)
