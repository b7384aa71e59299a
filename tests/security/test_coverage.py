"""docs/security.md names an existing test, or a reason, for each known vulnerability and rule.

The row names are repeated here, so that the document cannot lose a row.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text("utf-8")
OF_SECTION = {
    "WS": "origin,authentication,authorization,size and rate,UTF-8,cookies,encryption,log,"
    "revocation",
    "3": "NaN,surrogate,nesting,duplicates,2^70,NUL,UTF-8,text",
    "4": "claims,lifetime,keys,header,size,first frame,ticket,query,cookies,expiry,revocation,"
    "resume,refresh",
    "5": "markup,policy,corpus,previews,upload,content,download,logs",
    "6": "head,frame,fragments,control,address,user,chats,members,pending,queue,page,search,depth,"
    "ids,compression",
    "7": "grammar,builders,sort keys,cursors,scripts,rights",
    "8": "lock,audit,images,bill,report,fuzz",
}
WANTED = [
    *(f"API{number}" for number in range(1, 11)),
    *map(str, range(1, 35)),
    *(f"{section} {name}" for section, names in OF_SECTION.items() for name in names.split(",")),
]
ROWS = re.findall(
    r"^\| (API\d+|\d+|(?:WS|\d) [^|]+?) \| [^|]+ \| (.+) \|$", TEXT, re.MULTILINE
)  # of three columns


def existing_tests() -> set[str]:
    """Return the names of all tests of the project."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"def (test_\w+)\(", path.read_text("utf-8")))
    return found


def test_every_required_row_is_present_once() -> None:
    """The document has all rows of this module, each once."""
    assert Counter(name for name, _ in ROWS) == Counter(WANTED)


@pytest.mark.parametrize(("row", "evidence"), ROWS, ids=[name for name, _ in ROWS])
def test_row_names_tests_or_a_reason(row: str, evidence: str) -> None:
    """The last column has only test names, or one sentence that explains why there are none."""
    names = re.findall(r"`(test_\w+)`", evidence)
    is_reason = evidence.startswith(("Does not apply: ", "Not ours")) and evidence.endswith(".")

    assert is_reason or (names and not re.sub(r"`test_\w+` ?", "", evidence)), row


def test_every_named_test_exists() -> None:
    """This covers names in tables and in the text."""
    named = set(re.findall(r"`(test_\w+)`", TEXT))

    assert len(named) > 150
    assert named - existing_tests() == set()


def test_section_8_every_dependency_is_locked_by_hash() -> None:
    """Every requirement in a lock file has a version and a hash."""
    locks = [ROOT / "requirements.lock", *(ROOT / "deploy" / "dev").rglob("*.lock")]
    locks += (ROOT / "chatserver" / "dev").glob("*.lock")
    for path in locks:
        lines = path.read_text("utf-8").replace("\\\n", " ").splitlines()
        pinned = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        assert pinned and all("==" in line and "--hash=sha256:" in line for line in pinned), path
    packages = json.loads((ROOT / "deploy" / "dev" / "package-lock.json").read_text("utf-8"))
    for name, package in packages["packages"].items():
        assert not name or package["integrity"].startswith("sha512-"), name
    setup = (ROOT / "deploy" / "dev" / "setup.sh").read_text("utf-8")
    assert "--require-hashes" in setup and "npm ci" in setup


def test_section_8_security_policy_has_contact_and_response_times() -> None:
    """SECURITY.md explains where to report a vulnerability and when to expect a response."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")

    assert "Report a vulnerability" in text
    assert "within 14 days" in text and "within 30 days" in text
