"""Load scripts that are read and checked before the load starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatserver.loadtest.script_loader import SCRIPT_BYTES_MAX, ScriptError, load_script

USER = "async def user(user):\n    pass\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(text, "utf-8")
    return path


def test_script_declares_its_chats_users_and_duration(tmp_path: Path) -> None:
    """The first paragraph of the docstring describes the scenario in the report."""
    text = '"""Teams\nchat.\n\nMore."""\nCHATS = {"team": 8}\nUSERS = 16\nDURATION_S = 5\n' + USER

    script = load_script(write(tmp_path, text))

    assert script.about == "Teams chat."
    assert script.file.chats == {"team": 8}
    assert (script.users, script.duration_s) == (16, 5.0)


def test_script_with_only_a_function_has_pairs(tmp_path: Path) -> None:
    """Nothing but the function is required."""
    script = load_script(write(tmp_path, USER))

    assert script.file.chats == {"direct": 2}
    assert (script.users, script.duration_s) == (50, 30.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "mine.py: no function `user`; add `async def user"),
        ("def user(user):\n    pass\n", "mine.py:1: `user` must be a function: `async def"),
        ("async def user():\n    pass\n", "mine.py:1: `user` must have one parameter"),
        ("x = 1\nasync def user(user)\n    pass\n", "mine.py:2: expected ':'"),
        ("x = 1\nimport not_installed\n", "mine.py:2: ModuleNotFoundError: No module"),
        (USER + "CHATS = {}\n", "mine.py:3: CHATS must map 1 to 10 names"),
        (USER + "CHATS = {'A b': 3}\n", "mine.py:3: CHATS: name 'A b' must have"),
        (USER + "CHATS = {'a': 1}\n", "mine.py:3: CHATS: a must have 2 to 100,000 members, not 1"),
        (USER + "CHATS = {'a': 2, 'b': 2}\n", "mine.py:3: CHATS: only one chat can have 2"),
        (USER + "\nUSERS = 'many'\n", "mine.py:4: USERS must be 2 to 1,000,000, not 'many'"),
        (USER + "\nUSERS = 20.5\n", "mine.py:4: USERS must be 2 to 1,000,000, not 20.5"),
        (USER + "\nimport sys\nsys.exit(3)\n", "mine.py:5: SystemExit: 3"),
        (USER + "DURATION_S = 9999\n", "mine.py:3: DURATION_S must be 0.5 to 2,700, not 9999"),
        ("#" * (SCRIPT_BYTES_MAX + 1), "mine.py: larger than 256,000 bytes"),
    ],
)
def test_invalid_script_is_refused_with_file_line_and_remedy(
    tmp_path: Path, text: str, message: str
) -> None:
    """The author of a script finds the place without a traceback."""
    path = write(tmp_path, text)

    with pytest.raises(ScriptError) as refused:
        load_script(path)

    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_script_that_was_changed_since_the_start_is_refused(tmp_path: Path) -> None:
    """All processes run the same script."""
    path = write(tmp_path, USER)
    digest = load_script(path).file.sha256
    write(tmp_path, USER + "# changed\n")

    with pytest.raises(ScriptError, match="the file was changed"):
        load_script(path, digest)


def test_missing_script_is_refused(tmp_path: Path) -> None:
    """The error is that of the system."""
    with pytest.raises(ScriptError, match="No such file"):
        load_script(tmp_path / "none.py")
