"""Starts on other ranks, as real gloo processes: the plan in the cache is followed."""

from typing import Any

import pytest

from tests.bridge.processes import run_ranks


@pytest.fixture(scope="module")
def starts(tmp_path_factory: Any) -> dict[int, list[Any]]:
    """What each rank saw of a job that starts on two ranks, then on one, then on three."""
    folder = tmp_path_factory.mktemp("job")
    return {world: _run(world, str(folder)) for world in (2, 1, 3)}


def _run(world: int, folder: str) -> list[Any]:
    return run_ranks("tests.bridge.replan_worker", [(rank, world, folder) for rank in range(world)])


@pytest.mark.parametrize("world", [1, 3], ids=["fewer ranks", "more ranks"])
def test_a_restart_on_other_ranks_follows_the_plan_in_the_cache(world, starts):
    assert starts[2][0][0][1:] == ["miss", None]
    first, again = starts[world][0]
    status, (followed, moved, least, scratch_moved, listed) = first[1:]
    assert status == "miss"
    assert followed
    assert least <= moved <= scratch_moved
    assert listed == moved
    assert again[:2] == [first[0], "hit"]
    assert len({rank[0][0] for rank in starts[world]}) == 1
