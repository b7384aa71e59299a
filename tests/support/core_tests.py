"""Tests of the core in a copy without a feature: `python -m tests.support.core_tests FOLDER...`.

Imports all modules first, because none of them may need the feature.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from pathlib import Path

from tests.support import pure_python  # noqa: F401  # before chatserver

# isort: split
import pytest

import chatserver
import workers

if __name__ == "__main__":
    assert Path(chatserver.__file__).is_relative_to(os.environ["PYTHONPATH"])
    for package in (chatserver, workers):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if "search.engines.lance" not in found.name:  # imports LanceDB, which takes two seconds
                importlib.import_module(found.name)
    sys.exit(pytest.main(["-q", "-n0", *sys.argv[1:]]))
