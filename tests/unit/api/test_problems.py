"""Errors as responses: what the caller gets, and what only the log contains."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import post
from litestar.params import JSONBody
from litestar.testing import RequestFactory, create_test_client
from structlog.testing import capture_logs

from chatserver.api.problems import EXCEPTION_HANDLERS, on_chat_error
from chatserver.errors import BadRequest, ConfigError, LostRace, RateLimited


class _Note(msgspec.Struct):
    text: Annotated[str, msgspec.Meta(min_length=1)]


@post("/notes")
async def _post_note(data: JSONBody[_Note]) -> None:
    pass


def test_missing_setting_is_unavailable_and_named_only_in_the_log() -> None:
    """The caller cannot fix missing S3 credentials, so the response does not name them."""
    missing = "S3 at AWS: Unable to locate credentials: set cold.access_key"

    with capture_logs() as logs:
        response = on_chat_error(RequestFactory().post("/v1/files"), ConfigError(missing))

    problem = response.content
    assert (response.status_code, problem.code, problem.temporary) == (503, "unavailable", True)
    assert "not configured for this" in problem.detail
    assert "S3" not in problem.detail
    assert [line["problems"] for line in logs] == [[missing]]


def test_lost_race_is_a_temporary_conflict() -> None:
    """The same call may succeed later: the problem says so, and when to retry."""
    response = on_chat_error(RequestFactory().post("/v1/sessions"), LostRace("changed meanwhile"))

    problem = response.content
    assert (response.status_code, problem.code, problem.temporary) == (409, "conflict", True)
    assert (problem.retry_after_ms, response.headers["Retry-After"]) == (100, "1")


def test_rate_limited_request_is_not_logged() -> None:
    """A flood of rate-limited requests does not fill the log; other errors are logged."""
    request = RequestFactory().post("/v1/sessions")

    with capture_logs() as logs:
        responses = [
            on_chat_error(request, error)
            for error in (
                RateLimited("too many logins", retry_after_ms=500),
                BadRequest("name: no"),
            )
        ]

    assert [response.status_code for response in responses] == [429, 400]
    assert [line["code"] for line in logs] == ["bad_request"]


def test_problem_of_missing_or_invalid_body_names_the_body() -> None:
    """The parameter's internal name does not appear."""
    with create_test_client(
        [_post_note], exception_handlers=EXCEPTION_HANDLERS, logging_config=None
    ) as client:
        details = [client.post("/notes").json()["detail"]]
        details += [
            client.post("/notes", json=body).json()["detail"] for body in ({}, {"text": ""})
        ]

    assert details[0] == "body: a JSON body is required"
    assert details[1] == "body: object missing required field `text`"
    assert details[2].startswith("text: expected `str`")
