"""docs/api.md has every public name and its signature.

`python -m tests.docs.test_api` writes its listing anew.
"""

from __future__ import annotations

import inspect
import re
from enum import Enum
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

from fastplan.cache.stores import Store
from tests.docs.blocks import DOCS

PAGE = DOCS / "api.md"
IMPORT = re.compile(r"^ *from (fastplan[\w.]*) import ([\w, ]+)", re.M)
MODULES = ("fastplan", "fastplan.bundle", "fastplan.ett", "fastplan.cache.stores")
# By the page that shows how they are used.
NAMES = {
    "replace-the-planner.md": (
        "fastplan.EmbeddingShardingPlanner",
        "fastplan.patch",
        "fastplan.ModelsDiffer",
    ),
    "initialisation.md": ("fastplan.PatchRefused",),
    "optimize.md": (
        "fastplan.Objectives",
        "fastplan.RulesBroken",
        "fastplan.core.optimize.check_bound",
    ),
    "custom-cost.md": (
        "fastplan.shard_cost",
        "fastplan.plan_objective",
        "fastplan.cost_estimators",
        "fastplan.CostEstimator",
        "fastplan.ObjectiveModel",
        "fastplan.ShardingType",
        "fastplan.Kernel",
        "fastplan.CostError",
    ),
    "cache.md": (
        "fastplan.PlanCache",
        "fastplan.explain_miss",
        "fastplan.save_plan",
        "fastplan.load_plan",
        "fastplan.StoredPlanLoader",
        "fastplan.PlanFileError",
        "fastplan.PlanMismatch",
        "fastplan.StoreError",
        "fastplan.bridge.protocol_cache.ProtocolPlanCache",
        "fastplan.cache.stores.open_store",
        "fastplan.cache.stores.default_directory",
        "fastplan.cache.stores.Store",
        "fastplan.cache.stores.Stored",
        "fastplan.cache.stores.DirectoryStore",
        "fastplan.cache.stores.RemoteStore",
        "fastplan.cache.stores.MemoryStore",
        "fastplan.cache.stores.GuardedStore",
    ),
    "replan.md": ("fastplan.ReplanPolicy", "fastplan.reshard", "fastplan.reshard_arguments"),
    "bundle.md": (
        "fastplan.bundle.start",
        "fastplan.bundle.Start",
        "fastplan.bundle.open_bundle",
        "fastplan.bundle.parse_bundle",
        "fastplan.bundle.Bundle",
        "fastplan.bundle.StoredPlan",
        "fastplan.bundle.Loaded",
        "fastplan.bundle.BadBundle",
        "fastplan.bundle.BundleMismatch",
        "fastplan.bundle.NotTrusted",
    ),
    "ett.md": (
        "fastplan.ett.install",
        "fastplan.ett.uninstall",
        "fastplan.ett.start",
        "fastplan.ett.stop",
        "fastplan.ett.step",
        "fastplan.ett.phase",
        "fastplan.ett.checkpoint",
        "fastplan.ett.failure",
    ),
    "spec.md": (
        "fastplan.export_spec",
        "fastplan.CannotExport",
        "fastplan.spec.read.read_spec",
        "fastplan.spec.lower.lower",
        "fastplan.offline.plan.plan_job",
        "fastplan.plans.file.write_plan",
    ),
    "hardware.md": (
        "fastplan.spec.hardware.find_hardware",
        "fastplan.spec.hardware.topology_arguments",
    ),
    "precompute.md": (
        "fastplan.offline.sweep_file.read_sweep",
        "fastplan.offline.sweep_run.run_sweep",
        "fastplan.offline.queries.smallest_cluster",
    ),
    "measure.md": ("fastplan.measure.run.measure",),
}
LISTED = [name for names in NAMES.values() for name in names]


class Plain(str):
    """An annotation that is shown as it was written."""

    def __repr__(self) -> str:
        return str(self)


def found(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(import_module(module), own)


def plain(annotation: Any) -> Any:
    text = getattr(annotation, "__forward_arg__", annotation)
    return Plain(text) if isinstance(text, str) else text


def shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and repr(default).startswith("<"):
        default = Plain("...")
    return parameter.replace(annotation=plain(parameter.annotation), default=default)


def signature(name: str) -> str:
    thing = found(name)
    if isinstance(thing, type) and issubclass(thing, (BaseException, Enum)):
        return f"class {name}({thing.__base__.__name__})"
    if getattr(thing, "_is_protocol", False):
        return f"class {name}(Protocol)"
    own = inspect.signature(thing)
    parameters = [shown(parameter) for parameter in own.parameters.values()]
    returned = own.empty if isinstance(thing, type) else plain(own.return_annotation)
    return name + str(own.replace(parameters=parameters, return_annotation=returned))


def sentence(name: str) -> str:
    """The first of its docstring."""
    paragraph = (inspect.getdoc(found(name)) or "").split("\n\n")[0]
    return re.split(r"(?<=\.) ", " ".join(paragraph.split()))[0]


def title(page: str) -> str:
    return (DOCS / page).read_text().splitlines()[0].removeprefix("# ")


def listing() -> str:
    lines = []
    for page, names in NAMES.items():
        lines += ["", f"## [{title(page)}]({page})"]
        lines += [f"- `{signature(name)}`: {sentence(name)}" for name in names]
    return "\n".join(lines) + "\n"


def before() -> str:
    """What stands before the listing."""
    text = PAGE.read_text()
    return text[: text.index("\n## [")]


def is_module(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def used_in_docs() -> set[str]:
    """Functions and classes that other pages import or name by their whole path."""
    names = set()
    for page in DOCS.glob("*.md"):
        text = page.read_text() if page != PAGE else ""
        for module, imported in re.findall(
            r"^ *from (fastplan[\w.]*) import ([\w, ]+)", text, re.M
        ):
            names |= {f"{module}.{own.strip()}" for own in imported.split(",")}
        names |= set(re.findall(r"`@?(fastplan(?:\.\w+)+)", text))
    names = {name for name in names if not is_module(name)}
    return {name for name in names if name.rpartition(".")[0] not in LISTED}  # no members


def test_every_public_name_is_listed_once():
    public = {f"{module}.{own}" for module in MODULES for own in import_module(module).__all__}
    # StoreError is listed by its shorter name.
    public -= {"fastplan.__version__", "fastplan.cache.stores.StoreError"}
    assert public - set(LISTED) == set()
    assert used_in_docs() - set(LISTED) == set()
    assert len(set(LISTED)) == len(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_every_public_name_has_a_docstring_and_so_have_its_methods(name):
    thing = found(name)
    # That of a dataclass without one is its signature.
    assert thing.__doc__ and not thing.__doc__.startswith(f"{thing.__name__}(")
    methods = vars(thing).items() if isinstance(thing, type) else ()
    for method, value in methods:
        if method.startswith("_") or not isinstance(value, (FunctionType, property)):
            continue
        # A store's methods do what Store says.
        assert value.__doc__ or hasattr(Store, method), method


def test_the_page_has_the_signatures_as_they_are():
    wrong = "run python -m tests.docs.test_api"
    assert PAGE.read_text() == before() + listing(), wrong


if __name__ == "__main__":
    PAGE.write_text(before() + listing())
