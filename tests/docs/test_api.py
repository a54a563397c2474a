"""docs/api.md has every public name and its signature.

`python -m tests.docs.test_api` writes its listing again.
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
from tests.docs.annotations import Annotation, read_annotation
from tests.docs.blocks import DOCS

PAGE = DOCS / "api.md"
MODULES = (
    *("fastplan", "fastplan.bundle", "fastplan.checkpoint", "fastplan.ett"),
    "fastplan.cache.stores",
)
# By the page that shows how they are used. Those with `class` before them are made by fastplan, and
# listed without their arguments.
NAMES = {
    "replace-the-planner.md": (
        "fastplan.EmbeddingShardingPlanner",
        "class fastplan.planning.run.Run",
        "class fastplan.planning.shadow.Shadow",
        "class fastplan.planning.shadow.Verdict",
        "class fastplan.planning.shadow.Difference",
        "fastplan.patch",
        "class fastplan.torchrec.patch.patch.Patch",
        "fastplan.ModelsDiffer",
        "fastplan.PlannerExecutor",
        "fastplan.PlannerProvider",
        "fastplan.PlanReporter",
        "fastplan.torchrec.api.throughput.estimated_qps",
    ),
    "optimize.md": (
        "fastplan.Objectives",
        "fastplan.ConstraintError",
        "fastplan.Optimize",
        "fastplan.engine.optimize.check_bound",
        "class fastplan.engine.problem.Problem",
        "class fastplan.engine.certificate.Certificate",
    ),
    "hardware-costs.md": (
        "class fastplan.model.step.Step",
        "class fastplan.model.step.Phase",
    ),
    "custom-cost.md": (
        "fastplan.shard_cost",
        "class fastplan.costs.functions.ShardCost",
        "fastplan.plan_objective",
        "class fastplan.costs.functions.PlanObjective",
        "fastplan.cost_estimators",
        "fastplan.CostEstimator",
        "fastplan.ObjectiveModel",
        "fastplan.ShardingType",
        "fastplan.Kernel",
        "fastplan.CostError",
    ),
    "cache.md": (
        "fastplan.Cache",
        "class fastplan.cache.plan_cache.CacheReport",
        "fastplan.explain_miss",
        "class fastplan.cache.why_miss.MissExplanation",
        "fastplan.save_plan",
        "fastplan.load_plan",
        "fastplan.StoredPlanLoader",
        "fastplan.PlanFileError",
        "fastplan.PlanMismatch",
        "fastplan.StoreError",
        "fastplan.torchrec.loader.ProtocolPlanCache",
        "fastplan.cache.stores.open_store",
        "fastplan.cache.stores.default_directory",
        "fastplan.cache.stores.Store",
        "fastplan.cache.stores.Stored",
        "fastplan.cache.stores.DirectoryStore",
        "fastplan.cache.stores.RemoteStore",
        "fastplan.cache.stores.MemoryStore",
        "fastplan.cache.stores.GuardedStore",
    ),
    "replan.md": (
        "fastplan.Replan",
        "class fastplan.planning.replan.ReplanReport",
        "class fastplan.planning.moves.Moves",
        "fastplan.reshard",
        "fastplan.ReshardError",
        "class fastplan.torchrec.resharding.Resharding",
    ),
    "checkpoint.md": (
        "fastplan.checkpoint.save",
        "fastplan.checkpoint.load",
        "class fastplan.checkpoint.Loaded",
        "class fastplan.checkpoint.moves.Move",
        "fastplan.checkpoint.inspect",
        "class fastplan.checkpoint.contents.Contents",
        "class fastplan.checkpoint.contents.TableContents",
        "class fastplan.checkpoint.contents.StateContents",
        "fastplan.checkpoint.convert",
        "fastplan.checkpoint.CheckpointError",
    ),
    "bundle.md": (
        "fastplan.bundle.start",
        "fastplan.bundle.Start",
        "fastplan.bundle.open_bundle",
        "fastplan.bundle.parse_bundle",
        "class fastplan.bundle.Bundle",
        "class fastplan.bundle.StoredPlan",
        "class fastplan.bundle.LoadedCode",
        "fastplan.bundle.BundleError",
        "fastplan.bundle.BundleMismatch",
        "fastplan.bundle.UntrustedCode",
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
    "profile.md": (
        "fastplan.profile.run.profile_files",
        "fastplan.profile.run.profile_function",
        "fastplan.profile.run.Settings",
        "fastplan.profile.run.stored_summaries",
        "fastplan.profile.run.merge_summaries",
        "fastplan.profile.run.statistics_by_table",
        "fastplan.profile.sources.features_of",
        "fastplan.profile.sources.ProfileError",
        "class fastplan.profile.summary.Summary",
        "class fastplan.model.ids.IdStatistics",
        "class fastplan.model.ids.Curve",
        "fastplan.spec.ids.read_statistics",
        "fastplan.spec.ids.write_statistics",
        "fastplan.spec.read.with_statistics",
    ),
    "spec.md": (
        "fastplan.export_spec",
        "fastplan.ExportError",
        "fastplan.plan",
        "class fastplan.Result",
        "class fastplan.planning.search.SearchBackend",
        "fastplan.spec.read.read_spec",
        "class fastplan.spec.model.ModelSpec",
        "fastplan.spec.read.on_cluster",
        "fastplan.spec.lower.lower",
        "fastplan.model.references.CodeNotTrusted",
        "class fastplan.model.job.Job",
        "class fastplan.model.job.SpecJob",
        "fastplan.planning.plan.plan",
        "fastplan.plans.file.write_plan",
        "fastplan.plans.file.read_plan",
        "class fastplan.model.plan.Plan",
    ),
    "two-dimensional.md": (
        "fastplan.plan_2d",
        "class fastplan.torchrec.two_dimensional.Plan2D",
        "fastplan.Replicas",
        "class fastplan.planning.replicas.Replication",
        "class fastplan.planning.replicas.Candidate",
        "fastplan.replica_groups_of",
        "fastplan.model.replicas.ReplicaGroups",
        "fastplan.group_topology",
        "fastplan.check_2d_plan",
        "fastplan.check_replicas",
        "fastplan.ReplicaGroupsError",
        "fastplan.ReplicaPlanError",
    ),
    "hardware.md": (
        "fastplan.spec.hardware.find_hardware",
        "fastplan.spec.hardware.topology_arguments",
        "class fastplan.spec.hardware.Hardware",
    ),
    "precompute.md": (
        "fastplan.sweep.file.read_sweep",
        "fastplan.sweep.sweep.Sweep",
        "fastplan.sweep.run.run_sweep",
        "class fastplan.sweep.rows.SweepResult",
        "class fastplan.sweep.rows.Row",
        "fastplan.sweep.queries.smallest_cluster",
        "class fastplan.sweep.queries.Smallest",
    ),
    "measure.md": (
        "fastplan.measure.run.measure",
        "fastplan.measure.prepare.Subject",
        "fastplan.measure.settings.LaunchSettings",
        "fastplan.measure.settings.Settings",
        "fastplan.measure.scaling.MemoryLimit",
        "class fastplan.measure.failures.Failure",
        "fastplan.measure.results.read_runs",
        "class fastplan.measure.results.Runs",
        "fastplan.measure.agreement.agreement",
        "class fastplan.measure.agreement.Agreement",
        "fastplan.measure.calibrate.calibrate",
        "fastplan.measure.cases.sizes_of",
        "fastplan.measure.cases.Sizes",
        "class fastplan.measure.calibrate.Calibrated",
        "fastplan.measure.rerate.reestimate",
        "fastplan.measure.hosts.EmulatedHosts",
        "fastplan.measure.hosts.parse_rate",
        "fastplan.measure.hosts.HostsUnavailable",
        "fastplan.measure.settings.MeasureError",
        "fastplan.report.estimates.EstimateUnavailable",
    ),
}
SHOWN = [name for names in NAMES.values() for name in names]
LISTED = [name.removeprefix("class ") for name in SHOWN]


class Plain(str):
    """An annotation that is shown as it was written."""

    def __repr__(self) -> str:
        return str(self)


def found(name: str) -> Any:
    module, _, own = name.removeprefix("class ").rpartition(".")
    return getattr(import_module(module), own)


def annotation(written: Any, thing: Any) -> Annotation:
    text = getattr(written, "__forward_arg__", written)
    assert isinstance(text, str), f"{thing} has annotations without `from __future__`"
    classes = thing.__mro__ if isinstance(thing, type) else (thing,)
    modules = [each.__module__ for each in classes]
    return read_annotation(text, tuple(name for name in modules if name.startswith("fastplan")))


def shown(parameter: inspect.Parameter, thing: Any) -> inspect.Parameter:
    default, written = parameter.default, parameter.annotation
    ours = type(default).__module__.startswith("fastplan")
    if default is not parameter.empty and (ours or repr(default).startswith("<")):
        default = Plain("...")
    if written is not parameter.empty:
        written = Plain(annotation(written, thing).text)
    return parameter.replace(annotation=written, default=default)


def signature(name: str) -> str:
    if name.startswith("class "):
        return name
    thing = found(name)
    if isinstance(thing, type) and issubclass(thing, (BaseException, Enum)):
        return f"class {name}({thing.__base__.__name__})"
    if getattr(thing, "_is_protocol", False):
        return f"class {name}(Protocol)"
    own = inspect.signature(thing)
    parameters = [shown(parameter, thing) for parameter in own.parameters.values()]
    returned = own.return_annotation
    if isinstance(thing, type):
        returned = own.empty
    elif returned is not own.empty:
        returned = Plain(annotation(returned, thing).text)
    return name + str(own.replace(parameters=parameters, return_annotation=returned))


def classes_named(name: str) -> set[type]:
    """The classes of fastplan that a listed signature names."""
    if signature(name).startswith("class "):
        return set()
    thing = found(name)
    own = inspect.signature(thing)
    written = [parameter.annotation for parameter in own.parameters.values()]
    if not isinstance(thing, type):
        written.append(own.return_annotation)
    named = [annotation(each, thing).classes for each in written if each is not own.empty]
    return {found(each) for each in set().union(*named)}


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


@pytest.mark.parametrize("module", MODULES)
def test_no_public_name_is_that_of_a_submodule(module):
    """Importing the submodule would put it in the place of the function."""
    public = import_module(module).__all__
    assert [name for name in public if is_module(f"{module}.{name}")] == []


def test_every_class_that_a_listed_signature_names_is_listed():
    listed = {found(name) for name in LISTED}
    missing = {name: classes_named(name) - listed for name in SHOWN}
    assert {name: lacks for name, lacks in missing.items() if lacks} == {}
    assert sum(len(classes_named(name)) for name in SHOWN) > 20


def test_aliases_are_spelled_out():
    made = signature("fastplan.EmbeddingShardingPlanner")
    assert "replan: Replan | Literal['auto'] | None = None" in made
    assert "optimize: Optimize | None = None" in made


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
