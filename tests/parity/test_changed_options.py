"""Proposers may edit the search space they are shown; everybody sees the edited one."""

from collections.abc import Callable
from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import CacheParams

from .compare import assert_same, options_record, outcome, run
from .extenders import Asking
from .instances import Built
from .meddlers import (
    CacheTuner,
    LatePenaliser,
    Penaliser,
    Remover,
    Reverser,
    Sorter,
    Tagger,
)
from .small import MIB, assert_agree, small, small_constraints, small_topology
from .subject import TORCHREC_VERSION, FastPlanner, TorchRecPlanner

EDITS = [Sorter, Reverser, Remover, Penaliser, Tagger, LatePenaliser]
STOCK: dict[str, Callable[[], Any]] = {
    "greedy": GreedyProposer,
    "greedy-threshold": lambda: GreedyProposer(threshold=3),
    "grid": GridSearchProposer,
    "uniform": UniformProposer,
    "dynamic-programming": DynamicProgrammingProposer,
}


@pytest.mark.parametrize("order", [1, -1], ids=["before", "after"])
@pytest.mark.parametrize("stock", STOCK)
@pytest.mark.parametrize("edit", EDITS)
def test_stock_proposers_see_the_edited_search_space(edit: type, stock: str, order: int) -> None:
    def build() -> Built:
        return small(proposer=[edit(), STOCK[stock]()][::order], count=3)

    assert_agree(build)


@pytest.mark.parametrize("stock", STOCK)
def test_a_stock_proposer_between_an_edit_and_its_end(stock: str) -> None:
    """The second one reverses the same list again, but the stock one has seen it reversed."""
    record, _ = assert_agree(
        lambda: small(proposer=[Reverser(), STOCK[stock](), Reverser()], count=3)
    )
    assert record["error"] is None


@pytest.mark.parametrize("stock", STOCK)
def test_a_stock_proposer_twice_with_an_edit_in_between(stock: str) -> None:
    """The same object proposes nothing more the second time, whoever ran it the first time."""

    def build() -> Built:
        twice = STOCK[stock]()
        return small(proposer=[twice, LatePenaliser(), twice], count=3)

    assert_agree(build)


class Lengthening(GreedyProposer):
    """Changes a list of the options that it proposes."""

    def feedback(self, partitionable: bool, plan: Any = None, **facts: Any) -> None:
        plan[0].input_lengths.append(1.0)
        super().feedback(partitionable=partitionable, plan=plan, **facts)


@pytest.mark.parametrize("enumerator", [EmbeddingEnumerator, Asking])
def test_a_list_of_an_option_is_changed_and_the_stored_option_is_not(enumerator: type) -> None:
    """Options of a search space that was enumerated before are copies."""
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        topology, rules = small_topology(), small_constraints()
        built = small(
            topology=topology,
            constraints=rules,
            enumerator=enumerator(topology, batch_size=512, constraints=rules),
            proposer=[Lengthening(), UniformProposer()],
        )
        planner = planner_class(**built.planner_kwargs)
        run(planner, built.module, built.sharders)
        second = run(planner, built.module, built.sharders)
        records.append({**second, "lists": [rule.pooling_factors for rule in rules.values()]})
    assert_same(*records)


@pytest.mark.parametrize("edit", EDITS)
def test_little_room_for_an_edited_search_space(edit: type) -> None:
    def build() -> Built:
        topology = small_topology(hbm=12 * MIB, ddr_cap=8 * MIB)
        return small(proposer=[edit(), GreedyProposer()], topology=topology)

    assert_agree(build)


def cached() -> dict[str, Any]:
    return small_constraints(
        cache_params=CacheParams(load_factor=0.3), compute_kernels=["fused_uvm_caching"]
    )


@pytest.mark.parametrize("others", [[], [UniformProposer], [GreedyProposer]])
def test_options_estimated_anew_in_place(others: list[type]) -> None:
    assert_agree(
        lambda: small(proposer=[CacheTuner(), *(o() for o in others)], constraints=cached())
    )


@pytest.mark.skipif(TORCHREC_VERSION < (1, 9), reason="the planner shows no search space")
@pytest.mark.parametrize("edit", EDITS)
def test_the_search_space_shown_is_the_one_that_proposers_edited(edit: type) -> None:
    shown = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        _, planner = outcome(planner_class, small(proposer=[edit(), UniformProposer()]))
        shown.append(options_record(planner.get_search_space()))
    assert_same(*shown)
