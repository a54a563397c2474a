"""A job on emulated hosts with slow links: one host is cut off, and another one comes back."""

from contextlib import ExitStack
from typing import Any

import pytest

from fastplan.measure.hosts import EmulatedHosts, parse_rate
from tests.measure.emulated import needs_hosts
from tests.torchrec.test_replan_processes import Place, host, started

PORT = 29400  # inside the hosts, where nothing else listens
pytestmark = needs_hosts


@pytest.fixture(scope="module")
def starts(tmp_path_factory: Any) -> dict[int, Any]:
    """What the job tells on both hosts, on the one that is left, and with the other one again."""
    folder = tmp_path_factory.mktemp("job")
    with EmulatedHosts(2, parse_rate("20Mbit")) as hosts, ExitStack() as stack:
        places = [
            Place(
                first=hosts.address(0),
                own=hosts.address(number),
                command=tuple(hosts.command(number, [])),
                environment={**hosts.environment, "COLLECTIVE_SECONDS": "8"},
            )
            for number in range(hosts.count)
        ]
        first = stack.enter_context(host(folder, PORT, 1, places[0], is_host=1))
        with host(folder, PORT, 1, places[1], is_host=0):
            both = started(folder, 2, first)
            hosts.cut(1)
            alone = started(folder, 1, first)
        hosts.restore(1)
        stack.enter_context(host(folder, PORT, 2, places[1], is_host=0))
        return {2: both, 1: alone, 3: started(folder, 3, first)}


def test_a_collective_start_over_a_slow_link_gives_all_ranks_one_plan(starts):
    told = starts[2]
    assert (told["status"], told["again"], told["plans"]) == ("miss", "hit", 1)


@pytest.mark.parametrize(
    ("world", "ranks"), [(1, [[1], []]), (3, [[], [1, 2]])], ids=["link cut", "link back"]
)
def test_a_restart_follows_the_plan_before(world, ranks, starts):
    told = starts[world]
    assert (told["followed"], told["ranks"], told["plans"]) == (True, ranks, 1)
    least, moved, from_scratch = told["moved"]
    assert least <= moved <= from_scratch
