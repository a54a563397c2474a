"""A TorchRec that nobody knows yet: native if it agrees, TorchRec's own code where it does not.

Copies of the installed TorchRec are changed by hand. Whatever was changed, the plan is TorchRec's.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastplan
from fastplan.torchrec.support import support
from tests.torchrec.variants import Planned, make_copy, plan_with, renamed, replaced

pytestmark = pytest.mark.skipif(
    support.torchrec_name() != "1.9.2", reason="the copies are of the newest TorchRec"
)

# The class that fastplan's planner extends, and what users' code needs to plan at all.
NEEDED = {"EmbeddingShardingPlanner", "ShardingPlan", "storage_reservations"}
NEEDED |= {"EmbeddingBagCollection", "EmbeddingBagCollectionSharder", "EmbeddingBagConfig"}
NEEDED |= {"ParameterConstraints", "Topology"}
NEEDED |= {"Shard"}  # torch has a class of this name, too, which other files of TorchRec import

HARMLESS = {
    "a comment": replaced("planners.py", "import copy\n", "# Tomorrow's planner.\nimport copy\n"),
    "a new function": replaced(
        "utils.py", "def prod(", "def product_of(numbers):\n    return prod(numbers)\n\n\ndef prod("
    ),
    "another default": replaced("stats.py", "MIN_WIDTH = 90", "MIN_WIDTH = 91"),
    "a renamed helper": replaced(
        "partitioners.py", "_sort_devices_by_perf", "_sort_devices_by_their_perf"
    ),
}

HARMFUL = {
    "a constant of lookups": replaced(
        "constants.py", "HALF_BLOCK_PENALTY: float = 1.15", "HALF_BLOCK_PENALTY: float = 1.3"
    ),
    "a constant of copies": replaced(
        "constants.py", "FACTOR: float = 2.455", "FACTOR: float = 3.455"
    ),
    "another rating": replaced("perf_models.py", "return max(perfs)", "return sum(perfs)"),
    "another order of shards": replaced(
        "partitioners.py",
        "for attr in sort_by_attributes],\n        reverse=True,",
        "for attr in sort_by_attributes],\n        reverse=False,",
    ),
    "another greedy order": replaced(
        "proposers.py", "sharding_options.sort(", "sharding_options.sort(reverse=True, "
    ),
    "another plan object": replaced(
        "planners.py", "enforce_hbm=sharding_option.enforce_hbm", "enforce_hbm=True"
    ),
    "larger storage": replaced(
        "shard_estimators.py",
        "math.ceil(storage * prod(size) / prod(shape))",
        "math.ceil(3 * storage * prod(size) / prod(shape))",
    ),
}


def plans(copies: dict[str, Any], folder: Path) -> dict[str, Planned]:
    made = {
        name: make_copy(folder / str(number), edits)
        for number, (name, edits) in enumerate(copies.items())
    }
    return plan_with(made, folder / "cache")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Planned]:
    return plans({**HARMLESS, **HARMFUL}, tmp_path_factory.mktemp("changed"))


@pytest.mark.parametrize("name", [*HARMLESS, *HARMFUL])
def test_plan_is_torchrecs(changed: dict[str, Planned], name: str) -> None:
    assert changed[name].error == ""
    assert changed[name].same


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_change_stays_native_after_the_proof(
    changed: dict[str, Planned], name: str
) -> None:
    assert changed[name].engine == "native", changed[name].reason
    assert "plans of a self-check agreed" in changed[name].reason


@pytest.mark.parametrize("name", HARMFUL)
def test_harmful_change_falls_back_with_the_difference(
    changed: dict[str, Planned], name: str
) -> None:
    assert changed[name].engine in ("mixed", "torchrec")
    assert "TorchRec has" in changed[name].reason or "only TorchRec" in changed[name].reason


def relied_on() -> list[str]:
    """Returns the names that the package takes from TorchRec, except those that all need."""
    names: set[str] = set()
    for file in Path(fastplan.__path__[0], "torchrec").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchrec."):
                module = import_module(node.module or "")
                names.update(each.name for each in node.names if is_defined_in(module, each.name))
    return sorted(names - NEEDED)


def is_defined_in(module: ModuleType, name: str) -> bool:
    """Whether TorchRec defines the name: a copy of it can't rename names of torch and FBGEMM."""
    value = getattr(module, name, None)
    if value is None or isinstance(value, ModuleType):
        return False
    return str(getattr(value, "__module__", "torchrec")).startswith("torchrec")


def check_renamed(names: list[str], folder: Path) -> None:
    copies = {name: renamed(name) for name in names}
    found = plans({name: edits for name, edits in copies.items() if edits}, folder)
    wrong = {name: each for name, each in found.items() if each.error or not each.same}
    assert wrong == {}
    assert {name for name, each in found.items() if each.engine is None} == set()


def test_a_missing_name_never_raises(tmp_path: Path) -> None:
    names = relied_on()
    assert len(names) > 40
    check_renamed(names[:: len(names) // 6], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("share", range(8))
def test_no_missing_name_ever_raises(tmp_path: Path, share: int) -> None:
    check_renamed(relied_on()[share::8], tmp_path)
