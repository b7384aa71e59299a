"""Sources of settings: environment variables, secret files and a TOML file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chatserver.config.settings import list_sections
from chatserver.errors import ConfigError

PREFIX = "CHAT_"
_NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR", "CHAT_FAILPOINT", "CHAT_TOKEN"}

Values = dict[str, dict[str, Any]]  # section → name → value, not validated


def list_variables() -> dict[str, tuple[str, str]]:
    """Return the section and the name of each setting, by environment variable."""
    return {
        f"{PREFIX}{section}_{name}".upper(): (section, name)
        for section, section_type in list_sections().items()
        for name in section_type.model_fields
    }


def find_unknown_variables() -> list[str]:
    """Return an error for each `CHAT_` environment variable that is not a setting."""
    names = list_variables().keys() | _NOT_SETTINGS
    return [
        f"{name}: no such setting"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in names
    ]


def read_values(overrides: Mapping[str, Mapping[str, Any]]) -> Values:
    """Return the values of all sources; `overrides` has the highest precedence.

    Raises:
        ConfigError: the TOML file or the directory of secrets cannot be read.
    """
    values: Values = {}
    for source in (_read_file(), _read_secrets(), _read_environment(), overrides):
        for section, named in source.items():
            values.setdefault(section, {}).update(named)
    return values


def _read_file() -> dict[str, Any]:
    path = os.environ.get("CHAT_CONFIG")
    if not path:
        return {}
    if not Path(path).is_file():
        raise ConfigError(f"CHAT_CONFIG: there is no file {path}")
    try:
        read = tomllib.loads(Path(path).read_text("utf-8"))
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"CHAT_CONFIG: {path} is not TOML: {exc}") from None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"CHAT_CONFIG: {path} is not UTF-8: {exc}") from None
    except OSError as exc:
        raise ConfigError(f"CHAT_CONFIG: {path} cannot be read: {exc.strerror}") from None
    if loose := [name for name, value in read.items() if not isinstance(value, dict)]:
        raise ConfigError(*(f"{name}: must be in a table, such as [redis]" for name in loose))
    return read


def _read_secrets() -> Values:
    folder = os.environ.get("CHAT_SECRETS_DIR")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise ConfigError(f"CHAT_SECRETS_DIR: there is no directory {folder}")
    secrets: Values = {}
    for variable, (section, name) in list_variables().items():
        for file in (Path(folder, variable), Path(folder, variable.lower())):
            if file.is_file():
                try:
                    secrets.setdefault(section, {})[name] = file.read_text("utf-8").strip()
                except (OSError, UnicodeDecodeError) as exc:
                    reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
                    raise ConfigError(f"CHAT_SECRETS_DIR: cannot read {file}: {reason}") from None
    return secrets


def _read_environment() -> Values:
    values: Values = {}
    for variable, (section, name) in list_variables().items():
        if variable in os.environ:
            values.setdefault(section, {})[name] = os.environ[variable]
    return values
