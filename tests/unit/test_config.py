"""Settings: their sources, and errors that list all problems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from chatserver.config import (
    RateLimit,
    Settings,
    check_secret,
    list_sections,
    list_variables,
    load_settings,
)
from chatserver.errors import ConfigError
from chatserver.features.push.settings import Notify
from chatserver.features.search.settings import Search

SECRET = "s" * 32


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of this machine from the environment."""
    for name in os.environ:
        if name.upper().startswith("CHAT_"):
            monkeypatch.delenv(name)


def problems_of(monkeypatch: pytest.MonkeyPatch, **env: str) -> list[str]:
    """Load with these variables and return the problems."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    return caught.value.problems


# sources


def test_settings_of_an_empty_environment_are_the_defaults() -> None:
    """No setting is required."""
    assert load_settings() == Settings()


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section and setting names may contain underscores."""
    monkeypatch.setenv("CHAT_GATEWAY_PORT", "9001")
    monkeypatch.setenv("CHAT_GATEWAY_SESSIONS_PER_USER_MAX", "7")
    monkeypatch.setenv("CHAT_GATEWAY_ORIGINS", '["https://a.example","https://b.example"]')

    gateway = load_settings().gateway

    assert (gateway.port, gateway.sessions_per_user_max) == (9001, 7)
    assert gateway.origins == ["https://a.example", "https://b.example"]


def test_settings_precedence_is_file_secrets_environment_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later sources override earlier ones."""
    file, secrets = tmp_path / "chat.toml", tmp_path / "secrets"
    file.write_text(
        "[redis]\npartitions = 1\ninbox_max = 11\nbacklog_max = 1001\nlog_max = 101\n", "utf-8"
    )
    secrets.mkdir()
    for name, value in (("INBOX_MAX", "12"), ("BACKLOG_MAX", "1002"), ("LOG_MAX", "102")):
        (secrets / f"CHAT_REDIS_{name}").write_text(value + "\n", "utf-8")
    monkeypatch.setenv("CHAT_CONFIG", str(file))
    monkeypatch.setenv("CHAT_SECRETS_DIR", str(secrets))
    monkeypatch.setenv("CHAT_REDIS_BACKLOG_MAX", "1003")
    monkeypatch.setenv("CHAT_REDIS_LOG_MAX", "103")

    redis = load_settings(redis={"log_max": 104}).redis

    assert (redis.partitions, redis.inbox_max) == (1, 12)
    assert (redis.backlog_max, redis.log_max) == (1003, 104)


@pytest.mark.parametrize("name", ["CHAT_AUTH_SECRET", "chat_auth_secret"])
def test_settings_secret_is_read_from_its_file_without_the_newline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A mounted secret is named like its variable, in either case."""
    (tmp_path / name).write_text(SECRET + "\n", "utf-8")
    monkeypatch.setenv("CHAT_SECRETS_DIR", str(tmp_path))

    assert load_settings().auth.secret.get_secret_value() == SECRET


# invalid settings


def test_settings_problems_are_all_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One start reports all invalid settings."""
    problems = problems_of(
        monkeypatch,
        CHAT_NOPE="1",
        CHAT_GATEWAY_PRT="1",
        CHAT_GATEWAY_PORT="70000",
        CHAT_REDIS_PARTITIONS="many",
        CHAT_PERSIST_LEASE_S="3",
        CHAT_WARM_TABLE_PREFIX="no spaces",
    )

    for expected in (
        "CHAT_NOPE: no such setting",
        "CHAT_GATEWAY_PRT: no such setting",
        "gateway.port (CHAT_GATEWAY_PORT): must be less than or equal to 65535",
        "redis.partitions (CHAT_REDIS_PARTITIONS): must be a valid integer, unable to parse string "
        "as an integer",
        "persist: write_timeout_s must be shorter than lease_s",
        "warm.table_prefix (CHAT_WARM_TABLE_PREFIX): string should match pattern "
        "'^[A-Za-z0-9_.-]{0,64}$'",
    ):
        assert problems.count(expected) == 1
    assert len(problems) == 6


def test_settings_problems_do_not_hide_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid value hides no conflict, and causes none with the default in its place."""
    problems = problems_of(
        monkeypatch,
        CHAT_GATEWAY_PORT="port",
        CHAT_GATEWAY_PING_INTERVAL_S="5",
        CHAT_PERSIST_LEASE_S="soon",
        CHAT_PERSIST_WRITE_TIMEOUT_S="11",
        CHAT_ARCHIVE_SEGMENT_ENTRIES_MIN="2000",
        CHAT_ARCHIVE_REMOVAL="ttl",
        CHAT_ARCHIVE_RETENTION_S="60",
        CHAT_ARCHIVE_TTL_MARGIN_S="1",
        CHAT_CHATS_BODY_BYTES_MAX="100000",
    )

    assert [problem.split(":")[0] for problem in problems] == [
        "gateway.port (CHAT_GATEWAY_PORT)",
        "gateway",
        "persist.lease_s (CHAT_PERSIST_LEASE_S)",
        "archive",
        "archive",
        "gateway.frame_bytes_max",
    ]


