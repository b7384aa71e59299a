"""Sources of settings: environment variables, secret files and a TOML file."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)

from chatserver.config.section import Section
from chatserver.errors import ConfigError

PREFIX = "CHAT_"
_NOT_SETTINGS = {"CHAT_CONFIG", "CHAT_SECRETS_DIR", "CHAT_FAILPOINT", "CHAT_TOKEN"}


def list_variables(settings: type[BaseSettings]) -> dict[str, tuple[str, str]]:
    """Return the section and the name of each setting, by environment variable."""
    return {
        f"{PREFIX}{section}_{name}".upper(): (section, name)
        for section, field in settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        for name in field.annotation.model_fields
    }


def find_unknown_variables(settings: type[BaseSettings]) -> list[str]:
    """Return an error for each `CHAT_` environment variable that is not a setting."""
    names = list_variables(settings).keys() | _NOT_SETTINGS
    return [
        f"{name}: no such setting"
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in names
    ]


def open_sources(
    settings: type[BaseSettings], *stronger: PydanticBaseSettingsSource
) -> tuple[PydanticBaseSettingsSource, ...]:
    """Return the sources, highest precedence first: `stronger`, secret files, the TOML file.

    Raises:
        ConfigError: ``CHAT_SECRETS_DIR`` does not exist.
    """
    secrets = InitSettingsSource(settings, init_kwargs=_read_secrets(settings))
    if path := os.environ.get("CHAT_CONFIG"):
        return (*stronger, secrets, TomlConfigSettingsSource(settings, Path(path)))
    return (*stronger, secrets)


def _read_secrets(settings: type[BaseSettings]) -> dict[str, dict[str, str]]:
    folder = os.environ.get("CHAT_SECRETS_DIR")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise ConfigError([f"CHAT_SECRETS_DIR: there is no directory {folder}"])
    secrets: dict[str, dict[str, str]] = {}
    for variable, (section, name) in list_variables(settings).items():
        for file in (Path(folder, variable), Path(folder, variable.lower())):
            if file.is_file():
                secrets.setdefault(section, {})[name] = file.read_text().strip()
    return secrets
