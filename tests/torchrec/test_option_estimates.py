"""Estimates and copies of options that other code has made, compared with TorchRec's own."""

import contextlib
import copy
import random
from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import Shard

from fastplan import EmbeddingShardingPlanner as FastPlanner
from fastplan.engine.solve import GivenShards, OutOfRange, estimate, estimate_shards
from fastplan.torchrec.read.native_parts import native_parts
from fastplan.torchrec.write.options import copy_options
from tests.parity.compare import assert_same, options_record, plain, quiet
from tests.parity.families import FAMILIES
from tests.parity.instances import Instance
from tests.problems import request, table


def drawn(family: str, turn: int = 0) -> tuple[Any, Any]:
    """TorchRec's enumerator with its options of a drawn instance; both without a plan."""
    seed = list(FAMILIES).index(family) + turn * len(FAMILIES)
    built = Instance(seed, family, is_small=True).build()
    arguments = built.planner_kwargs
    enumerator = arguments.get("enumerator") or EmbeddingEnumerator(
        arguments["topology"], arguments.get("batch_size") or 512, arguments.get("constraints")
    )
    with quiet():
        return enumerator, enumerator.enumerate(built.module, built.sharders)


def recut(options: list[Any], seed: int) -> None:
    """Gives options shards, lengths and a batch that no enumerator of TorchRec's would."""
    draw = random.Random(seed)
    for option in options:
        for shard in option.shards:
            shard.perf = shard.storage = None
        if draw.random() < 0.5:
            for shard in option.shards:
                shard.size = [draw.randint(0, 10**5), draw.choice([1, 4, 31, 64, 300])]
        if draw.random() < 0.2 and option.sharding_type != "table_wise":
            option.shards.append(Shard(size=[7, 9], offset=[0, 0]))
        if draw.random() < 0.2:
            option.batch_size = draw.choice([1, 33, 4096])
        if draw.random() < 0.2:
            option.is_weighted = draw.choice([None, True, False])
        if draw.random() < 0.2:
            option.num_poolings = [draw.choice([1.0, 2.5])] * len(option.input_lengths)


def record(enumerator: Any, options: list[Any]) -> Any:
    try:
        with quiet():
            enumerator.populate_estimates(options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return options_record(options)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_shards_get_torchrecs_estimates(family: str) -> None:
    for turn in range(3):
        enumerator, options = drawn(family, turn)
        recut(options, turn)
        theirs, ours = copy.deepcopy(options), copy.deepcopy(options)
        expected = record(enumerator, theirs)
        with native_parts(enumerator, lambda *_: pytest.fail("nothing enumerates")):
            actual = record(enumerator, ours)
        assert_same(expected, actual)


@pytest.mark.parametrize("family", FAMILIES)
def test_copies_are_those_of_deepcopy(family: str) -> None:
    _, options = drawn(family)
    shared = {"of": [options[0]]}
    for i, option in enumerate(options):
        option.shared, option.own = shared, [i, [i]]
        option.shards[0].note = shared["of"]
        option.shards[-1].size = options[0].shards[0].size
        option.shards[0].storage = options[0].shards[0].storage
    options.append(options[0])
    expected, actual = copy.deepcopy(options), copy_options(options)
    assert_same(shape(expected), shape(actual))
    assert actual[0] is actual[-1]
    assert actual[0].tensor is options[0].tensor


@pytest.mark.parametrize("family", FAMILIES)
def test_native_options_share_the_lists_that_torchrecs_share(family: str) -> None:
    records = []
    for native in (False, True):
        seed = list(FAMILIES).index(family)
        built = Instance(seed, family, is_small=True).build()
        arguments = built.planner_kwargs
        enumerator = Listening(
            arguments["topology"], arguments.get("batch_size") or 512, arguments.get("constraints")
        )
        planner_class = FastPlanner if native else TorchRecPlanner
        planner = planner_class(**{**arguments, "enumerator": enumerator, "proposer": None})
        with quiet(), contextlib.suppress(Exception):
            planner.plan(built.module, built.sharders)
        records.append(shape(enumerator.found))
    assert_same(*records)


class Listening(EmbeddingEnumerator):
    """Keeps copies of its options, which share what the options share."""

    found: Any = ()

    def enumerate(self, module: Any, sharders: Any) -> list[Any]:
        options = super().enumerate(module, sharders)
        self.found = copy.deepcopy(options)
        return options


def shape(options: list[Any]) -> dict[str, Any]:
    """Values, and which of them are one object; `shared` leads back to an option."""
    numbers: dict[int, int] = {}
    alive = []

    def identity(value: Any) -> int:
        alive.append(value)
        return numbers.setdefault(id(value), len(numbers))

    found: dict[str, Any] = {}
    for i, option in enumerate(options):
        held = {k: v for k, v in vars(option).items() if k not in ("_tensor", "_module")}
        found[f"option {i}"] = {
            "names": list(vars(option)),
            "identities": [
                identity(v) for v in held.values() if isinstance(v, (list, dict)) or v is option
            ],
            "of": identity(option.shared["of"][0]) if hasattr(option, "shared") else None,
            "own": plain(getattr(option, "own", None)),
            "shards": [
                [
                    identity(shard),
                    *(identity(v) for v in (shard.size, shard.offset, shard.storage, shard.perf)),
                    plain({k: v for k, v in vars(shard).items() if k != "note"}),
                    list(vars(shard)),
                ]
                for shard in option.shards
            ],
        }
    return found


def given(**changes: Any) -> GivenShards:
    fields: dict[str, Any] = {
        "option_table": [0],
        "option_item": [0],
        "option_begin": [0, 2],
        "rows": [10, 20],
        "cols": [64, 64],
        "perf": True,
        "storage": True,
    }
    return GivenShards(**{**fields, **changes})


def test_given_shards_have_the_estimates_of_the_same_cut() -> None:
    made = request([table("t", 40, 64)], 4, 4, ("row_wise",))
    space = estimate(made)
    assert space.run_count[0] == 4
    columns = estimate_shards(made, given(rows=[10], cols=[64], option_begin=[0, 1]))
    for name, column in columns.items():
        assert column.tolist() == [getattr(space, name)[0]]  # type: ignore[attr-defined]


def test_only_what_was_asked_for_is_estimated() -> None:
    made = request([table("t", 40, 64)], 4, 4, ("row_wise",))
    perf = estimate_shards(made, given(storage=False))
    assert not perf["run_hbm"].any() and perf["run_fwd_compute"].all()
    storage = estimate_shards(made, given(perf=False))
    assert storage["run_hbm"].all() and not storage["run_fwd_compute"].any()


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"rows": [-1, 2]}, OutOfRange, "negative size"),
        ({"rows": [2**46, 2]}, OutOfRange, "too large"),
        ({"rows": [2**70, 2]}, OutOfRange, "beyond 64 bits"),
        ({"cols": [1]}, TypeError, "`cols` must have 2 entries"),
        ({"option_table": [1]}, TypeError, "`option_table` has an index"),
        ({"option_item": [-1]}, TypeError, "`option_item` has an index"),
        ({"option_begin": [0, 3]}, TypeError, "`option_begin` must be offsets"),
        ({"option_begin": [2, 1]}, TypeError, "`option_begin` must be offsets"),
        ({"option_begin": [0]}, TypeError, "`option_begin` must have 2 entries"),
    ],
)
def test_shards_that_make_no_sense_are_refused(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    made = request([table("t", 40, 64)], 4, 4, ("row_wise",))
    with pytest.raises(error, match=text):
        estimate_shards(made, given(**changes))
