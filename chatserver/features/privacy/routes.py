"""HTTP routes for data exports and account erasures."""

from __future__ import annotations

from typing import Literal

import msgspec
from litestar import Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api import cookies
from chatserver.api.authorization import ANYONE, USER, Actor, Caller, key
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.login_routes import Password
from chatserver.features.privacy.container import PrivacyContainer
from chatserver.features.privacy.model import Job
from chatserver.features.privacy.service import LINK_S


class Export(msgspec.Struct, frozen=True):
    """An export of all of a user's data. `progress` is in percent; times are in ms since 1970.

    `state`: `waiting`, `running`, `ready`, or `failed` with the reason in `why`. If it is `ready`,
    `url` is the ZIP file's download URL, which is valid for `url_expires_s`. Until `expires`, each
    request returns a new URL.
    """

    export: str
    state: Literal["waiting", "running", "ready", "failed"]
    progress: int
    created: int
    why: str = ""
    size: int | None = None
    expires: int | None = None
    url: str | None = None
    url_expires_s: int | None = None


class AccountDeletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Confirms an account deletion. `password` is required if the user has one on this server."""

    password: Password | None = None


class Step(msgspec.Struct, frozen=True):
    """Data that a step of the erasure has deleted: where it was stored, what, and how many."""

    step: str
    where: str
    what: str
    count: int


class Receipt(msgspec.Struct, frozen=True):
    """The progress of an erasure. Times are in ms since 1970.

    `state`: `waiting`, `running` or `done`. `why`: the error that delays the erasure, if any.
    """

    receipt: str
    user: str
    state: str
    created: int
    changed: int
    steps: list[Step]
    why: str = ""


def build_privacy_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_export_routes(container), *_build_erasure_routes(container)]


def _build_export_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    privacy = container.get(PrivacyContainer).privacy

    def build_export(job: Job, url: str | None = None) -> Export:
        assert job.state != "done"
        is_ready = job.state == "ready"
        return Export(
            export=job.id,
            state=job.state,
            progress=100 if is_ready else job.progress,
            created=job.created_ms,
            why=job.why if job.state == "failed" else "",
            size=job.size if is_ready else None,
            expires=None if job.expires_at is None or not is_ready else job.expires_at * 1000,
            url=url,
            url_expires_s=LINK_S if url is not None else None,
        )

    @post("/v1/me/export", status_code=202, opt={"rule": USER, "creates": True})
    async def start_export(actor: Actor) -> Export:
        """Start an export of all of the user's data.

        Only one export per user can run at a time; the number of exports per day is limited.
        """
        return build_export(await privacy.start_export(actor))

    @get("/v1/me/export", opt={"rule": USER, "errors": (404,)})
    async def get_export(actor: Actor) -> Export:
        """Return the progress of the user's newest export, and its download URL."""
        return build_export(*await privacy.get_export(actor))

    return [start_export, get_export]


def _build_erasure_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    privacy, password_logins = (
        container.get(PrivacyContainer).privacy,
        container.get(AccountContainer).password_logins,
    )
    auth = container.settings.auth

    def build_receipt(job: Job) -> Receipt:
        steps = [Step(step.step, step.where, step.what, step.count) for step in job.steps]
        return Receipt(
            receipt=job.id,
            user=job.user,
            state=job.state,
            created=job.created_ms,
            changed=job.changed_ms,
            steps=steps,
            why=job.why,
        )

    @delete("/v1/me", status_code=202, opt={"rule": USER, "errors": (404,)})
    async def erase_me(data: JSONBody[AccountDeletion], principal: Caller) -> Response[Receipt]:
        """Permanently erase the user's account, files and message text.

        Requires the user's password. A user without a password on this server must use a token
        that was issued within the last 5 minutes.
        """
        assert principal.user is not None
        if not await password_logins.check_password(principal.user, data.password):
            privacy.check_fresh(principal.issued_at)
        receipt = build_receipt(await privacy.erase(principal.user))
        return Response(receipt, status_code=202, cookies=[cookies.build_expired_cookie(auth)])

    @delete("/v1/admin/users/{user:str}", status_code=202, opt={"rule": key("users:erase")})
    async def erase_user(user: PathId) -> Receipt:
        """Permanently erase a user. A repeated request returns the existing erasure."""
        return build_receipt(await privacy.erase(UserId(user)))

    @get("/v1/erasures/{receipt:str}", opt={"rule": ANYONE})
    async def get_erasure(receipt: PathId) -> Receipt:
        """Return an erasure's progress and completed steps."""
        return build_receipt(await privacy.get_receipt(receipt))

    return [erase_me, erase_user, get_erasure]
