"""Modules of TorchRec that are imported while a patch is active."""

import importlib
import inspect
import sys
import threading
from importlib.util import find_spec

import pytest
from torchrec.distributed import planner as planner_package
from torchrec.distributed.planner import planners

import fastplan
from fastplan.torchrec.patch.late_imports import LateImports
from tests.interpreter import python

STOCK = planners.EmbeddingShardingPlanner
OURS = fastplan.EmbeddingShardingPlanner
SOURCE = "from torchrec.distributed.planner.planners import EmbeddingShardingPlanner\n"
NAME = "torchrec.distributed.planner.late"

needs_api = pytest.mark.skipif(
    find_spec("torchrec.distributed.planner.provider") is None,
    reason="this TorchRec has no torchrec.distributed.planner.provider",
)


@pytest.fixture
def late(tmp_path, monkeypatch):
    """Imports a module of TorchRec that does not exist before."""

    def imported(source: str = SOURCE):
        (tmp_path / "late.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(NAME)

    monkeypatch.setattr(planner_package, "__path__", [*planner_package.__path__, str(tmp_path)])
    yield imported
    sys.modules.pop(NAME, None)
    vars(planner_package).pop("late", None)


def hooks() -> list[LateImports]:
    return [finder for finder in sys.meta_path if isinstance(finder, LateImports)]


def test_a_module_imported_under_a_patch_uses_fastplans_planner_until_it_is_undone(late):
    with fastplan.patch():
        module = late()
        assert module.EmbeddingShardingPlanner is OURS
        assert planners.EmbeddingShardingPlanner is STOCK
    assert module.EmbeddingShardingPlanner is STOCK


def test_a_module_imported_after_the_patch_was_undone_is_stock(late):
    with fastplan.patch():
        pass
    assert late().EmbeddingShardingPlanner is STOCK


def test_the_hook_goes_with_the_last_patch(late):
    before = list(sys.meta_path)
    first, second = fastplan.patch(), fastplan.patch()
    first.undo()
    assert len(hooks()) == 1
    module = late()
    second.undo()
    assert sys.meta_path == before
    assert module.EmbeddingShardingPlanner is STOCK


def test_a_reloaded_module_is_covered(late):
    module = late()
    with fastplan.patch():
        assert importlib.reload(module).EmbeddingShardingPlanner is OURS
    assert module.EmbeddingShardingPlanner is STOCK


def test_spec_loader_and_source_of_the_module_are_the_usual_ones(late):
    with fastplan.patch():
        module = late()
    assert vars(module.__loader__) == {"name": NAME, "path": module.__file__}
    assert module.__spec__.loader is module.__loader__
    assert inspect.getsource(module) == SOURCE


def test_a_module_that_fails_raises_its_own_error_and_may_be_imported_again(late):
    with fastplan.patch():
        with pytest.raises(ZeroDivisionError):
            late(SOURCE + "1 / 0\n")
        assert late(SOURCE + "# longer than before\n").EmbeddingShardingPlanner is OURS


def test_a_module_that_is_missing_is_the_usual_error():
    with fastplan.patch(), pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("torchrec.no_such_module")


def test_a_patch_that_ends_while_a_module_is_imported_leaves_the_module_stock(late, monkeypatch):
    patch = fastplan.patch()
    monkeypatch.setattr(planner_package, "undo", patch.undo, raising=False)
    source = "from torchrec.distributed.planner import EmbeddingShardingPlanner as kept, undo\n"
    source += "undo()\nEmbeddingShardingPlanner = kept\n"
    module = late(source)
    assert module.kept is OURS  # it was imported under the patch
    assert module.EmbeddingShardingPlanner is STOCK


def test_imports_in_threads_wait_for_no_other(late):
    done = threading.Event()

    def work():
        with fastplan.patch():
            late()
        done.set()

    with fastplan.patch():
        threading.Thread(target=work).start()
        assert done.wait(60)


class AnotherHook:
    """Asks all other finders, and wraps the loader, as the recorder of fastplan.ett does."""

    def __init__(self):
        self.seen = []
        self._busy = False

    def find_spec(self, name, path=None, target=None):
        if self._busy or name != NAME:
            return None
        self._busy = True
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)))
        self._busy = False
        execute = spec.loader.exec_module

        def exec_module(module):
            del spec.loader.exec_module
            execute(module)
            self.seen.append(module)

        spec.loader.exec_module = exec_module
        return spec


@pytest.mark.parametrize("place", [0, 1], ids=["before", "behind"])
def test_another_hook_works_beside(late, place):
    other = AnotherHook()
    with fastplan.patch():
        sys.meta_path.insert(place, other)
        try:
            module = late()
        finally:
            sys.meta_path.remove(other)
        assert module.EmbeddingShardingPlanner is OURS
    assert other.seen == [module]
    assert "exec_module" not in vars(module.__loader__)


IMPORT = "from torchrec.distributed.planner import executor, provider, planners\n"
PATCH = "patch = fastplan.patch()\n"
RECORD = "import fastplan.ett; assert fastplan.ett.install({directory!r})\n"


@needs_api
@pytest.mark.parametrize(
    "steps",
    [[PATCH, IMPORT], [IMPORT, PATCH], [RECORD, PATCH, IMPORT], [PATCH, RECORD, IMPORT]],
    ids=["patch first", "import first", "recorded", "recorded later"],
)
def test_the_planner_api_plans_with_it_in_every_order(steps, tmp_path):
    code = "import fastplan\n" + "".join(steps).format(directory=str(tmp_path))
    code += """
from torchrec.distributed.planner.dry_run import cli
def kinds():
    seen = []
    stock = planners.EmbeddingShardingPlanner
    def spy(self, *args, plan=stock.plan):
        if not seen:  # a replaced plan() takes effect, also in fastplan's planner
            seen.append("torchrec")
        return plan(self, *args)
    def ours(self, *args, plan=fastplan.EmbeddingShardingPlanner.plan):
        seen.append("fastplan")
        return plan(self, *args)
    kept = stock.plan, fastplan.EmbeddingShardingPlanner.plan
    stock.plan, fastplan.EmbeddingShardingPlanner.plan = spy, ours
    result = cli.run(cli.build_arg_parser().parse_args(["--sku-list", "A", "--world-size", "2"]))
    stock.plan, fastplan.EmbeddingShardingPlanner.plan = kept
    assert result["A"].success, result["A"].planner_failure_reason
    return seen
patched = provider.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner, kinds()
stock = planners.EmbeddingShardingPlanner.__module__
patch.undo()
print(*patched, stock, provider.EmbeddingShardingPlanner.__module__, kinds())
"""
    stock = "torchrec.distributed.planner.planners"
    printed = python(code).splitlines()[-1]
    assert printed == f"True ['fastplan'] {stock} {stock} ['torchrec']"
