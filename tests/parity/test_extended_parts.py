"""Parts that extend TorchRec's: their own code runs in Python, TorchRec's part of it is native."""

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)

from .compare import assert_same, options_record, outcome
from .extenders import (
    ENUMERATORS,
    AddingStorage,
    Annotating,
    Asking,
    Choosing,
    Editing,
    Estimating,
    FilteringByName,
    Interleaving,
    PenalisingPerf,
    Recutting,
    SplittingStorage,
)
from .families import FAMILIES
from .instances import Built, Instance
from .small import MIB, assert_agree, assert_engine, small, small_constraints, small_topology
from .subject import SELF_CHECK, TORCHREC_VERSION, FastPlanner, TorchRecPlanner

native_only = pytest.mark.skipif(SELF_CHECK, reason="fastplan's own code is examined")
# TorchRec's estimators read plain data of sharders from here on, which the core reads, too.
with_sharder_data = pytest.mark.skipif(TORCHREC_VERSION < (1, 8), reason="estimated in Python")


def extended(built: Built, kind: type) -> Built:
    """The same arguments, with an enumerator of another class."""
    arguments = built.planner_kwargs
    enumerator = arguments.get("enumerator") or EmbeddingEnumerator(
        arguments["topology"], arguments.get("batch_size") or 512, arguments.get("constraints")
    )
    enumerator.__class__ = kind
    return Built(
        module=built.module,
        sharders=built.sharders,
        planner_kwargs={**arguments, "enumerator": enumerator},
        stock=False,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_enumerators_that_extend_torchrecs_on_any_input(family: str) -> None:
    position = list(FAMILIES).index(family)
    for turn in range(2):
        instance = Instance(position + turn * len(FAMILIES), family, is_small=True)
        kind = ENUMERATORS[(3 * position + turn) % len(ENUMERATORS)]
        assert_agree(lambda made=instance, kind=kind: extended(made.build(), kind))


@pytest.mark.parametrize("kind", ENUMERATORS)
def test_each_way_to_extend_the_enumerator(kind: type) -> None:
    def build() -> Built:
        return extended(small(constraints=small_constraints(min_partition=32)), kind)

    _, planner = assert_agree(build)
    assert_engine(planner, "mixed", "torchrec")
    assert type(planner._enumerator) is kind


@pytest.mark.parametrize("kind", ENUMERATORS)
def test_a_second_plan_finds_what_torchrec_stored(kind: type) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = extended(small(constraints=small_constraints()), kind)
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        first = options_record(planner._enumerator.last_stored_search_space)
        again = planner_class(**built.planner_kwargs)
        again.plan(built.module, built.sharders)
        records.append(
            {
                "first": first,
                "stored": options_record(again._enumerator.last_stored_search_space),
                "best": options_record(again._best_plan),
            }
        )
    assert_same(*records)


def estimators(perf: type, storage: type) -> Callable[[], Built]:
    def build() -> Built:
        topology, rules = small_topology(), small_constraints()
        made = [perf(topology, rules), storage(topology, rules)]
        enumerator = EmbeddingEnumerator(topology, 512, rules, made)
        return small(topology=topology, constraints=rules, enumerator=enumerator)

    return build


@pytest.mark.parametrize("is_extended", [False, True], ids=["stock", "extended"])
@pytest.mark.parametrize("storage", [EmbeddingStorageEstimator, AddingStorage, SplittingStorage])
@pytest.mark.parametrize("perf", [EmbeddingPerfEstimator, PenalisingPerf])
def test_estimators_that_extend_torchrecs(perf: type, storage: type, is_extended: bool) -> None:
    def build() -> Built:
        built = estimators(perf, storage)()
        return extended(built, Recutting) if is_extended else built

    assert_agree(build)


@pytest.mark.parametrize("storage", [AddingStorage, SplittingStorage])
def test_estimators_in_the_other_order(storage: type) -> None:
    def build() -> Built:
        built = estimators(EmbeddingPerfEstimator, storage)()
        built.planner_kwargs["enumerator"]._estimators.reverse()
        return extended(built, Annotating)

    assert_agree(build)


@pytest.mark.parametrize("proposer", [Choosing, Editing])
@pytest.mark.parametrize("hbm", [256 * MIB, 20 * MIB], ids=["loose", "tight"])
@pytest.mark.parametrize("then", [None, UniformProposer, GreedyProposer])
def test_proposers_hear_the_same_and_lead_to_the_same_plan(
    proposer: type, hbm: int, then: type | None
) -> None:
    for seed in range(3):
        heard = []

        def build(seed: int = seed, heard: list[Any] = heard) -> Built:
            first = proposer(seed)
            heard.append(first.heard)
            rest = [then()] if then else []
            rules = small_constraints(min_partition=32)
            topology = small_topology(hbm=hbm, ddr_cap=hbm)
            return extended(
                small(proposer=[first, *rest], topology=topology, constraints=rules), Annotating
            )

        assert_agree(build)
        assert heard[0] == heard[1]
        assert len(heard[0]) == 40


def test_the_hooks_are_asked_as_often_as_by_torchrec() -> None:
    asked = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = extended(small(), FilteringByName)
        outcome(planner_class, built)
        asked.append(built.planner_kwargs["enumerator"].asked)
    assert asked[0] == asked[1] > 0


def test_an_enumerator_sees_itself_unchanged() -> None:
    seen = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = extended(small(), Asking)
        _, planner = outcome(planner_class, built)
        enumerator = planner._enumerator
        assert enumerator.me is enumerator
        seen.append(enumerator.seen)
    assert seen[0] == seen[1]


class Failing(Annotating):
    def edited(self, options: list[Any]) -> list[Any]:
        raise ValueError("no options today")


def test_an_error_of_the_enumerator_comes_through_and_restores_every_class() -> None:
    record, planner = assert_agree(lambda: extended(small(), Failing))
    assert record["error"]["text"] == "no options today"
    enumerator = planner._enumerator
    assert type(enumerator) is Failing
    stock = EmbeddingEnumerator(small_topology(), 512)
    expected = [type(each) for each in stock._estimators]
    assert [type(each) for each in enumerator._estimators] == expected


class Slotted(EmbeddingEnumerator):
    """Its objects can't get another class."""

    __slots__ = ("mark",)

    def enumerate(self, module: Any, sharders: Any) -> list[Any]:
        self.mark = 1
        return super().enumerate(module, sharders)


def test_an_enumerator_with_slots_runs_in_python() -> None:
    def build() -> Built:
        topology = small_topology()
        return small(topology=topology, enumerator=Slotted(topology, 512))

    assert_agree(build)


class Announced(EmbeddingEnumerator):
    known: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Announced.known.append(cls.__name__)


def test_no_class_is_announced_to_the_users_own() -> None:
    _, planner = assert_agree(lambda: extended(small(), Announced))
    assert_engine(planner, "mixed", "torchrec")
    assert Announced.known == []


@native_only
@with_sharder_data
@pytest.mark.parametrize("kind", [Annotating, FilteringByName, Estimating, Recutting])
def test_torchrecs_part_of_an_enumerator_is_native(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_estimates(monkeypatch)
    _, planner = outcome(FastPlanner, extended(small(), kind))
    assert_engine(planner, "mixed")
    assert calls == []


@native_only
@with_sharder_data
def test_other_threads_run_torchrecs_code_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_estimates(monkeypatch)

    class Threaded(EmbeddingEnumerator):
        def enumerate(self, module: Any, sharders: Any) -> list[Any]:
            found: list[Any] = []
            parent = super()
            thread = threading.Thread(
                target=lambda: found.extend(parent.enumerate(module, sharders))
            )
            thread.start()
            thread.join()
            return found

    assert_agree(lambda: extended(small(), Threaded))
    assert calls


def count_estimates(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list that gets an entry for each call of TorchRec's estimators in Python."""
    from fastplan.torchrec.read import native_parts

    calls: list[str] = []
    for kind in list(native_parts._NATIVE)[1:]:

        def counted(self: Any, *args: Any, stock: Any = kind.estimate, **kwargs: Any) -> None:
            calls.append(type(self).__name__)
            stock(self, *args, **kwargs)

        monkeypatch.setattr(kind, "estimate", counted)
    monkeypatch.setattr("fastplan.torchrec.support.support._watch.replaced", dict)
    return calls


def test_options_that_torchrec_enumerates_after_a_fallback_have_the_lists_of_the_constraints() -> (
    None
):
    """A proposer that appends to a list of an option then changes the user's constraint."""
    lists = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        rules = small_constraints()
        built = extended(small(constraints=rules), Interleaving)
        _, planner = outcome(planner_class, built)
        options = planner._enumerator.returned
        lists.append([o.input_lengths is rules[o.name].pooling_factors for o in options])
    assert lists[0] == lists[1]
    assert all(lists[0])
