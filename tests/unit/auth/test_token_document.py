"""The token in docs/accounts.md that a server signs itself."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from chatserver.auth.access_tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock

SECRET = "0123456789abcdef0123456789abcdef"
TEXT = (Path(__file__).parents[3] / "docs" / "accounts.md").read_text("utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_example_of_the_document_signs_a_valid_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server accepts the token of the example, unchanged."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(EXAMPLE, {})

    tokens = Tokens(Auth(secret=SecretStr(SECRET)), SystemClock())

    assert tokens.verify(printed.getvalue().strip()).user == "alice"