@pytest.mark.parametrize("value", ["alice", '["alice"', "7", '{"alice": 1}'])
def test_settings_with_an_invalid_list_are_reported_with_other_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """This holds for variables and secret files; there is no traceback."""
    (tmp_path / "CHAT_GATEWAY_ORIGINS").write_text(value, "utf-8")

    problems = problems_of(
        monkeypatch,
        CHAT_AUTH_ADMINS=value,
        CHAT_REDIS_PARTITIONS="many",
        CHAT_SECRETS_DIR=str(tmp_path),
    )

    names = ["redis.partitions", "gateway.origins", "auth.admins"]
    assert [problem.split(" (")[0] for problem in problems] == names
    assert all(" list" in problem for problem in problems[1:])


def test_settings_list_is_read_from_a_secret_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The syntax is the same as in a variable."""
    (tmp_path / "CHAT_AUTH_ADMINS").write_text('["alice", "bob"]\n', "utf-8")
    monkeypatch.setenv("CHAT_SECRETS_DIR", str(tmp_path))

    assert load_settings().auth.admins == ["alice", "bob"]


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (
            {"CHAT_REDIS_LOG_MAX": "99", "CHAT_REDIS_INBOX_MAX": "100"},
            "redis: log_max must be at least inbox_max",
        ),
        (
            {"CHAT_PERSIST_LEASE_S": "4", "CHAT_PERSIST_WRITE_TIMEOUT_S": "4"},
            "persist: write_timeout_s must be shorter than lease_s",
        ),
        (
            {"CHAT_GATEWAY_PING_INTERVAL_S": "5", "CHAT_GATEWAY_PONG_TIMEOUT_S": "5"},
            "gateway: pong_timeout_s must be shorter than ping_interval_s",
        ),
    ],
)
def test_settings_that_conflict_are_refused(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], problem: str
) -> None:
    """Each value alone would be valid."""
    assert problems_of(monkeypatch, **env) == [problem]


def test_settings_at_the_bounds_of_conflicts_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are exact."""
    for name, value in (
        ("REDIS_LOG_MAX", "100"),
        ("REDIS_INBOX_MAX", "100"),
        ("PERSIST_LEASE_S", "4.1"),
        ("PERSIST_WRITE_TIMEOUT_S", "4"),
        ("GATEWAY_PING_INTERVAL_S", "5.1"),
        ("GATEWAY_PONG_TIMEOUT_S", "5"),
    ):
        monkeypatch.setenv(f"CHAT_{name}", value)

    load_settings()


def test_settings_file_with_unknown_names_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled setting does not silently keep its default."""
    file = tmp_path / "chat.toml"
    file.write_text("[redis]\nnope = 1\n[nope]\na = 1\n", "utf-8")

    problems = problems_of(monkeypatch, CHAT_CONFIG=str(file))

    assert problems == ["redis.nope: no such setting", "nope: no such setting"]


def test_settings_file_that_is_not_toml_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem contains the line."""
    file = tmp_path / "chat.toml"
    file.write_text("[redis\n", "utf-8")

    (problem,) = problems_of(monkeypatch, CHAT_CONFIG=str(file))

    assert problem.startswith(f"CHAT_CONFIG: {file} is not TOML")
    assert "line 1" in problem


def test_settings_file_that_is_not_utf8_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be binary or have another encoding."""
    file = tmp_path / "chat.toml"
    file.write_bytes(b"[redis]\nurl = '\xff'\n")

    (problem,) = problems_of(monkeypatch, CHAT_CONFIG=str(file))

    assert problem.startswith(f"CHAT_CONFIG: {file} is not UTF-8")


@pytest.mark.parametrize("name", ["CHAT_CONFIG", "CHAT_SECRETS_DIR"])
def test_settings_path_that_does_not_exist_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A misspelled path must not start a process with defaults."""
    path = str(tmp_path / "nowhere")

    (problem,) = problems_of(monkeypatch, **{name: path})

    assert problem.startswith(f"{name}: there is no ")
    assert path in problem


def test_settings_cannot_be_changed() -> None:
    """Settings are read once."""
    with pytest.raises(Exception, match="frozen"):
        load_settings().gateway.port = 1  # type: ignore[misc]  # the test assigns on purpose


# secrets


