"""fastplan repeats TorchRec's recorded results on models too large to plan twice in a test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .subject import SELF_CHECK, TORCHREC_VERSION

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDS = sorted(
    path
    for path in GOLDEN.glob("*.json")
    if path.stem.rpartition("-")[2].startswith(f"{TORCHREC_VERSION[0]}.{TORCHREC_VERSION[1]}.")
)


def replan(tables: int, ranks: int) -> dict:
    """Plan the recorded case in a process that has the record's hash seed."""
    script = [GOLDEN / "record.py", "--tables", str(tables), "--ranks", str(ranks)]
    planner = "torchrec" if SELF_CHECK else "fastplan"
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    done = subprocess.run(
        [sys.executable, *script, "--planner", planner],
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_this_torchrec_version_has_a_record() -> None:
    assert RECORDS


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_plan_ranks_rating_counts_and_search_space_equal_the_record(path: Path) -> None:
    expected = json.loads(path.read_text())
    actual = replan(expected["tables"], expected["ranks"])
    if not SELF_CHECK:
        # The oldest versions estimate by other formulas, in their own code.
        assert actual.pop("engine") == ("native" if TORCHREC_VERSION >= (1, 7) else "mixed")
    assert actual.pop("plan") == expected.pop("plan")
    assert actual == expected
