"""Several patches at a time, in any order and thread, and replacements that others make."""

import functools
import sys
import threading
import types

import pytest
from torchrec.distributed import embedding_sharding, model_parallel, shard
from torchrec.distributed.planner import planners

import fastplan

OWNER = model_parallel.DistributedModelParallel
STOCK = {
    (model_parallel, "EmbeddingShardingPlanner"): planners.EmbeddingShardingPlanner,
    (shard, "EmbeddingShardingPlanner"): planners.EmbeddingShardingPlanner,
    (embedding_sharding, "group_tables"): embedding_sharding.group_tables,
    (OWNER, "_init_dmp"): OWNER._init_dmp,
}
NAME = "torchrec.imported_in_the_meantime"


def patched() -> bool:
    """Whether all is replaced; part of it must not be."""
    (answer,) = {getattr(*place) is not stock for place, stock in STOCK.items()}
    return answer


@pytest.fixture
def late_module():
    """A module of TorchRec's that is imported while a test runs."""
    yield lambda: sys.modules.setdefault(NAME, types.ModuleType(NAME))
    sys.modules.pop(NAME, None)


@pytest.fixture
def restored():
    """Takes away what a test has put over a function, and what may be below."""
    yield
    for place, stock in STOCK.items():
        setattr(*place, stock)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_the_last_one_to_go_gives_everything_back_whichever_it_is(order):
    patches = [fastplan.patch(init=True) for _ in range(3)]
    for i in order:
        assert patched()
        patches[i].undo()
    assert not patched()


def test_undoing_one_patch_twice_takes_nothing_from_another():
    first, second = fastplan.patch(init=True), fastplan.patch(init=True)
    first.undo()
    first.undo()
    assert patched()
    second.undo()
    assert not patched()


def test_a_patch_of_the_start_leaves_the_planner_to_a_patch_without():
    with_start, without = fastplan.patch(init=True), fastplan.patch()
    with_start.undo()
    assert model_parallel.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner
    assert embedding_sharding.group_tables is STOCK[embedding_sharding, "group_tables"]
    without.undo()
    assert not patched()


def test_blocks_that_overlap_in_threads_are_patched_to_their_ends():
    begun, first_over = threading.Barrier(2), threading.Event()
    seen = []

    def first():
        with fastplan.patch(init=True):
            begun.wait()
        first_over.set()

    def second():
        with fastplan.patch(init=True):
            begun.wait()
            first_over.wait()
            seen.append(patched())

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True]
    assert not patched()


def test_many_threads_that_patch_and_undo_are_patched_inside_and_leave_nothing():
    seen = []

    def work():
        for _ in range(20):
            with fastplan.patch(init=True):
                seen.append(patched())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 160
    assert not patched()


@pytest.mark.usefixtures("restored")
def test_a_planner_that_somebody_puts_in_later_stays():
    class Theirs(fastplan.EmbeddingShardingPlanner):
        pass

    with fastplan.patch():
        model_parallel.EmbeddingShardingPlanner = Theirs
    assert model_parallel.EmbeddingShardingPlanner is Theirs
    assert shard.EmbeddingShardingPlanner is planners.EmbeddingShardingPlanner


def test_fastplans_planner_stays_where_somebody_put_it_before(monkeypatch):
    ours = fastplan.EmbeddingShardingPlanner
    monkeypatch.setattr(model_parallel, "EmbeddingShardingPlanner", ours)
    with fastplan.patch():
        pass
    assert model_parallel.EmbeddingShardingPlanner is ours
    assert shard.EmbeddingShardingPlanner is planners.EmbeddingShardingPlanner


@pytest.mark.usefixtures("restored")
def test_what_somebody_wraps_stays_and_what_is_below_is_the_stock_function_again():
    stock = STOCK[embedding_sharding, "group_tables"]
    patch = fastplan.patch(init=True)
    ours = embedding_sharding.group_tables

    @functools.wraps(ours)
    def theirs(tables):
        return ours(tables)

    embedding_sharding.group_tables = theirs
    patch.undo()
    assert embedding_sharding.group_tables is theirs
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code))
    theirs([])
    sys.setprofile(None)
    assert stock.__code__ in calls
    assert not [code for code in calls if code.co_filename.endswith("fast_start.py")]


@pytest.mark.usefixtures("restored")
def test_a_wrapper_around_ours_is_not_taken_for_ours():
    with fastplan.patch(init=True):
        ours = embedding_sharding.group_tables
        embedding_sharding.group_tables = functools.wraps(ours)(lambda tables: [])
        with fastplan.patch(init=True) as second:
            assert "group_tables has different source" in "".join(second.skipped.values())
        assert model_parallel.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner


@pytest.mark.usefixtures("restored")
def test_what_may_be_wrapped_is_replaced_once_above_or_below_the_wrapper():
    stock = OWNER._init_dmp
    first = fastplan.patch(init=True)
    ours = OWNER._init_dmp

    @functools.wraps(ours)
    def theirs(*args):
        return ours(*args)

    OWNER._init_dmp = theirs
    second = fastplan.patch(init=True)
    assert OWNER._init_dmp is theirs
    first.undo()
    second.undo()
    assert OWNER._init_dmp is theirs
    OWNER._init_dmp = ours  # as they would undo it
    with fastplan.patch(init=True):
        assert OWNER._init_dmp is ours
    OWNER._init_dmp = stock
    assert not patched()


def test_a_module_that_is_imported_between_two_patches_is_patched_by_the_second(late_module):
    first = fastplan.patch(init=True)
    module = late_module()
    module.EmbeddingShardingPlanner = planners.EmbeddingShardingPlanner
    module.group_tables = STOCK[embedding_sharding, "group_tables"]
    second = fastplan.patch(init=True)
    assert module.EmbeddingShardingPlanner is fastplan.EmbeddingShardingPlanner
    assert module.group_tables is embedding_sharding.group_tables
    second.undo()
    first.undo()
    assert module.EmbeddingShardingPlanner is planners.EmbeddingShardingPlanner
    assert module.group_tables is STOCK[embedding_sharding, "group_tables"]


def test_a_module_that_is_imported_while_patched_gets_the_stock_names_afterwards(late_module):
    with fastplan.patch(init=True):
        module = late_module()
        module.EmbeddingShardingPlanner = model_parallel.EmbeddingShardingPlanner
        module.group_tables = embedding_sharding.group_tables
    assert module.EmbeddingShardingPlanner is planners.EmbeddingShardingPlanner
    assert module.group_tables is STOCK[embedding_sharding, "group_tables"]


def test_names_of_modules_without_a_module_are_no_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrec.not_there", None)
    monkeypatch.setitem(sys.modules, "torchrec.odd", object())
    with fastplan.patch(init=True):
        assert patched()
    assert not patched()