@pytest.mark.parametrize("secret", ["", "s" * 31, "é" * 15])
def test_check_secret_refuses_a_key_that_is_too_short(secret: str) -> None:
    """There is no default and no weak key; the message says how to create one."""
    settings = load_settings(auth={"secret": secret})

    with pytest.raises(ConfigError, match=r"CHAT_AUTH_SECRET.*at least 32 bytes.*openssl rand"):
        check_secret(settings)


@pytest.mark.parametrize("secret", ["s" * 32, "é" * 16])
def test_check_secret_accepts_32_bytes(secret: str) -> None:
    """The length is measured in bytes, not characters."""
    check_secret(load_settings(auth={"secret": secret}))


@pytest.mark.parametrize("secret", ["", "short"])
def test_settings_that_need_a_secret_report_it_with_all_other_problems(
    monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """One start reports all problems, including the secret."""
    monkeypatch.setenv("CHAT_GATEWAY_PORT", "99999")
    if secret:
        monkeypatch.setenv("CHAT_AUTH_SECRET", secret)

    with pytest.raises(ConfigError) as caught:
        load_settings(requires_secret=True)

    port, key = sorted(caught.value.problems, key=lambda problem: "SECRET" in problem)
    assert "CHAT_GATEWAY_PORT" in port
    assert key.startswith("auth.secret (CHAT_AUTH_SECRET): must be at least 32 bytes")


def test_settings_do_not_show_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are masked in output and logs."""
    monkeypatch.setenv("CHAT_AUTH_SECRET", SECRET)
    monkeypatch.setenv("CHAT_WARM_SECRET_KEY", "w" * 20)

    assert SECRET not in repr(load_settings())
    assert "w" * 20 not in str(load_settings())


def test_settings_problems_do_not_show_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error about one setting does not print the others."""
    problems = problems_of(monkeypatch, CHAT_AUTH_SECRET=SECRET, CHAT_AUTH_LIFETIME_S_MAX="-1")

    assert not any(SECRET in problem for problem in problems)


def test_settings_have_the_section_of_each_feature() -> None:
    """A section can be read by its type, and an unknown section is refused."""
    settings = Settings(notify={"delay_s": 1})

    assert (settings.get(Notify).delay_s, settings.get(Search)) == (1, Search())
    with pytest.raises(ValidationError, match="no such section: pushes"):
        Settings(pushes={})


def test_settings_named_like_secrets_have_a_secret_type() -> None:
    """A new secret must be masked too."""
    for section, section_type in list_sections().items():
        for name, setting in section_type.model_fields.items():
            if "secret" in name or "password" in name:
                secret_types = (SecretStr, SecretStr | None)
                assert setting.annotation in secret_types, f"{section}.{name}"


def test_settings_with_a_body_larger_than_a_frame_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every allowed message must fit into a frame."""
    problems = problems_of(monkeypatch, CHAT_CHATS_BODY_BYTES_MAX="100000")

    assert problems == [
        "gateway.frame_bytes_max: must be at least 308192, so that a message of "
        "chats.body_bytes_max (100000) fits into a frame"
    ]
    monkeypatch.setenv("CHAT_GATEWAY_FRAME_BYTES_MAX", "308192")
    assert load_settings().chats.request_bytes_max == 308_192


@pytest.mark.parametrize(
    "more",
    [
        {"host": "0.0.0.0"},
        {"host": "192.0.2.1"},
        {"host": "::"},
        {"trusted_proxies": ["127.0.0.1"]},
    ],
)
def test_demo_users_on_a_public_listener_are_refused(more: dict[str, object]) -> None:
    """Login without a password is allowed on loopback only, and not behind a proxy."""
    with pytest.raises(ConfigError, match="demo_users log in without a password"):
        load_settings(api={"demo_users": ["alice"], **more})


def test_demo_users_on_loopback_are_allowed() -> None:
    """`chatserver dev` listens there."""
    assert load_settings(api={"demo_users": ["alice"], "host": "::1"}).api.demo_users == ["alice"]


def test_rate_limit_is_read_from_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The syntax is the printed form."""
    monkeypatch.setenv("CHAT_LIMITS_LOGINS", "0.05/s burst 10")

    limits = load_settings().limits

    assert limits.logins == RateLimit(0.05, 10)
    assert str(limits.logins) == "0.05/s burst 10"


@pytest.mark.parametrize(
    "text", ["50", "50/s", "burst 5", "50/m burst 5", "0/s burst 5", "1/s burst 0"]
)
def test_rate_limit_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The problem names the setting."""
    (problem,) = problems_of(monkeypatch, CHAT_LIMITS_SENDS=text)

    assert problem.startswith("limits.sends (CHAT_LIMITS_SENDS): must ")


def test_settings_are_at_most_150() -> None:
    """Values that no operator would change are constants next to the code that uses them."""
    assert len(list_variables()) <= 150
