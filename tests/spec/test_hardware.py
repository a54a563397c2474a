"""Named hardware: the shipped figures, the user's own, and the topologies made from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from fastplan.spec import hardware as module
from fastplan.spec.document import SpecError, document_of
from fastplan.spec.hardware import (
    FIGURES,
    Hardware,
    HardwareError,
    find_hardware,
    for_job,
    known_hardware,
    read_hardware,
    topology_arguments,
)

GIB = 1 << 30
SHIPPED = (
    "torchrec",
    "torchrec-cpu",
    "v100-32",
    "a100-40",
    "a100-80",
    "h100",
    "h200",
    "b200",
    "gb200-nvl72",
    "mi300x",
    "l40s",
    "cpu",
)
COMPLETE = {
    "device": "cuda",
    "hbm": "10GiB",
    "ddr": "20GiB",
    "ssd": "1TB",
    "hbm_mem_bw": "1TB/s",
    "ddr_mem_bw": "50GB/s",
    "ssd_mem_bw": "1GB/s",
    "hbm_to_ddr_mem_bw": "16GB/s",
    "intra_host_bw": "300GB/s",
    "inter_host_bw": "10GB/s",
    "ranks_per_host": 4,
    "bwd_compute_multiplier": 2,
    "weighted_feature_bwd_compute_multiplier": 1,
}
DOCS = Path(__file__).parents[2] / "docs" / "hardware.md"


@pytest.fixture(autouse=True)
def no_user_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTPLAN_SKUS", raising=False)


def one(sku: dict[str, Any], name: str = "mine") -> Hardware:
    [hardware] = read_hardware(document_of({"skus": {name: sku}}, "skus.json"))
    return hardware


def problem(value: Any, file: str = "skus.json") -> str:
    with pytest.raises(SpecError) as caught:
        read_hardware(document_of(value, file))
    return str(caught.value)


def saved(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value, indent=2))
    return str(path)


class TestShipped:
    def test_all_are_known_in_the_order_of_the_file(self) -> None:
        assert tuple(each.name for each in known_hardware()) == SHIPPED

    def test_torchrecs_own_are_to_the_bit_its_constants(self) -> None:
        from torchrec.distributed.planner import constants

        own = find_hardware("torchrec")
        assert own.device == "cuda"
        assert (own.hbm, own.ddr, own.ssd) == (
            constants.HBM_CAP,
            constants.DDR_CAP,
            constants.SSD_CAP,
        )
        assert own.hbm_mem_bw == constants.HBM_MEM_BW
        assert own.ddr_mem_bw == constants.DDR_MEM_BW
        assert own.ssd_mem_bw == constants.SSD_MEM_BW
        assert own.hbm_to_ddr_mem_bw == constants.HBM_TO_DDR_MEM_BW
        assert own.intra_host_bw == constants.INTRA_NODE_BANDWIDTH
        assert own.inter_host_bw == constants.CROSS_NODE_BANDWIDTH
        assert own.bwd_compute_multiplier == constants.BWD_COMPUTE_MULTIPLIER
        assert (
            own.weighted_feature_bwd_compute_multiplier
            == constants.WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER
        )

    @pytest.mark.parametrize(("name", "device"), [("torchrec", "cuda"), ("torchrec-cpu", "cpu")])
    def test_torchrecs_own_make_its_default_topology(self, name: str, device: str) -> None:
        from torchrec.distributed.planner.types import Topology

        made = Topology(**topology_arguments(find_hardware(name), 16))
        assert made._hash() == Topology(16, device, local_world_size=8)._hash()

    @pytest.mark.parametrize("name", SHIPPED)
    def test_each_makes_a_topology_with_its_figures(self, name: str) -> None:
        from torchrec.distributed.planner.types import Topology

        hardware = find_hardware(name)
        ranks = 200 * hardware.ranks_per_host
        topology = Topology(**topology_arguments(hardware, ranks))
        assert topology.compute_device == hardware.device
        assert topology.world_size == ranks
        assert topology.local_world_size == hardware.ranks_per_host
        storage = topology.devices[-1].storage
        assert (storage.hbm, storage.ddr, storage.ssd) == (
            hardware.hbm,
            hardware.ddr,
            hardware.ssd,
        )
        for figure in (each for each in FIGURES if each.endswith(("_bw", "_multiplier"))):
            assert getattr(topology, figure) == getattr(hardware, figure), figure

    @pytest.mark.parametrize("name", SHIPPED)
    def test_torchrec_finds_each_plausible(self, name: str) -> None:
        from torchrec.distributed.planner.types import HardwareConfig

        hardware = find_hardware(name)
        config = HardwareConfig(
            **{f"{size}_cap_bytes": getattr(hardware, size) for size in ("hbm", "ddr", "ssd")},
            **{each: getattr(hardware, each) for each in FIGURES if each.endswith("_bw")},
        )
        assert config.get_validation_issues(hardware.device) == []

    @pytest.mark.parametrize("name", SHIPPED)
    def test_every_figure_has_a_source(self, name: str) -> None:
        hardware = find_hardware(name)
        stated = {each for each in FIGURES if getattr(hardware, each) is not None}
        assert hardware.sources.keys() == stated
        assert all(len(source) > 10 for source in hardware.sources.values())
        assert "skus.json" not in hardware.sources.values(), "a figure without a source of its own"
        assert hardware.about
        assert hardware.price is None

    @pytest.mark.parametrize("name", SHIPPED[2:])
    def test_only_what_datasheets_do_not_have_is_torchrecs(self, name: str) -> None:
        hardware = find_hardware(name)
        torchrecs = {each for each, source in hardware.sources.items() if "torchrec/" in source}
        on_cpu = {"hbm_mem_bw", "hbm_to_ddr_mem_bw"} if hardware.device == "cpu" else set()
        assert torchrecs == on_cpu | {
            "ssd_mem_bw",
            "bwd_compute_multiplier",
            "weighted_feature_bwd_compute_multiplier",
        }

    def test_ranks_share_what_is_of_the_host(self) -> None:
        h100 = find_hardware("h100")
        assert h100.hbm == 80 * GIB
        assert h100.ddr * 8 == 2048 * GIB
        assert h100.ssd * 8 == 30_720 * 10**9
        assert h100.ddr_mem_bw * 8 == 614.4e9 / 1000
        assert h100.hbm_mem_bw == 3.35e12 / 1000

    def test_cpu_ranks_have_no_hbm(self) -> None:
        assert [each.name for each in known_hardware() if not each.hbm] == ["torchrec-cpu", "cpu"]

    def test_no_two_share_a_name_or_alias(self) -> None:
        spellings = [
            module._key(each)
            for sku in module._shipped().values()
            for each in (sku.name, *sku.aliases)
        ]
        assert len(set(spellings)) == len(spellings)


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


class TestFiles:
    def test_one_sku_at_the_top_is_called_after_its_file(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "lab.json", {"like": "h100", "hbm": "79GiB", "price": 2.5})
        lab = find_hardware(path)
        assert (lab.name, lab.hbm, lab.price) == ("lab", 79 * GIB, 2.5)
        assert lab.hbm_mem_bw == find_hardware("h100").hbm_mem_bw

    def test_one_sku_at_the_top_may_have_a_name(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "lab.json", {"name": "our-h100", "like": "h100"})
        assert find_hardware(path).name == "our-h100"
        assert find_hardware(f"{path}:Our_H100").name == "our-h100"

    def test_yaml_does_too(self, tmp_path: Path) -> None:
        path = tmp_path / "lab.yaml"
        path.write_text("skus:\n  mine:\n    like: h100\n    inter_host_bw: 100Gbit/s\n")
        assert find_hardware(str(path)).inter_host_bw == 12.5e9 / 1000

    def test_one_of_several_is_chosen_by_name(self, tmp_path: Path) -> None:
        skus = {"a": {"like": "h100"}, "b": {"like": "l40s", "aliases": ["bee"]}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware(f"{path}:b").hbm == find_hardware("l40s").hbm
        assert find_hardware(f"{path}:BEE").name == "b"
        with pytest.raises(HardwareError, match=r"lab\.json: which SKU\? .* known: a, b$"):
            find_hardware(path)
        with pytest.raises(HardwareError, match=r"lab\.json: no hardware is called 'h100'"):
            find_hardware(f"{path}:h100")

    def test_a_relative_file_without_a_folder_will_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved(tmp_path / "lab.json", {"like": "h100"})
        monkeypatch.chdir(tmp_path)
        assert find_hardware("lab.json").name == "lab"

    @pytest.mark.parametrize("path", ["none.json", "none.yaml:a", "./none", "a\0b.json"])
    def test_a_file_that_is_not_there_is_named(self, path: str) -> None:
        with pytest.raises(SpecError, match="can't be read"):
            find_hardware(path)

    def test_extra_files_add_and_override(self, tmp_path: Path) -> None:
        skus = {"mine": {"like": "h100"}, "H100": {"like": "h100", "hbm": "70GiB"}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware("mine", extra=[path]).hbm == 70 * GIB
        assert find_hardware("h100-80", extra=[Path(path)]).hbm == 70 * GIB
        names = [each.name for each in known_hardware([path])]
        assert names == [{"h100": "H100"}.get(name, name) for name in SHIPPED] + ["mine"]
        assert find_hardware("h100").hbm == 80 * GIB

    def test_a_name_comes_before_an_alias(self, tmp_path: Path) -> None:
        skus = {"a100": {"like": "a100-40"}, "other": {"like": "h100", "aliases": ["h200"]}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware("a100", extra=[path]).hbm == 40 * GIB
        assert find_hardware("h200", extra=[path]).name == "h200"

    def test_a_later_alias_comes_before_an_earlier_one(self, tmp_path: Path) -> None:
        sku = {"name": "mine", "like": "gb200", "aliases": ["gb200"]}
        path = saved(tmp_path / "lab.json", sku)
        assert find_hardware("gb200", extra=[path]).name == "mine"


class TestEnvironment:
    def test_its_files_add_and_override_in_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = saved(tmp_path / "first.json", {"name": "mine", "like": "h100", "hbm": "1GiB"})
        second = saved(tmp_path / "second.json", {"name": "mine", "like": "mine", "ddr": "2GiB"})
        third = saved(tmp_path / "third.json", {"name": "mine", "like": "mine", "ssd": "3GiB"})
        monkeypatch.setenv("FASTPLAN_SKUS", os.pathsep.join(["", first, second]))
        mine = find_hardware("mine")
        assert (mine.hbm, mine.ddr) == (GIB, 2 * GIB)
        assert find_hardware("mine", extra=[third]).ssd == 3 * GIB
        assert find_hardware(third).ddr == 2 * GIB
        assert find_hardware(saved(tmp_path / "x.json", {"like": "mine"})).hbm == GIB

    def test_a_bad_file_of_it_is_traced_to_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FASTPLAN_SKUS", str(tmp_path / "gone.json"))
        with pytest.raises(HardwareError, match=r"^FASTPLAN_SKUS: .*gone\.json: can't be read"):
            known_hardware()


class TestReading:
    def test_a_complete_sku_needs_no_other(self) -> None:
        mine = one(COMPLETE)
        assert (mine.ddr, mine.ddr_mem_bw, mine.pod_size) == (20 * GIB, 50e9 / 1000, None)
        assert set(mine.sources.values()) == {"skus.json"}

    @pytest.mark.parametrize("name", COMPLETE)
    def test_a_missing_figure_is_named_with_the_way_out(self, name: str) -> None:
        sku = {each: value for each, value in COMPLETE.items() if each != name}
        text = problem({"skus": {"mine": sku}})
        assert f"skus.mine.{name}: is missing" in text
        assert "`like`" in text

    def test_likes_may_be_chained_in_any_order(self) -> None:
        skus = {
            "c": {"like": "b", "ssd": "3GiB"},
            "b": {"like": "A", "ddr": "2GiB"},
            "a": {"like": "h100", "hbm": "1GiB"},
        }
        c, b, a = read_hardware(document_of({"skus": skus}, "skus.json"))
        assert (c.hbm, c.ddr, c.ssd) == (GIB, 2 * GIB, 3 * GIB)
        assert (b.ssd, a.ddr) == (a.ssd, find_hardware("h100").ddr)

    def test_likes_in_a_circle_are_shown(self) -> None:
        skus = {"a": {"like": "b"}, "b": {"like": "c"}, "c": {"like": "a"}}
        assert "goes in a circle: a -> b -> c -> a" in problem({"skus": skus})

    def test_too_many_likes_in_a_row_are_refused(self) -> None:
        skus = {f"s{i}": {"like": f"s{i + 1}"} for i in range(2000)} | {"s2000": {"like": "h100"}}
        assert "more than 20 in a row" in problem({"skus": skus})

    def test_one_like_itself_that_overrides_nothing_is_an_error(self) -> None:
        text = problem({"skus": {"mine": {"like": "mine"}}})
        assert "skus.mine.like: no hardware is called 'mine'" in text

    def test_an_unknown_like_gets_the_nearest(self) -> None:
        assert "(did you mean h100?)" in problem({"skus": {"mine": {"like": "h10"}}})

    def test_aliases_go_to_no_heir(self, tmp_path: Path) -> None:
        skus = {"a": {"like": "h100", "aliases": ["x"]}, "b": {"like": "a"}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware("x", extra=[path]).name == "a"
        assert find_hardware("h100-80", extra=[path]).name == "h100"

    def test_other_hosts_share_out_anew(self) -> None:
        half, h100 = one({"like": "h100", "ranks_per_host": 4}), find_hardware("h100")
        assert (half.ddr, half.ssd) == (2 * h100.ddr, 2 * h100.ssd)
        assert half.ddr_mem_bw == 2 * h100.ddr_mem_bw
        assert half.inter_host_bw == h100.inter_host_bw

    def test_a_ranks_figure_replaces_its_hosts_and_vice_versa(self) -> None:
        assert one({"like": "h100", "ddr": "5GiB"}).ddr == 5 * GIB
        assert one({"like": "torchrec", "host_ddr": "80GiB"}).ddr == 10 * GIB

    @pytest.mark.parametrize("name", ["ddr", "ssd", "ddr_mem_bw"])
    def test_a_figure_of_rank_and_host_is_refused(self, name: str) -> None:
        value = "1GB/s" if name.endswith("_bw") else "1GiB"
        sku = {"like": "h100", name: value, f"host_{name}": value}
        text = problem({"skus": {"mine": sku}})
        assert f"skus.mine.host_{name}: is of a host and `{name}` of a rank" in text

    def test_pods_can_be_taken_away(self) -> None:
        assert one({"like": "gb200", "pod_size": None}).pod_size is None
        assert one({"like": "gb200", "pod_size": 9}).pod_size == 9

    def test_a_changed_figure_loses_its_source(self) -> None:
        mine = one({"like": "h100", "host_ddr": "1TiB", "hbm": "79GiB", "sources": {"hbm": "seen"}})
        assert (mine.sources["ddr"], mine.sources["hbm"]) == ("skus.json", "seen")
        assert mine.sources["ssd"] == find_hardware("h100").sources["ssd"]

    def test_what_one_is_about_is_inherited(self) -> None:
        assert one({"like": "h100"}).about == find_hardware("h100").about
        assert one({"like": "h100", "about": "ours"}).about == "ours"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("device", "gpu"),
            ("hbm", "80 apples"),
            ("hbm", -1),
            ("hbm", 0),
            ("hbm", None),
            ("hbm_mem_bw", "0GB/s"),
            ("inter_host_bw", "fast"),
            ("host_ddr_mem_bw", True),
            ("ranks_per_host", 0),
            ("ranks_per_host", 1.5),
            ("ranks_per_host", None),
            ("ranks_per_host", 1 << 30),
            ("pod_size", 0),
            ("price", -1),
            ("price", "cheap"),
            ("bwd_compute_multiplier", float("nan")),
            ("aliases", {"a": 1}),
            ("about", ["x"]),
            ("sources", "hearsay"),
            ("like", 5),
        ],
    )
    def test_a_value_that_makes_no_sense_is_an_error_at_its_field(
        self, field: str, value: Any
    ) -> None:
        text = problem({"skus": {"mine": {"like": "h100", field: value}}})
        assert text.startswith(f"skus.json: skus.mine.{field}")

    def test_an_unknown_field_gets_line_and_nearest_name(self, tmp_path: Path) -> None:
        path = tmp_path / "lab.json"
        path.write_text('{"skus": {\n "mine": {\n  "like": "h100",\n  "hbm_bw": "1TB/s"}}}')
        with pytest.raises(SpecError) as caught:
            find_hardware(str(path))
        assert caught.value.line == 4
        assert "hbm_mem_bw" in str(caught.value)

    @pytest.mark.parametrize(
        "value",
        [[], None, 5, "h100", {}, {"skus": {}}, {"skus": []}, {"skus": {"a": 1}}, {"skus": None}],
    )
    def test_a_document_without_skus_is_refused(self, value: Any) -> None:
        assert problem(value)

    def test_skus_stand_alone(self) -> None:
        assert "like" in problem({"skus": {"a": {"like": "h100"}}, "like": "h100"})
        assert "name" in problem({"skus": {"a": {"like": "h100", "name": "b"}}})

    def test_a_source_of_no_figure_is_refused(self) -> None:
        sku = {"like": "h100", "sources": {"hbn": "x"}}
        assert "hbm" in problem({"skus": {"mine": sku}})

    @pytest.mark.parametrize(
        "name",
        [
            "",
            " ",
            "-a",
            "<script>",
            "a\nb",
            "a\x1b[0m",
            "a" * 65,
            "a/b",
            "a:b",
            "h100é",
            "a\u202eb",
        ],
    )
    def test_names_that_could_mislead_are_refused_and_shown_harmlessly(self, name: str) -> None:
        text = problem({"skus": {name: {"like": "h100"}}})
        assert "can't be called" in text

        aliased = problem({"skus": {"mine": {"like": "h100", "aliases": ["ok", name]}}})
        assert aliased.startswith("skus.json: skus.mine.aliases: can't be called")
        assert text.isprintable() and aliased.isprintable()

    def test_a_file_whose_name_is_no_sku_is_told_to_give_one(self) -> None:
        text = problem({"like": "h100"}, "my lab (1).json")
        assert text.startswith("my lab (1).json: name: can't be called 'my lab (1)'")

    def test_one_name_in_two_spellings_is_refused(self) -> None:
        skus = {"my-h100": {"like": "h100"}, "My_H100": {"like": "h100"}}
        assert "is 'my-h100' in another spelling" in problem({"skus": skus})


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
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == []


def table() -> str:
    """The table of docs/hardware.md."""
    head = (
        "SKU | device | HBM, GiB | DDR, GiB | SSD, TB | `hbm_mem_bw` | `ddr_mem_bw` "
        "| `hbm_to_ddr_mem_bw` | `intra_host_bw` | `inter_host_bw` | ranks per host | pod"
    )
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for each in known_hardware():
        cells = [
            f"`{each.name}`",
            each.device,
            *(f"{size / GIB:g}" for size in (each.hbm, each.ddr)),
            f"{each.ssd / 1e12:.3g}",
            *(
                f"{bandwidth / 1e6:.4g}"
                for bandwidth in (
                    each.hbm_mem_bw,
                    each.ddr_mem_bw,
                    each.hbm_to_ddr_mem_bw,
                    each.intra_host_bw,
                    each.inter_host_bw,
                )
            ),
            str(each.ranks_per_host),
            str(each.pod_size or ""),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| SKU | stands for | also called |", "|---|---|---|"]
    for sku in module._shipped().values():
        aliases = ", ".join(f"`{alias}`" for alias in sku.aliases)
        lines.append(f"| `{sku.name}` | {sku.about} | {aliases} |")
    return "\n".join(lines) + "\n"


def parts(text: str) -> tuple[str, str, str]:
    """A page before, within and after the marks around its table."""
    begin, end = "<!-- figures -->\n", "<!-- end of figures -->"
    first, last = text.index(begin) + len(begin), text.index(end)
    return text[:first], text[first:last], text[last:]


def test_the_docs_show_the_shipped_figures() -> None:
    assert parts(DOCS.read_text())[1] == table(), "run python -m tests.spec.test_hardware"


if __name__ == "__main__":
    before, _, after = parts(DOCS.read_text())
    DOCS.write_text(before + table() + after)
