"""Settings of authentication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, SecretStr

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl

TOKEN_LEEWAY_S = 60  # accepted clock difference between issuer and verifier


class Auth(Section):
    """Authentication: tokens, local accounts and the host application's tokens."""

    secret: SecretStr = Field(
        SecretStr(""), description="HS256 key that signs tokens; at least 32 bytes, no default"
    )
    audience: str = Field("chatserver", description="`aud` claim of the server's tokens")
    issuer: str | None = Field(
        None, description="`iss` claim of the server's tokens; unset: not checked"
    )
    lifetime_s_max: int = Field(
        3600, ge=60, le=86_400, description="Maximum accepted lifetime of a token"
    )
    local_accounts: bool = Field(True, description="Let users log in with a user name and password")
    registration: Literal["open", "closed"] = Field(
        "open",
        description="`open`: anyone can register an account; `closed`: only the host "
        "application creates accounts",
    )
    admins: list[str] = Field(
        default_factory=list, description="Users with access to the admin page"
    )
    refresh_ttl_s: int = Field(
        2_592_000,
        ge=600,
        le=31_536_000,
        description="A login that is not used for this time expires",
    )
    cookie_secure: bool = Field(True, description="Browsers send the login cookie over HTTPS only")
    passphrase_chars_min: int = Field(
        8, ge=8, le=64, description="Minimum characters in a password"
    )
    argon2_memory_kib: int = Field(
        65_536, ge=8, le=4_194_304, description="Memory per Argon2 password hash"
    )
    host_algorithm: Literal["HS256", "RS256", "ES256", "EdDSA"] | None = Field(
        None,
        description="Accept tokens from the host application that are signed with this algorithm",
    )
    host_secret: SecretStr | None = Field(
        None, description="Host application's HS256 key; at least 32 bytes"
    )
    host_public_keys: str | None = Field(
        None, description="Host application's public keys, as concatenated PEM blocks"
    )
    host_jwks_url: HttpUrl | None = Field(
        None, description="URL of the host application's JSON Web Key Set"
    )
    host_issuer: str | None = Field(
        None, description="`iss` claim of the host application's tokens"
    )
    host_audience: str | None = Field(
        None, description="`aud` claim of the host application's tokens; unset: `auth.audience`"
    )

    @property
    def token_s_max(self) -> int:
        """The maximum age of a token in seconds, including leeway."""
        return self.lifetime_s_max + TOKEN_LEEWAY_S

    def find_conflicts(self) -> Iterator[str]:
        sources = [
            name
            for name in ("host_secret", "host_public_keys", "host_jwks_url")
            if getattr(self, name) is not None
        ]
        if self.host_algorithm is None:
            if sources:
                yield f"{sources[0]} requires host_algorithm"
            return
        if self.local_accounts:
            # With both, a user could register the name of one of the host application's users.
            yield "host_algorithm requires local_accounts = false"
        takes_secret = self.host_algorithm == "HS256"
        if len(sources) != 1 or (sources == ["host_secret"]) != takes_secret:
            yield (
                "host_algorithm HS256 requires host_secret only; any other algorithm requires "
                "exactly one of host_public_keys and host_jwks_url"
            )
