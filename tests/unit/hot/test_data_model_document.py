"""docs/data-model.md lists every Redis key of the code, with its type and scripts."""

from __future__ import annotations

import re
from pathlib import Path

from chatserver.hot.redis.scripts import all_scripts
from tests.support.key_classes import iter_key_builders

DOCUMENT = Path(__file__).parents[3] / "docs" / "data-model.md"
_ROW = re.compile(r"^\| `(\{[^`]+)` \| (\w+) \|", re.MULTILINE)
_HEADER_KEY = re.compile(r"^--\s+(?:item |more )?key (\w+)\s+(\w+)", re.MULTILINE)


def redis_section() -> str:
    """Return the Redis section of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.partition("\n## Redis\n")[2].partition("\n## DynamoDB\n")[0]


def documented() -> dict[str, str]:
    """Return the type of each documented key."""
    return dict(_ROW.findall(redis_section()))


def keys_of_the_code() -> set[str]:
    """Return the result of every key function, called with its parameter names as ids."""
    found = set()
    for kind, name, signature in iter_key_builders():
        arguments = [
            0 if parameter == "partition" else f"<{parameter}>"
            for parameter in signature.parameters
        ]
        found.add(getattr(kind(1), name)(*arguments).replace("{p0}", "{pN}"))
    return found


def declared_keys() -> list[tuple[str, str, str]]:
    """Return script, name and type of every key in a script's header."""
    return [
        (script.name, name, kind)
        for script in all_scripts()
        for name, kind in _HEADER_KEY.findall(script.source)
    ]


def test_data_model_document_lists_exactly_the_keys_of_the_code() -> None:
    """No key is missing, and no removed key is listed."""
    assert set(documented()) == keys_of_the_code()


def test_data_model_document_agrees_with_script_headers() -> None:
    """Each key of a script is a documented key of that type."""
    # A header writes a hyphen of a key as an underscore.
    types = {
        key.partition(":")[2].partition(":")[0].replace("-", "_"): of_type
        for key, of_type in documented().items()
    }

    declared = declared_keys()
    assert declared
    assert [each for each in declared if types.get(each[1]) != each[2]] == []


def test_data_model_document_names_every_script() -> None:
    """Each script is listed with the keys that it writes."""
    section = redis_section()

    assert [each.name for each in all_scripts() if f"`{each.name}`" not in section] == []
