"""What TorchRec's plan loaders bring: a plan in place of a search."""

from __future__ import annotations

import copy
import logging
from typing import Any

from torchrec.distributed.planner import planners

from fastplan.model.request import Search
from fastplan.model.solution import PlanCount, ProposerReport
from fastplan.planning.result import Searched
from fastplan.torchrec import versions
from fastplan.torchrec.read.space import FixedPlacement, Space

logger = logging.getLogger(__name__)


class LoadedPlan(Searched):
    """A plan in place of a search."""

    def plans(self) -> int:
        return 0

    def some_plans(self, placements: int) -> PlanCount:
        return PlanCount(0)

    def reports(self) -> tuple[ProposerReport, ...]:
        return ()


def loaded_plan(planner: Any, space: Space, search: Search) -> LoadedPlan | None:
    """The plan of the planner's plan loader, if there is one and it has one.

    Raises PlannerError where the loader's plan was made in another context.
    """
    if planner.plan_loader is None:
        return None
    try:
        context = planner.hash_planner_context_inputs_str()
    except versions.UNHASHABLE_CONTEXT:
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
        fixed="the plan is the plan loader's",
        loaded=True,
    )
