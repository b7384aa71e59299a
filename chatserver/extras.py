"""Extras of the package: which are installed, and errors that name a missing one.

An import of an optional library needs no check of its own: `main` of the command line, the doctor
and the callers of `explain_missing` turn its `ModuleNotFoundError` into the error below.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from chatserver.errors import ConfigError

# The modules that the code imports from each extra in pyproject.toml.
EXTRAS = {
    "ai": ("httpx2", "openai"),
    "analytics": ("duckdb", "pyarrow"),
    "api": ("argon2", "h11", "litestar", "uvicorn"),
    "aws": ("aioboto3", "aiobotocore", "aiohttp", "boto3", "botocore", "stamina", "yarl",
            "zstandard"),
    "media": ("PIL", "pi_heif"),
    "otel": ("opentelemetry",),
    "push": ("h2", "py_vapid", "pywebpush"),
    "search": ("lancedb",),
    "terminal": ("prompt_toolkit",),
}  # fmt: skip


def describe_missing(*extras: str) -> str:
    """Return how to install the extras, for an error message."""
    names, wanted = " and ".join(f"`{extra}`" for extra in extras), ",".join(extras)
    noun = "extra" if len(extras) == 1 else "extras"
    return (
        f"needs the {noun} {names}; in a checkout, run: pip install '.[{wanted}]'; for a wheel: "
        f"pip install 'FILE.whl[{wanted}]'"
    )


def describe_missing_module(error: ModuleNotFoundError) -> str:
    """Return which extra provides a missing module. Raises the error itself if none does."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return describe_missing(extra)
    raise error


def require_extras(what: str, *extras: str) -> None:
    """Check that all modules of the extras can be imported, without importing them.

    Raises:
        ConfigError: names `what` needs the extras, and all that are missing.
    """
    missing = [extra for extra in extras if not is_installed(extra)]
    if missing:
        raise ConfigError(f"{what}: {describe_missing(*missing)}")


def is_installed(extra: str) -> bool:
    """Return whether all modules of an extra can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra])


@contextlib.contextmanager
def explain_missing(what: str) -> Iterator[None]:
    """Convert a failed import of an optional library.

    Raises:
        ConfigError: an extra is missing.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        raise ConfigError(f"{what}: {describe_missing_module(exc)}") from exc
