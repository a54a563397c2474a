"""Importing fastplan is cheap."""

import pytest

from tests.interpreter import python


def test_importing_fastplan_loads_no_other_package():
    code = "import fastplan, sys; print([m for m in HEAVY if m in sys.modules])"
    heavy = ["torch", "torchrec", "numba", "numpy", "fbgemm_gpu", "click", "jinja2", "msgspec"]
    heavy += ["platformdirs", "psutil", "rich", "yaml", "fsspec"]
    assert python(code.replace("HEAVY", repr(heavy))) == "[]"


def test_the_core_needs_no_torch():
    code = "import fastplan.engine.solve, sys; print('torch' in sys.modules)"
    assert python(code) == "False"


def test_a_plan_from_scratch_loads_nothing_that_follows_plans():
    code = "import fastplan.planning.specs, fastplan.report.plan_text, sys; print(LOADED)"
    others = "('replan_session', 'replan', 'difference', 'held')"
    loaded = f"[m for m in {others} if f'fastplan.planning.{{m}}' in sys.modules]"
    assert python(code.replace("LOADED", loaded)) == "[]"


def test_a_default_plan_loads_no_numba():
    code = """
import sys
from tests.cli.models import module
from fastplan import EmbeddingShardingPlanner
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Topology
topology = Topology(world_size=2, compute_device="cuda")
planner = EmbeddingShardingPlanner(topology=topology, stats=[])
planner.plan(module(), [EmbeddingBagCollectionSharder()])
print(planner.last_run.engine, 'numba' in sys.modules)
"""
    assert python(code) == "native False"


def test_what_is_not_installed_is_named_with_the_way_out():
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Missing())
import fastplan
try:
    fastplan.EmbeddingShardingPlanner
except ModuleNotFoundError as error:
    print(error.name, "|", error)
"""
    assert python(code) == (
        "torch | fastplan.EmbeddingShardingPlanner needs torch, which is not installed; "
        "`fastplan doctor` shows how to install it"
    )


@pytest.mark.parametrize("value", ["typo", "true"])
def test_a_patch_that_nobody_knows_is_an_error_that_names_the_variable(value):
    code = """
try:
    import fastplan
except ValueError as error:
    print(error)
"""
    told = python(code, FASTPLAN_PATCH=value)
    assert told == f"FASTPLAN_PATCH must be 1, init or 0, not {value!r}"


def test_unknown_names_are_attribute_errors():
    import fastplan

    with pytest.raises(AttributeError, match="no_such_name"):
        _ = fastplan.no_such_name


def test_names_are_listed_before_they_are_loaded():
    assert "EmbeddingShardingPlanner" in python("import fastplan; print(dir(fastplan))")


def test_the_command_is_never_patched():
    code = "import sys; sys.argv[0] = '/fastplan'; import fastplan; print('torch' in sys.modules)"
    assert python(code, FASTPLAN_PATCH="1") == "False"


def test_hooks_are_installed_with_the_import_where_recording_is_asked_for(tmp_path):
    code = (
        "import fastplan, sys; print([n in sys.modules for n in ('fastplan.ett.hooks', 'torch')])"
    )
    assert python(code, FASTPLAN_ETT=str(tmp_path)) == "[True, False]"
    assert python(code) == "[False, False]"
