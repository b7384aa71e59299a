"""Matching of query terms in the text of a message, and snippets. No I/O.

The tokens of a text are joined with spaces, so a term is found with `str.find`. Only the matches
near the first one are listed, because a snippet shows no others. The time is therefore about that
of splitting the text into tokens, whatever the query is.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Sequence
from typing import Final

from chatserver.domain.text.graphemes import find_break
from chatserver.features.search.frames import Segment
from chatserver.features.search.query import Term
from chatserver.features.search.tokenizer import Token, tokenize

SNIPPET_CHARS: Final = 160
Span = tuple[int, int]


def find_spans(terms: Sequence[Term], text: str) -> list[Span] | None:
    """Return where the terms are in a normalized text; None if a term is missing.

    The spans begin with the first match in the text and cover `SNIPPET_CHARS` characters.
    """
    tokens = tokenize(text)
    joined = f" {' '.join([token.text for token in tokens])} "
    first = len(joined)
    for term in terms:
        offset = joined.find(_build_pattern(term))
        if offset < 0:
            return None
        first = min(first, offset)
    if not terms:
        return []
    # The offset in `joined` of the space before each token.
    offsets = list(itertools.accumulate((len(token.text) + 1 for token in tokens), initial=0))
    number = bisect.bisect_left(offsets, first)
    end = tokens[number].start + SNIPPET_CHARS
    last = bisect.bisect_left(tokens, end, lo=number, key=operator.attrgetter("start"))
    spans: list[Span] = []
    for term in terms:
        spans += _find_term(term, joined, offsets, tokens, (first, offsets[last]))
    return _merge(spans)


def _build_pattern(term: Term) -> str:
    return f" {' '.join(term.tokens)}" + ("" if term.is_prefix else " ")


def _find_term(
    term: Term, joined: str, offsets: Sequence[int], tokens: Sequence[Token], window: Span
) -> list[Span]:
    """Return where a term begins in a window of `joined`."""
    pattern, size, spans = _build_pattern(term), len(term.tokens), []
    offset = joined.find(pattern, window[0])
    while 0 <= offset < window[1]:
        number = bisect.bisect_left(offsets, offset)
        last = number + size - 1
        end = tokens[last].end
        if tokens[last].is_gram and len(term.tokens[-1]) == 2 and last + 1 < len(tokens):
            end = tokens[last + 1].end  # a pair: the token of its second character follows
        spans.append((tokens[number].start, end))
        offset = joined.find(pattern, offset + 1)
    return spans


def _merge(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def make_snippet(text: str, spans: Sequence[Span]) -> list[Segment]:
    """Return the part of the text around the first match, split into plain and matching text."""
    first = spans[0][0] if spans else 0
    start = max(0, first - SNIPPET_CHARS // 4)
    if start > 0:
        space = text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    start, end = find_break(text, start), find_break(text, min(len(text), start + SNIPPET_CHARS))
    segments = [Segment("…")] if start > 0 else []
    position = start
    for begin, stop in spans:
        if begin >= end:
            break
        stop = min(stop, end)
        if begin > position:
            segments.append(Segment(text[position:begin]))
        segments.append(Segment(text[begin:stop], hit=True))
        position = stop
    if position < end:
        segments.append(Segment(text[position:end]))
    if end < len(text):
        segments.append(Segment("…"))
    return segments
