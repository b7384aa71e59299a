"""The core does not name features, so nothing of a feature stays when its folder is deleted."""

from __future__ import annotations

import functools
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from chatserver.features import INSTALLED

ROOT = Path(__file__).parents[3]
# The SDK, the load generator and the development server support all features.
NOT_CORE = ("chatserver/client/", "chatserver/dev/", "chatserver/features/", "chatserver/loadtest/")
# Names of a feature in code. For the other features, this is the name of the folder.
NAMES = {
    "accounts": r"password_?login|login_?tokens",
    "attachments": r"thumbnail|slow_?image|media_?job|sendable",
    "companions": r"companion|assistant",
    "pins": r"pin_?rows|pins_max",
    "push": r"vapid|fcm|apns|push_?(key|state|notice|refusal|device|subscription|field)",
    "search": r"search_?(index|call|result|page|frame|worker|lag|bytes|document|change|stale)",
    "social": r"social|timeline|favorite|follow_?(graph|er)",
    "webhooks": r"webhook|before_?send|hook_?(call|event)",
}
# Modules that may name all features, and why.
MODULES = {
    "chatserver/api/routes/static_files.py": "the paths of the web client",
    "chatserver/auth/api_keys.py": "the scopes of API keys that are in use",
    "chatserver/extras.py": "the extras of the package",
    "chatserver/protocol/request_costs.py": "the costs of HTTP routes",
    "chatserver/telemetry/dynamodb_usage.py": "the labels of DynamoDB usage",
    "chatserver/telemetry/metrics.py": "every process exports every metric",
    "chatserver/warm/encryption/encrypted_fields.py": "the encrypted attributes of all tables",
    "chatserver/warm/schema/tables.py": "a tenant is deleted with the items of removed features",
}
# Words that the rest of the core may use, and why.
WORDS = {
    "analytics": {"analytics": "reserved as the prefix of objects, so not a tenant's name"},
    "companions": {
        r"companions?|(is|parse)_companion(_id)?|companion_?ids?": "ids, and a kind of chats",
        r"open_companion_chat|companion_chats_max": "a kind of chats",
        r"check_companion_send": "a port",
    },
    "chat_preferences": {"chatpreferences": "an object that the SDK decodes"},
    "group_pictures": {r"(no_|_no)?group_?pictures": "a port"},
    "privacy": {"privacy": "a reserved user name"},
    "push": {r"_?push_?devices": "a port", "push_key": "a field of the client configuration"},
    "search": {"search_calls": "a queue of calls of its own"},
    "social": {r"follow_?graph|find_followers|followers?": "a port"},
    "webhooks": {
        r"hookevent|webhook_messages": "the message types of a port",
        r"(call)?beforesend|hook_calls|webhooks": "an RPC operation with its own queue",
    },
}


@functools.cache
def read_words() -> dict[str, set[str]]:
    """Return the names, and the words in strings except docstrings, of each module and script."""
    paths = [path for top in ("chatserver", "workers") for path in (ROOT / top).rglob("*.*")]
    words = dict[str, set[str]]()
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(NOT_CORE):
            continue
        if path.suffix == ".lua":
            words[name] = set(re.findall(r"\w+", re.sub("--.*", "", path.read_text("utf-8"))))
        elif path.suffix == ".py":
            with tokenize.open(path) as file:
                tokens = list(tokenize.generate_tokens(file.readline))
            code = [token.string for token in tokens if token.type == tokenize.NAME]
            strings = (token.string for token in tokens if token.type == tokenize.STRING)
            texts = (text for text in strings if '"""' not in text)
            words[name] = {*code, *(word for text in texts for word in re.findall(r"\w+", text))}
    return words


def find_names(feature: str) -> dict[str, set[str]]:
    """Return the words of the core that name a feature, with their modules."""
    pattern = NAMES.get(feature, feature.removesuffix("s").replace("_", "_?"))
    found = defaultdict[str, set[str]](set)
    for module, words in read_words().items():
        for word in words:
            if re.search(pattern, word, re.IGNORECASE):
                found[word.lower()].add(module)
    return found


@pytest.mark.parametrize("feature", INSTALLED)
def test_core_names_no_feature_except_in_the_listed_places(feature: str) -> None:
    """The exceptions are complete, and each is in use."""
    others = {word: where - MODULES.keys() for word, where in find_names(feature).items()}
    rest = {word: where for word, where in others.items() if where}
    kept = WORDS.get(feature, {})

    assert {word for word in rest if not any(re.fullmatch(each, word) for each in kept)} == set()
    assert [each for each in kept if not any(re.fullmatch(each, word) for word in rest)] == []


def test_modules_that_may_name_features_do() -> None:
    """A module that names no feature any more is removed from the list."""
    named = {
        module for feature in INSTALLED for each in find_names(feature).values() for module in each
    }

    assert MODULES.keys() - named == set()
