"""Makes the script of a failing seed shorter, as long as it fails in the same way.

First it removes all actions of a name, then ever smaller ranges. The seed stays the same, so
everything else is drawn as before. A script without some actions is another run: it need not fail,
even if the removed actions have nothing to do with the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tests.chaos.simulation import Action
from tests.simulation.run import Options, Result, fork_seed

RUNS_MAX = 80
_KEPT = ("quiesce",)


def get_rules(result: Result) -> set[str]:
    """Return the violated rules, such as ``P4``; ``failed`` for any other failure."""
    rules = {line.partition(":")[0] for line in result.problem.splitlines() if ": " in line}
    # A script without some actions may prove nothing, which is no failure.
    known = {rule for rule in rules if rule.isupper() or rule[1:].isdigit()} - {"VOID"}
    if not known and "VOID" in rules:
        return set()
    return known or ({"failed"} if result.problem else set())


def shrink(seed: int, options: Options, report: Callable[[str], None]) -> Result:
    """Return the result of the shortest script found that violates one of the same rules."""
    search = _Search(seed, options, report)
    for name in sorted({action.name for action in search.best.script} - set(_KEPT)):
        search.try_script([action for action in search.best.script if action.name != name])
    size = max(1, len(search.best.script) // 2)
    while size:
        is_shorter, start = False, 0
        while start < len(search.best.script):
            if search.try_script(remove(search.best.script, start, size)):
                is_shorter = True
            else:
                start += size
        size = size if is_shorter and size == 1 else size // 2
    return search.best


class _Search:
    """The shortest script so far, and the number of runs."""

    def __init__(self, seed: int, options: Options, report: Callable[[str], None]) -> None:
        self._seed = seed
        self._options = options
        self._report = report
        self.best = fork_seed(seed, options)
        self._wanted, self._runs = get_rules(self.best), 1

    def try_script(self, script: Sequence[Action]) -> bool:
        """Run a script; keep it and return True if it is shorter and violates one of the rules."""
        if len(script) == len(self.best.script) or not self._wanted or self._runs >= RUNS_MAX:
            return False
        options = msgspec.structs.replace(self._options, script=tuple(script))
        candidate = fork_seed(self._seed, options)
        self._runs += 1
        if not get_rules(candidate) & self._wanted:
            return False
        self.best = candidate
        self._report(f"{len(script)} actions after {self._runs} runs")
        return True


def remove(script: Sequence[Action], start: int, size: int) -> list[Action]:
    """Return a script without some actions; the end of the run is kept."""
    end = start + size
    return [
        action for at, action in enumerate(script) if not start <= at < end or action.name in _KEPT
    ]
