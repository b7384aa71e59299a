"""Dependency wiring of accounts, authentication and API keys; see `chatserver.api.container`."""

from __future__ import annotations

import dataclasses
import functools

from chatserver.auth.device_tokens import DeviceTokens
from chatserver.auth.host_keys import parse_jwks
from chatserver.auth.passwords import Passwords
from chatserver.auth.refresh_tokens import RefreshTokens, parse_refresh_token
from chatserver.auth.tokens import Tokens
from chatserver.config import Settings
from chatserver.domain.access.reserved_names import RESERVED_NAMES, ReservedNames
from chatserver.domain.clock import Clock
from chatserver.domain.ids import SYSTEM_USER
from chatserver.features.accounts.service.accounts import Accounts
from chatserver.features.accounts.service.logins import Logins
from chatserver.features.accounts.warm import AccountRows
from chatserver.features.privacy.hot import RedisUserData
from chatserver.features.privacy.service import Lockout
from chatserver.features.push.model import SUBSCRIPTIONS_MAX
from chatserver.features.push.warm.subscriptions import PushSubscriptions
from chatserver.hot.bus.mailbox import MailboxWriter
from chatserver.hot.key_sets import KeySets
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.login_attempts import LoginAttempts
from chatserver.hot.users.revocations import Revocations, SessionEnder
from chatserver.outbound.document_fetch import fetch_document
from chatserver.outbound.http_client import Outbound
from chatserver.service.access.api_keys import ApiKeys
from chatserver.service.access.authentication import TokenAuthentication
from chatserver.service.access.host_keyring import KeyFetcher, KeyRing
from chatserver.service.access.revocation import Revoking
from chatserver.warm.api_keys import KeyRows
from chatserver.warm.dynamo.client import DynamoClient


@dataclasses.dataclass(frozen=True, slots=True)
class AccountContainer:
    """Use cases of accounts and authentication."""

    tokens: Tokens
    entrance: TokenAuthentication
    host_keys: KeyRing
    accounts: Accounts
    logins: Logins
    revoking: Revoking
    keys: ApiKeys
    closing: Lockout
    reserved: frozenset[str]


def make_people(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    postman: MailboxWriter,
    outbound: Outbound,
) -> AccountContainer:
    """Build the use cases.

    Raises:
        ConfigError: a key in the settings is invalid.
    """
    auth = settings.auth
    rows, key_sets = AccountRows(dynamodb.for_feature("accounts"), settings.warm), KeySets(hot)
    revocations = Revocations(hot, auth.token_s_max)
    pushes = PushSubscriptions(dynamodb.for_feature("push"), settings.warm, SUBSCRIPTIONS_MAX)
    revoking = Revoking(
        accounts=rows,
        revocations=revocations,
        session_ender=SessionEnder(hot, postman),
        settings=auth,
        clock=clock,
        push_devices=pushes,
    )
    tokens = Tokens(auth, clock)
    fetcher = KeyFetcher(
        settings=auth,
        cache=key_sets,
        fetch=functools.partial(fetch_document, outbound),
        check=functools.partial(parse_jwks, algorithm=auth.host_algorithm),
        clock=clock,
    )
    host_keys = KeyRing(
        settings=auth,
        cache=key_sets,
        fetch=fetcher.get,
        activate=tokens.use_key_set,
        clock=clock,
    )
    logins = Logins(
        rows=rows,
        tokens=tokens,
        refresh_tokens=RefreshTokens(auth),
        parse=parse_refresh_token,
        revocation=revoking,
        settings=auth,
        clock=clock,
    )
    # Otherwise anyone could register the name of an admin who has no account yet.
    reserved = frozenset({*settings.api.demo_users, SYSTEM_USER, *auth.admins})
    return AccountContainer(
        tokens=tokens,
        entrance=TokenAuthentication(tokens, revocations, host_keys),
        host_keys=host_keys,
        accounts=Accounts(
            rows=rows,
            passwords=Passwords(auth),
            logins=logins,
            revocation=revoking,
            attempts=LoginAttempts(hot, settings.limits),
            devices=DeviceTokens(auth, clock),
            settings=auth,
            clock=clock,
            reserved=ReservedNames([*reserved, *RESERVED_NAMES]),
        ),
        logins=logins,
        revoking=revoking,
        keys=make_api_keys(dynamodb, settings, clock),
        closing=Lockout(
            rows=rows,
            revocations=revocations,
            ender=SessionEnder(hot, postman),
            redis_data=RedisUserData(hot),
            clock=clock,
        ),
        reserved=reserved,
    )


def make_api_keys(dynamodb: DynamoClient, settings: Settings, clock: Clock) -> ApiKeys:
    """Return the use cases of API keys; the command line uses them too."""
    return ApiKeys(KeyRows(dynamodb.for_feature("accounts"), settings.warm), clock)
