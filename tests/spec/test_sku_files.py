"""SKU files: which of them is found, what one inherits, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fastplan.files.document import SpecError, document_of
from fastplan.spec.hardware import HardwareError, find_hardware, known_hardware, read_hardware
from tests.spec.skus import GIB, SHIPPED, one, saved

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


def problem(value: Any, file: str = "skus.json") -> str:
    with pytest.raises(SpecError) as caught:
        read_hardware(document_of(value, file))
    return str(caught.value)


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

    def test_extra_files_add_and_override(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        skus = {"mine": {"like": "h100"}, "H100": {"like": "h100", "hbm": "70GiB"}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware("mine", extra=[path]).hbm == 70 * GIB
        assert find_hardware("h100-80", extra=[Path(path)]).hbm == 70 * GIB
        assert find_hardware("h100").hbm == 80 * GIB
        monkeypatch.setenv("FASTPLAN_SKUS", path)
        names = [each.name for each in known_hardware()]
        assert names == [{"h100": "H100"}.get(name, name) for name in SHIPPED] + ["mine"]

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
        assert "is circular: a -> b -> c -> a" in problem({"skus": skus})

    def test_too_many_likes_in_a_row_are_refused(self) -> None:
        skus = {f"s{i}": {"like": f"s{i + 1}"} for i in range(2000)} | {"s2000": {"like": "h100"}}
        assert "a chain of more than 20" in problem({"skus": skus})

    def test_one_like_itself_that_overrides_nothing_is_an_error(self) -> None:
        text = problem({"skus": {"mine": {"like": "mine"}}})
        assert "skus.mine.like: no hardware is called 'mine'" in text

    def test_an_unknown_like_gets_the_nearest(self) -> None:
        assert "(did you mean h100?)" in problem({"skus": {"mine": {"like": "h10"}}})

    def test_aliases_are_not_inherited(self, tmp_path: Path) -> None:
        skus = {"a": {"like": "h100", "aliases": ["x"]}, "b": {"like": "a"}}
        path = saved(tmp_path / "lab.json", {"skus": skus})
        assert find_hardware("x", extra=[path]).name == "a"
        assert find_hardware("h100-80", extra=[path]).name == "h100"

    def test_other_hosts_divide_their_figures_again(self) -> None:
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
        assert f"skus.mine.host_{name}: is per host and `{name}` is per rank" in text

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
