"""What TorchRec's plan loaders bring: a plan in place of a search."""

from __future__ import annotations

import copy
import logging
from typing import Any

from torchrec.distributed.planner import planners

from fastplan.torchrec import versions
from fastplan.torchrec.read.space import Space
from fastplan.torchrec.search.outcome import Outcome

logger = logging.getLogger(__name__)


def loaded_plan(planner: Any, space: Space) -> Outcome | None:
    """The plan of the planner's plan loader, if there is one and it has one.

    Raises PlannerError where the loader's plan was made in another context.
    """
    if planner.plan_loader is None:
        return None
    try:
        context = planner.hash_planner_context_inputs_str()
    except versions.UNHASHABLE_CONTEXT:
        logger.warning("the stored plan can't be checked against this planner; planning anew")
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
    best_plan = copy.deepcopy(merged)
    return Outcome(
        found=True,
        rating=0.0,
        best_plan=lambda: best_plan,
        sharding_plan=lambda topology: planners.to_sharding_plan(best_plan, topology),
        loaded=True,
    )
