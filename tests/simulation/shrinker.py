"""Makes the script of a failing seed shorter, as long as it fails in the same way.

The seed stays the same, so everything else is drawn as before. A script without some actions is
another run: it need not fail, even if the removed actions have nothing to do with the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tests.chaos.simulation import Action
from tests.simulation.run import Options, Result, fork_seed

RUNS_MAX = 120
_KEPT = ("quiesce",)


def get_rules(result: Result) -> set[str]:
    """Return the violated rules, such as ``P4``; ``failed`` for any other failure."""
    rules = {line.partition(":")[0] for line in result.problem.splitlines() if ": " in line}
    known = {rule for rule in rules if rule.isupper() or rule[1:].isdigit()}
    return known or ({"failed"} if result.problem else set())


def shrink(seed: int, options: Options, report: Callable[[str], None]) -> Result:
    """Return the result of the shortest script found that violates one of the same rules."""
    best = fork_seed(seed, options)
    wanted, runs = get_rules(best), 1
    size = max(1, len(best.script) // 2)
    while size and wanted and runs < RUNS_MAX:
        is_shorter, start = False, 0
        while start < len(best.script) and runs < RUNS_MAX:
            script = remove(best.script, start, size)
            if len(script) == len(best.script):
                start += size
                continue
            candidate = fork_seed(seed, msgspec.structs.replace(options, script=tuple(script)))
            runs += 1
            if get_rules(candidate) & wanted:
                best, is_shorter = candidate, True
                report(f"{len(script)} actions after {runs} runs")
            else:
                start += size
        size = size if is_shorter and size == 1 else size // 2
    return best


def remove(script: Sequence[Action], start: int, size: int) -> list[Action]:
    """Return a script without some actions; the end of the run is kept."""
    end = start + size
    return [
        action for at, action in enumerate(script) if not start <= at < end or action.name in _KEPT
    ]
