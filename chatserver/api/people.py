"""The part of the API's composition that is about who people are; see `chatserver.api.parts`."""

from __future__ import annotations

import dataclasses
import functools

from chatserver.auth import apikeys as craft
from chatserver.auth.device_tokens import DeviceTokens
from chatserver.auth.hostkeys import parse_jwks
from chatserver.auth.passwords import Passwords
from chatserver.auth.refresh import RefreshTokens, parse_refresh_token
from chatserver.auth.tokens import Tokens
from chatserver.config import Settings
from chatserver.domain.clock import Clock
from chatserver.domain.reserved_names import ReservedNames
from chatserver.hot.client import HotClient
from chatserver.hot.keysets import KeySets
from chatserver.hot.mailbox import Postman
from chatserver.hot.revocations import Revocations, SessionEnder
from chatserver.hot.traces import Traces
from chatserver.hot.tries import Tries
from chatserver.outbound.documents import fetch_document
from chatserver.outbound.http import Outbound
from chatserver.service.accounts import Accounts
from chatserver.service.apikeys import ApiKeys, Craft
from chatserver.service.entrance import Entrance
from chatserver.service.keyring import KeyFetcher, KeyRing
from chatserver.service.logins import Logins
from chatserver.service.privacy import Closing
from chatserver.service.revoking import Revoking
from chatserver.warm.accounts import AccountRows
from chatserver.warm.apikeys import KeyRow, KeyRows
from chatserver.warm.client import DynamoClient
from chatserver.warm.push_subscriptions import PushSubscriptions


@dataclasses.dataclass(frozen=True, slots=True)
class People:
    """Who may come in, and what lets them."""

    tokens: Tokens
    entrance: Entrance
    host_keys: KeyRing
    accounts: Accounts
    logins: Logins
    revoking: Revoking
    keys: ApiKeys
    closing: Closing
    reserved: frozenset[str]


def make_people(
    settings: Settings,
    clock: Clock,
    hot: HotClient,
    dynamodb: DynamoClient,
    postman: Postman,
    outbound: Outbound,
) -> People:
    """Put the use cases together.

    Raises:
        ConfigError: a key of the settings is none.
    """
    auth = settings.auth
    rows, key_sets = AccountRows(dynamodb.for_feature("accounts"), settings.warm), KeySets(hot)
    revocations = Revocations(hot, auth.token_s_max)
    pushes = PushSubscriptions(
        dynamodb.for_feature("push"), settings.warm, settings.notify.subscriptions_max
    )
    revoking = Revoking(rows, revocations, SessionEnder(hot, postman), auth, clock, pushes)
    tokens = Tokens(auth, clock)
    fetcher = KeyFetcher(
        auth,
        key_sets,
        functools.partial(fetch_document, outbound),
        functools.partial(parse_jwks, algorithm=auth.host_algorithm),
        clock,
    )
    host_keys = KeyRing(auth, key_sets, fetcher.get, tokens.use_key_set, clock)
    logins = Logins(rows, tokens, RefreshTokens(auth), parse_refresh_token, revoking, auth, clock)
    # A stranger who registers as an admin who is not there yet would be one.
    reserved = frozenset({*settings.api.demo_users, settings.api.system_user, *auth.admins})
    return People(
        tokens=tokens,
        entrance=Entrance(tokens, revocations, host_keys),
        host_keys=host_keys,
        accounts=Accounts(
            rows,
            Passwords(auth),
            logins,
            revoking,
            Tries(hot, settings.limits),
            DeviceTokens(auth, clock),
            auth,
            clock,
            ReservedNames([*reserved, *auth.reserved_names]),
        ),
        logins=logins,
        revoking=revoking,
        keys=make_api_keys(dynamodb, settings, clock),
        closing=Closing(rows, revocations, SessionEnder(hot, postman), Traces(hot), clock),
        reserved=reserved,
    )


def make_api_keys(dynamodb: DynamoClient, settings: Settings, clock: Clock) -> ApiKeys:
    """Return the use cases of API keys; the command line has them, too."""
    how = Craft(
        scopes=craft.SCOPES,
        parse=craft.parse_key,
        new_secret=craft.new_secret,
        digest_of=craft.digest_of,
        is_secret=craft.is_secret,
        format=craft.format_key,
        make_row=KeyRow,
    )
    return ApiKeys(KeyRows(dynamodb.for_feature("accounts"), settings.warm), how, clock)
