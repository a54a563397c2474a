"""The search of TorchRec's planner: native, except for parts in Python."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any

from torchrec.distributed.planner import planners

from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import ProposerReport
from fastplan.model.job import Job
from fastplan.model.log import escaped_logger
from fastplan.model.plan import PlanRecord
from fastplan.model.request import Search
from fastplan.planning.run import Run
from fastplan.planning.search import Placement, SearchBackend, Searched
from fastplan.torchrec.compat import Custom
from fastplan.torchrec.differences.context_hash import UNHASHABLE_CONTEXT
from fastplan.torchrec.read.components import Parts
from fastplan.torchrec.read.enumeration import Enumeration
from fastplan.torchrec.read.space import (
    EstimatedSpace,
    FixedPlacement,
    PythonSpace,
    Space,
    recorded_space,
)
from fastplan.torchrec.search import scaleup
from fastplan.torchrec.search.mixed import MixedSearch
from fastplan.torchrec.search.native import NativeSearch


class PlannerBackend(SearchBackend):
    """One search of a planner.

    Args:
        planner: the planner.
        job: the job to plan.
        parts: the planner's proposers, partitioner and perf model.
        space: the search space; not estimated yet if that is native.
        enumeration: estimates the space, and stores it where TorchRec's users read it.
        reserved: the topology after the reservation.
    """

    def __init__(
        self,
        planner: Any,
        job: Job,
        parts: Parts,
        space: Space,
        enumeration: Enumeration,
        reserved: Any,
    ) -> None:
        super().__init__(job)
        self._planner = planner
        self._parts = parts
        self._space = space
        self._enumeration = enumeration
        self._reserved = reserved

    @cached_property
    def problem(self) -> Problem:
        return Problem(self._space.columns, self.job.cluster)

    @property
    def _custom_estimators(self) -> Any:
        space = self._space
        return space.extraction.estimators.custom if isinstance(space, EstimatedSpace) else ()

    @property
    def rates_natively(self) -> bool:
        return not isinstance(self._parts.rating, Custom)

    @property
    def estimates_natively(self) -> bool:
        return self.job.request is not None and not self._custom_estimators

    @property
    def bounds_are_native(self) -> bool:
        # Plans of the scale-up proposer may have other cache sizes.
        return self.rates_natively and self.estimates_natively and not self._parts.scaleup

    @property
    def comparable(self) -> Search | None:
        places = not isinstance(self._parts.partitioner, Custom)
        native = places and self.rates_natively and self.estimates_natively
        return self.job.search if native else None

    def space_of(self, columns: SearchSpace) -> Space:
        assert isinstance(self._space, EstimatedSpace)
        return self._space.with_columns(columns)

    def chosen(self, record: PlanRecord) -> Space:
        assert isinstance(self._space, EstimatedSpace)
        chosen = recorded_space(self._space, record, resizes=bool(self._parts.scaleup))
        custom = self._custom_estimators
        if not custom:
            return chosen
        options = chosen.all_options()
        for estimator in custom:
            data = self._planner._enumerator._sharder_data_map
            estimator.estimate(options, sharder_data_map=data)
        return PythonSpace(options)

    def python_rating(self, placement: Placement) -> float:
        plan = placement.space.chosen_options(placement.options, placement.ranks)  # type: ignore[attr-defined]
        return self._planner._perf_model.rate(plan=plan)  # type: ignore[no-any-return]

    def search(self, run: Run) -> Searched:
        """Searches as TorchRec's planner does, or returns the plan of its plan loader.

        Raises:
            OutOfRange: exact arithmetic would need larger numbers than the core has.
            CostError: a custom cost fails.
            PlannerError: the loader's plan was made in another context.
        """
        space = self._enumeration.finish(self._space)
        loaded = loaded_plan(self._planner, space, self.job.search)
        if loaded is not None:
            return loaded
        same = space is self._space
        problem = self.problem if same else Problem(space.columns, self.job.cluster)
        with run.phase("search"):
            reason = self._python_part(space)
            if reason:
                run.add_reason("mixed", reason)
                fixed = f"a part of the search is Python: {run.reason}"
                shown = self._enumeration.shown(space)
                mixed = MixedSearch(
                    self._planner, self._parts, space, shown, problem, self._reserved
                )
                return mixed.run(fixed)
            native = NativeSearch(self._planner, self._parts, space, problem, self._reserved)
            return native.run()

    def _python_part(self, space: Space) -> str:
        """Why Python must search; empty if all parts are native."""
        if (self._planner._timeout_seconds or 0) < 0:
            return "the time limit was reached before the search began"
        if self._parts.python:
            return self._parts.python
        proposers = [self._planner._proposers[place] for place in self._parts.scaleup]
        return next(filter(None, (scaleup.why_not(each, space) for each in proposers)), "")


logger = escaped_logger(__name__)


class LoadedPlan(Searched):
    """A plan from a plan loader, in place of a search."""

    def plans(self) -> int:
        return 0

    def reports(self) -> tuple[ProposerReport, ...]:
        return ()


def loaded_plan(planner: Any, space: Space, search: Search) -> LoadedPlan | None:
    """Returns the plan of the planner's plan loader, if it has one.

    Raises:
        PlannerError: the loader's plan was made in another context.
    """
    if planner.plan_loader is None:
        return None
    try:
        context = planner.hash_planner_context_inputs_str()
    except UNHASHABLE_CONTEXT:
        logger.warning("the stored plan can't be checked against this planner; planning again")
        return None
    planner._loader_plan_validation(
        current_planner_hash=context, loaded_plan_hash=planner.plan_loader.plan_context_hash()
    )
    loaded = planner.plan_loader.load()
    if loaded is None:
        return None
    merged = planners.extract_plan(search_space=space.all_options(), loaded_sharding_options=loaded)
    if not merged:
        return None
    return LoadedPlan(
        space=space,
        problem=None,
        search=search,
        solution=None,
        placement=FixedPlacement.of(copy.deepcopy(merged), 0.0, None),
        fixed="the plan comes from the plan loader",
        loaded=True,
    )
