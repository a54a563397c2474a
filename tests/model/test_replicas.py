"""Replica groups. tests/torchrec compares them with DMPCollection's own."""

import re

import pytest

from fastplan.model.replicas import ReplicaGroups, ReplicaGroupsError, possible_groups

SHAPES = [
    (world, host, groups, consecutive)
    for world, host in ((8, 8), (16, 8), (64, 8), (24, 8), (12, 4), (6, 6))
    for consecutive in (False, True)
    for groups in possible_groups(world, host, consecutive)
]


def made(world, host, groups, consecutive=False, **more):
    return ReplicaGroups(
        world_size=world,
        groups=groups,
        ranks_per_host=host,
        use_inter_host_allreduce=consecutive,
        **more,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_rank_is_in_one_group_and_has_one_replica_in_each(shape):
    groups = made(*shape)
    by_group = [[*groups.ranks_of(group)] for group in range(groups.groups)]
    by_position = [[*groups.replicas_at(place)] for place in range(groups.group_size)]
    every = [*range(groups.world_size)]
    for lists in (by_group, by_position):
        assert sorted(rank for ranks in lists for rank in ranks) == every
    for group, ranks in enumerate(by_group):
        for position, rank in enumerate(ranks):
            assert (groups.group_of(rank), groups.position_of(rank)) == (group, position)
            assert by_position[position][group] == rank


@pytest.mark.parametrize("shape", SHAPES)
def test_every_host_of_a_group_has_as_many_of_its_ranks(shape):
    groups = made(*shape)
    host = groups.ranks_per_host
    for group in range(groups.groups):
        hosts = [rank // host for rank in groups.ranks_of(group)]
        # In the group's order, as TorchRec's planner numbers hosts.
        local = groups.local_world_size
        assert all(len({*hosts[i : i + local]}) == 1 for i in range(0, len(hosts), local))
        assert {hosts.count(each) for each in hosts} == {local}


@pytest.mark.parametrize("pod_size", [1, 2, 4])
@pytest.mark.parametrize("shape", [each for each in SHAPES if each[0] == 64])
def test_near_replicas_share_a_host_or_pod(shape, pod_size):
    groups = made(*shape, pod_size=pod_size)
    near_ranks = pod_size * groups.ranks_per_host
    for position in range(groups.group_size):
        places = [rank // near_ranks for rank in groups.replicas_at(position)]
        assert {places.count(each) for each in places} == {groups.near_replicas}


@pytest.mark.parametrize("shape", [each for each in SHAPES if each[0] == 64])
def test_pods_of_a_group_are_those_of_the_job(shape):
    groups = made(*shape, pod_size=4)
    ranks = 4 * groups.ranks_per_host
    pods = [rank // ranks for rank in groups.ranks_of(0)]
    hosts = {pod: {r // 8 for r in groups.ranks_of(0) if r // ranks == pod} for pod in pods}
    assert {len(each) for each in hosts.values()} == {groups.group_pod_size(4)}


def test_groups_alternate_as_in_torchrecs_documentation():
    groups = made(8, 4, 2)
    assert [[*groups.ranks_of(i)] for i in (0, 1)] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [[*groups.replicas_at(i)] for i in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        (
            (10, 2, 3),
            "10 ranks can't form 3 replica groups of the same size: choose one of 1, 2, 10",
        ),
        (
            (24, 8, 3),
            "3 replica groups of 8 ranks can't be spread evenly over hosts of 8 ranks: choose one "
            "of 1, 2, 4, 8, 24, or use `use_inter_host_allreduce`",
        ),
        ((24, 8, 2, True), "choose one of 1, 3, 6, 12, 24"),
        ((24, 8, 0), "`groups` must be a whole number from 1, not 0"),
        ((24, 7, 2), "24 ranks do not fill hosts of 7"),
    ],
)
def test_groups_that_cannot_be_formed_say_which_can(shape, problem):
    with pytest.raises(ReplicaGroupsError, match=re.escape(problem)):
        made(*shape)
