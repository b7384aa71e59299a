"""Coverage of a run: what it merges, and the lines of Lua bytecode."""

from __future__ import annotations

import lupa.lua51 as lupa
import pytest

from chatserver.hot.redis.scripts import combine, load_script
from tests.simulation.coverage import Coverage, list_failpoints, list_lines, split_combined
from tests.simulation.test_simulation import START_S, run_simulation

SOURCE = b"""local function double(n)
  return 2 * n
end

if KEYS then
  -- a comment
  return double(1)
else
  return 0
end
"""


def test_lines_with_code_are_read_from_bytecode() -> None:
    lua = lupa.LuaRuntime(encoding=None)
    dump = lua.eval(b"function(source) return string.dump(loadstring(source)) end")

    assert {2, 5, 7, 9} <= list_lines(bytes(dump(SOURCE)))
    assert not {4, 6} & list_lines(bytes(dump(SOURCE)))


def test_lines_of_combined_scripts_belong_to_their_files() -> None:
    first, second = load_script("load_user"), load_script("load_hidden")
    source = combine(first, second)
    text = "return changed"
    line = source.splitlines().index(text) + 1

    (found,) = [each for each in split_combined(source, {line}) if each[1]]

    assert found == ("load_hidden", {second.source.splitlines().index(text) + 1})


def test_coverage_of_runs_is_added() -> None:
    total = Coverage({"a": 1}, {}, {"script": {1}})

    total.add(Coverage({"a": 2, "b": 1}, {"conflict": 1}, {"script": {2}}))

    assert total == Coverage({"a": 3, "b": 1}, {"conflict": 1}, {"script": {1, 2}})
    assert "persist.before_write" in list_failpoints()


@pytest.mark.timeout(START_S + 60)
def test_run_reports_what_never_happened() -> None:
    result = run_simulation("--seeds", "1", "--steps", "20", "--faults", "0", "--coverage")

    assert result.returncode == 0, result.stdout + result.stderr
    assert "persist.after_checkpoint" in result.stdout
    assert "error codes that never occurred: bad_request" in result.stdout
    assert "commit_messages.lua:" in result.stdout
    assert "start_response" in result.stdout.partition("Lua scripts that never ran: ")[2]
