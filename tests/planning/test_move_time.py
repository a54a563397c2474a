"""The time of moves: all tables together, and links that ranks share."""

import numpy as np
import pytest

from fastplan.model.hardware_costs import CONSTANTS
from fastplan.model.request import HardwareCosts
from fastplan.planning.move_time import LinkSums, move_seconds
from fastplan.spec.model import replace
from tests import problems

MB = 1_000_000
HOSTS = np.array([0, 0, 1, 1])


def request(device="cpu", *, hardware=None):
    made = problems.request([problems.table("t", 10, 8)], 4, 2, problems.ALL_TYPES)
    cost = replace(
        made.cost,
        device_kind=device,
        bw_group_all_gather=4.0 * MB,
        bw_across_all_to_all=1.0 * MB,
    )
    return replace(made, cost=cost, hardware=hardware)


def hardware():
    """Two ranks of a host: 10 ms and 4 ms per MB inside, 20 ms and 8 ms per MB if both send."""
    values = {
        "domain_all_to_all.latency": 10.0,
        "domain_all_to_all.efficiency": 4e-6,
        "network_all_to_all.latency": 20.0,
        "network_all_to_all.efficiency": 8e-6,
    }
    constants = tuple(values.get(each.full_name, 0.0) for each in CONSTANTS)
    return HardwareCosts(constants=constants, domain_ranks=2, states=(0.0,), pipeline="none")


def seconds(moves, own):
    """Seconds of tables that each go from a rank to another, by (source, target, MB)."""
    sums = LinkSums(*(np.zeros(4, np.int64) for _ in range(4)))
    for source, target, size in moves:
        near = HOSTS[source] == HOSTS[target]
        (sums.near_sent if near else sums.far_sent)[source] += size * MB
        (sums.near_received if near else sums.far_received)[target] += size * MB
    return move_seconds(sums, own, HOSTS)


@pytest.mark.parametrize(
    ("moves", "gpu", "cpu"),
    [
        ([(0, 2, 3)], 3, 3),
        # A rank sends one table and receives another at the same time.
        ([(0, 2, 3), (2, 0, 3)], 3, 3),
        # It sends two tables one after the other.
        ([(0, 2, 3), (0, 3, 3)], 6, 6),
        # Ranks of a host share the link, if they are CPUs.
        ([(0, 2, 3), (1, 3, 3)], 3, 6),
        ([(0, 2, 3), (1, 3, 3), (2, 0, 3), (3, 1, 3)], 3, 6),
        # Inside a host they don't.
        ([(0, 1, 4), (2, 3, 4)], 1, 1),
    ],
)
def test_ranks_move_all_tables_together_and_cpus_share_a_link(moves, gpu, cpu):
    assert seconds(moves, request("cuda")) == pytest.approx(gpu / 1000)
    assert seconds(moves, request("cpu")) == pytest.approx(cpu / 1000)


def test_hardware_costs_have_latencies_and_links_of_their_own():
    own = request("cpu", hardware=hardware())
    # The fitted time of a byte is one with both ranks of a host at work.
    assert seconds([(0, 2, 3)], own) == pytest.approx((20 + 3 * 4) / 1000)
    assert seconds([(0, 2, 3), (1, 3, 3)], own) == pytest.approx((20 + 3 * 8) / 1000)
    assert seconds([(0, 1, 3), (0, 1, 3)], own) == pytest.approx((10 + 6 * 4) / 1000)
    gpu = replace(own, cost=replace(own.cost, device_kind="cuda"))
    assert seconds([(0, 2, 3)], gpu) == pytest.approx((20 + 3 * 8) / 1000)


def test_no_moves_take_no_time_and_unknown_links_have_none():
    assert seconds([], request()) == 0.0
    assert seconds([(0, 2, 1)], None) is None
    bare = request()
    cost = replace(bare.cost, bw_across_all_to_all=0.0, bw_world_all_to_all=0.0)
    assert seconds([(0, 2, 1)], replace(bare, cost=cost)) is None
