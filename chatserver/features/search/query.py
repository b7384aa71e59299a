"""Search queries: syntax and parser. No I/O.

::

    lunch "at one" caf from:alice in:g-m2q7 has:file after:2026-01-01 before:2026-02-01

A message matches if it contains all words and all quoted phrases. The last word matches as a
prefix, unless it is in quotes or a space follows it. `from:me` means the viewer. `after` is
inclusive and `before` is exclusive; both mean 00:00 UTC on that day.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from chatserver.domain.ids import parse_id
from chatserver.errors import BadRequest
from chatserver.features.search.frames import QUERY_CHARS_MAX
from chatserver.features.search.tokenizer import Token, normalize, tokenize

TERMS_MAX: Final = 16  # maximum words and phrases in a query
QUERY_TOKENS_MAX: Final = 64  # maximum tokens of all words and phrases of a query
PREFIX_CHARS_MIN: Final = 2  # a shorter last word matches only whole words, not prefixes
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9998

_PART = re.compile(r'"([^"]*)"?|(\S+)')
_FILTER = re.compile(r"(from|in|has|before|after):(.*)", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")


class Term(NamedTuple):
    """Consecutive tokens. `is_prefix`: the last token matches as a prefix."""

    tokens: tuple[str, ...]
    is_prefix: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. Times are in microseconds; `before_ts` is exclusive."""

    terms: tuple[Term, ...] = ()
    sender: str | None = None
    chat: str | None = None
    has_file: bool = False
    after_ts: int | None = None
    before_ts: int | None = None


def parse_query(text: str, viewer: str) -> Query:
    """Parse a query.

    Raises:
        BadRequest: the query is invalid.
    """
    if len(text) > QUERY_CHARS_MAX:
        raise BadRequest(f"q: must be at most {QUERY_CHARS_MAX} characters; got {len(text)}")
    text = normalize(text)
    terms: list[Term] = []
    filters: dict[str, str] = {}
    for match in _PART.finditer(text):
        phrase, word = match.group(1), match.group(2)
        is_filter = None if word is None else _FILTER.fullmatch(word)
        if is_filter:
            name, value = is_filter.group(1).lower(), is_filter.group(2)
            if name in filters:
                raise BadRequest(f"q: {name}: must not be given twice")
            filters[name] = value
        elif word is not None:
            is_last = match.end() == len(text)
            terms += _parse_term(word, is_prefix=is_last)
        else:
            if not text[match.start() + 1 :].startswith(f'{phrase}"'):
                raise BadRequest('q: a quotation mark is not closed; add the closing "')
            terms += _parse_term(phrase, is_prefix=False)
    if len(terms) > TERMS_MAX:
        raise BadRequest(f"q: must have at most {TERMS_MAX} words and phrases; got {len(terms)}")
    count = sum(len(term.tokens) for term in terms)
    if count > QUERY_TOKENS_MAX:
        raise BadRequest(
            f"q: must have at most {QUERY_TOKENS_MAX} words, also in phrases; got {count}; in "
            "scripts without spaces, each character is a word"
        )
    query = _add_filters(Query(tuple(dict.fromkeys(terms))), filters, viewer)
    if query == Query() or (not terms and not filters):
        raise BadRequest("q: must have a word, a phrase, or from:, in:, has:, before: or after:")
    return query


def _parse_term(text: str, *, is_prefix: bool) -> list[Term]:
    tokens = tokenize(text)
    if not tokens:
        return []
    last = tokens[-1]
    is_prefix = is_prefix and last.end == len(text) and not last.is_gram
    is_prefix = is_prefix and len(last.text) >= PREFIX_CHARS_MIN
    return [Term(tuple(names), is_prefix or is_open) for names, is_open in [_join_grams(tokens)]]


def _join_grams(tokens: Sequence[Token]) -> tuple[list[str], bool]:
    """Return the tokens to find, and whether the last one is a prefix.

    In scripts without spaces, a token consists of a character and the next character. The last
    character of the query has no next character, but in a message it may have one. If another
    character of the script directly precedes it, the previous token already contains the last
    character, whose own token is then omitted. Otherwise, its token matches as a prefix.
    """
    names: list[str] = []
    is_open = False
    for index, token in enumerate(tokens):
        is_run_end = token.is_gram and (
            index + 1 == len(tokens) or tokens[index + 1].start != token.end
        )
        is_last = index + 1 == len(tokens)
        has_previous = (
            index > 0 and tokens[index - 1].is_gram and tokens[index - 1].end == token.start
        )
        if is_run_end and is_last and has_previous:
            continue
        is_open = is_run_end and is_last
        names.append(token.text)
    return names, is_open


def _add_filters(query: Query, filters: dict[str, str], viewer: str) -> Query:
    for name, value in filters.items():
        match name:
            case "from":
                sender = viewer if value.lower() == "me" else _parse_id(name, value)
                query = dataclasses.replace(query, sender=sender)
            case "in":
                query = dataclasses.replace(query, chat=_parse_id(name, value))
            case "has":
                if value.lower() != "file":
                    raise BadRequest("q: has: must be has:file")
                query = dataclasses.replace(query, has_file=True)
            case "before":
                query = dataclasses.replace(query, before_ts=_parse_date(name, value))
            case _:
                query = dataclasses.replace(query, after_ts=_parse_date(name, value))
    if (
        query.after_ts is not None
        and query.before_ts is not None
        and query.after_ts >= query.before_ts
    ):
        raise BadRequest("q: after: must be earlier than before:")
    return query


def _parse_id(name: str, value: str) -> str:
    if not value:
        raise BadRequest(f"q: {name}: must be followed by an id, without a space after the colon")
    try:
        return parse_id(value, f"q: {name}:")
    except BadRequest:
        raise BadRequest(f"q: {name}: is not an id: {value[:64]!r}") from None


def _parse_date(name: str, value: str) -> int:
    match = _DATE.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        day = datetime.datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=datetime.UTC)
        if not FIRST_YEAR <= day.year <= LAST_YEAR:
            raise ValueError
    except ValueError:
        raise BadRequest(
            f"q: {name}: must be a date from {FIRST_YEAR} to {LAST_YEAR}, for example "
            f"{name}:2026-01-31; got {value[:32]!r}"
        ) from None
    return int(day.timestamp()) * 1_000_000
