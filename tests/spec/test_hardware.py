"""Named hardware: how names are found, and the topologies made from it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from fastplan.spec.hardware import HardwareError, find_hardware, for_job, topology_arguments
from tests.interpreter import python
from tests.spec.skus import SHIPPED, one


class TestNames:
    @pytest.mark.parametrize(
        ("written", "name"),
        [
            ("h100", "h100"),
            ("H100", "h100"),
            ("H100_80", "h100"),
            ("h100-80", "h100"),
            ("A100", "a100-80"),
            ("a100_40", "a100-40"),
            ("A100 80", "a100-80"),
            ("gb200", "gb200-nvl72"),
            ("GB200_NVL72", "gb200-nvl72"),
            ("gb200nvl72", "gb200-nvl72"),
            ("MI300X", "mi300x"),
            ("v100", "v100-32"),
            ("default", "torchrec"),
            ("TorchRec_CPU", "torchrec-cpu"),
        ],
    )
    def test_case_and_separators_do_not_matter(self, written: str, name: str) -> None:
        assert find_hardware(written).name == name

    def test_an_unknown_name_gets_the_nearest_and_all(self) -> None:
        with pytest.raises(HardwareError) as caught:
            find_hardware("gb20")
        text = str(caught.value)
        assert "no hardware is called 'gb20' (did you mean gb200?)" in text
        assert all(name in text for name in SHIPPED)

    def test_a_name_like_no_other_gets_no_guess(self) -> None:
        with pytest.raises(HardwareError) as caught:
            find_hardware("zzzzzz")
        assert "did you mean" not in str(caught.value)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "-",
            "\x1b[31mh100",
            "h\n1",
            "<b>h100<b>",
            "h\0",
            pytest.param("h" * 10**6, id="long"),
        ],
    )
    def test_an_odd_name_is_unknown_and_shown_harmlessly(self, name: str) -> None:
        with pytest.raises(HardwareError) as caught:
            find_hardware(name)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000


class TestJobs:
    @pytest.mark.parametrize(("ranks", "local"), [(1, 1), (3, 3), (8, 8), (16, 8), (1024, 8)])
    def test_hosts_are_full_unless_one_is_enough(self, ranks: int, local: int) -> None:
        arguments = topology_arguments(find_hardware("h100"), ranks)
        assert (arguments["local_world_size"], arguments["pod_size"]) == (local, None)

    def test_hosts_that_would_not_be_full_are_an_error(self) -> None:
        with pytest.raises(HardwareError, match=r"12 ranks do not fill hosts of 8 \(h100\)"):
            topology_arguments(find_hardware("h100"), 12)

    @pytest.mark.parametrize(("ranks", "local"), [(12, 6), (12, 8), (32, 16), (4, 1)])
    def test_given_hosts_are_taken_as_they_are(self, ranks: int, local: int) -> None:
        hardware = find_hardware("h100")
        arguments = topology_arguments(hardware, ranks, local)
        assert arguments["local_world_size"] == local
        assert arguments["ddr_cap"] == hardware.ddr

    @pytest.mark.parametrize(("ranks", "local"), [(0, None), (-8, None), (8, 0), (8, -1)])
    def test_no_ranks_are_an_error(self, ranks: int, local: int | None) -> None:
        with pytest.raises(HardwareError, match="at least 1"):
            topology_arguments(find_hardware("h100"), ranks, local)

    @pytest.mark.parametrize(
        ("ranks", "pod"),
        [(1, 1), (4, 1), (8, 2), (64, 16), (72, 18), (128, 16), (144, 18), (80, 10), (76, 1)],
    )
    def test_pods_are_the_largest_that_are_all_full(self, ranks: int, pod: int) -> None:
        assert topology_arguments(find_hardware("gb200"), ranks)["pod_size"] == pod

    @pytest.mark.needs("torchrec")
    def test_torchrec_can_group_the_ranks_of_any_job(self) -> None:
        from torchrec.distributed.planner.types import Topology

        gb200 = find_hardware("gb200")
        for hosts in range(1, 60):
            topology = Topology(**topology_arguments(gb200, 4 * hosts))
            assert topology.world_size % topology.intra_group_size == 0
            assert topology.intra_group_size <= 72

    def test_within_one_pod_hosts_talk_over_nvlink(self) -> None:
        gb200 = find_hardware("gb200")
        assert for_job(gb200, 72).inter_host_bw == gb200.intra_host_bw
        assert for_job(gb200, 8).inter_host_bw == gb200.intra_host_bw
        assert for_job(gb200, 36, 2).inter_host_bw == gb200.intra_host_bw
        assert for_job(gb200, 76).inter_host_bw == gb200.inter_host_bw
        assert for_job(gb200, 38, 2).inter_host_bw == gb200.inter_host_bw

    def test_a_job_of_its_own_hardware_changes_nothing(self) -> None:
        gb200 = find_hardware("gb200")
        once = for_job(gb200, 144)
        assert once == gb200
        assert for_job(once, 144) == once

    def test_prices_and_sources_stay(self) -> None:
        mine = one({"like": "gb200", "price": 3})
        job = for_job(mine, 8)
        assert (job.price, job.sources) == (3, mine.sources)


class TestHardware:
    def test_it_is_frozen_and_hashable(self) -> None:
        h100 = find_hardware("h100")
        with pytest.raises(FrozenInstanceError):
            h100.hbm = 1  # type: ignore[misc]
        assert hash(h100) == hash(find_hardware("H100"))

    def test_sources_are_ones_own_copy(self) -> None:
        find_hardware("h100").sources.clear()
        assert find_hardware("h100").sources

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("device", "gpu"),
            ("ddr", -1),
            ("hbm_mem_bw", 0.0),
            ("inter_host_bw", float("inf")),
            ("ssd_mem_bw", float("nan")),
            ("ranks_per_host", 0),
            ("pod_size", 0),
        ],
    )
    def test_senseless_figures_are_refused(self, field: str, value: Any) -> None:
        with pytest.raises(HardwareError, match=f"`{field}`"):
            replace(find_hardware("h100"), **{field: value})

    def test_finding_shipped_hardware_loads_little(self) -> None:
        code = (
            "import sys; from fastplan.spec.hardware import find_hardware; find_hardware('h100');"
            "print(*{'torch', 'torchrec', 'numba', 'numpy', 'yaml', 'difflib'} & {*sys.modules})"
        )
        assert python(code) == ""
