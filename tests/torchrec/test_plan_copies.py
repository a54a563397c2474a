"""Copies of plans whose options change between them, compared with copy.deepcopy()."""

import copy
import random
from collections import Counter
from typing import Any

import pytest

from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.space import PythonSpace
from fastplan.torchrec.search import plan_copies
from fastplan.torchrec.search.known_options import OptionIndex
from fastplan.torchrec.search.plan_copies import PlanCopies
from tests.parity.compare import assert_same, options_record
from tests.parity.families import FAMILIES
from tests.parity.meddlers import by_table
from tests.torchrec.test_option_estimates import drawn, shape


def replace_shards(option: Any, draw: random.Random) -> None:
    option.shards = list(option.shards)


def replace_size(option: Any, draw: random.Random) -> None:
    shard = draw.choice(option.shards)
    shard.size = list(shard.size)


def longer_lengths(option: Any, draw: random.Random) -> None:
    option.input_lengths.append(1.5)


def other_length(option: Any, draw: random.Random) -> None:
    option.input_lengths[0] += 1


def other_number_type(option: Any, draw: random.Random) -> None:
    option.input_lengths[0] = int(option.input_lengths[0])


def hung_value(option: Any, draw: random.Random) -> None:
    option.tag = draw.random()


def hung_list(option: Any, draw: random.Random) -> None:
    option.notes = [*getattr(option, "notes", []), [draw.random()]]


def list_in_place(option: Any, draw: random.Random) -> None:
    if hasattr(option, "notes"):
        option.notes[-1].append(draw.random())


def note_on_a_shard(option: Any, draw: random.Random) -> None:
    shard = draw.choice(option.shards)
    shard.note = [*getattr(shard, "note", []), draw.random()]


def note_in_place(option: Any, draw: random.Random) -> None:
    for shard in option.shards:
        getattr(shard, "note", []).append(draw.random())


def nothing(option: Any, draw: random.Random) -> None: ...


def shared_list(option: Any, draw: random.Random) -> None:
    option.feature_names = SHARED


SHARED = ["one", "two"]
EDITS = [
    *(replace_shards, replace_size, longer_lengths, other_number_type, hung_value, hung_list),
    *(list_in_place, note_on_a_shard, note_in_place, shared_list, other_length),
]


@pytest.mark.parametrize("edits", [[nothing], EDITS], ids=["unchanged", "edited"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_is_that_of_deepcopy_whatever_was_copied_before(
    family: str, edits: list[Any]
) -> None:
    draw = random.Random(family)
    _, options = drawn(family)
    try:
        columns = PythonSpace(options).columns
    except NotNative:
        pytest.skip("the core can't hold these options")
    known = OptionIndex(options, columns)
    copies, tables = PlanCopies(known), by_table(options)
    plan = [table[0] for table in tables]
    for _ in range(30):
        place = draw.randrange(len(tables))
        plan = [*plan[:place], draw.choice(tables[place]), *plan[place + 1 :]]
        if draw.random() < 0.5:
            draw.choice(edits)(draw.choice(plan), draw)
        _, numbers = known.identify(plan, checked=True)
        expected, actual = copy.deepcopy(plan), copies.copy(plan, numbers)
        assert_same(options_record(expected), options_record(actual))
        assert_same(shape(expected), shape(actual))


def test_options_that_share_a_shard_keep_sharing_it() -> None:
    _, options = drawn(next(iter(FAMILIES)))
    options[-1].shards[0].size = options[0].shards[0].size
    known = OptionIndex(options, PythonSpace(options).columns)
    copies = PlanCopies(known)
    for plan in ([options[0]], [options[0], options[-1]]):
        _, numbers = known.identify(plan, checked=True)
        copied = copies.copy(plan, numbers)
        assert_same(shape(copy.deepcopy(plan)), shape(copied))


def test_options_that_stay_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[int] = Counter()

    def counted(option: Any, memo: Any, stock: Any = plan_copies.copy_option) -> Any:
        calls[id(option)] += 1
        return stock(option, memo)

    monkeypatch.setattr(plan_copies, "copy_option", counted)
    _, options = drawn("plain" if "plain" in FAMILIES else next(iter(FAMILIES)))
    known = OptionIndex(options, PythonSpace(options).columns)
    copies = PlanCopies(known)
    plan = [table[0] for table in by_table(options)]
    for _ in range(3):
        copies.copy(plan, known.identify(plan, checked=True)[1])
    assert set(calls.values()) == {1}
