"""The shipped SKUs: their figures, where these come from, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastplan.spec import hardware as module
from fastplan.spec.hardware import find_hardware, known_hardware, topology_arguments
from fastplan.spec.skus import FIGURES, key_of
from tests.spec.skus import GIB, SHIPPED

DOCS = Path(__file__).parents[2] / "docs" / "hardware.md"


class TestShipped:
    def test_all_are_known_in_the_order_of_the_file(self) -> None:
        assert tuple(each.name for each in known_hardware()) == SHIPPED

    @pytest.mark.needs("torchrec")
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
    @pytest.mark.needs("torchrec")
    def test_torchrecs_own_make_its_default_topology(self, name: str, device: str) -> None:
        from torchrec.distributed.planner.types import Topology

        made = Topology(**topology_arguments(find_hardware(name), 16))
        assert made._hash() == Topology(16, device, local_world_size=8)._hash()

    @pytest.mark.parametrize("name", SHIPPED)
    @pytest.mark.needs("torchrec")
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
    @pytest.mark.needs("torchrec")
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
            key_of(each) for sku in module._shipped().values() for each in (sku.name, *sku.aliases)
        ]
        assert len(set(spellings)) == len(spellings)


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


@pytest.mark.needs("docs")
def test_the_docs_show_the_shipped_figures() -> None:
    assert parts(DOCS.read_text())[1] == table(), "run python -m tests.spec.test_shipped_skus"


if __name__ == "__main__":
    before, _, after = parts(DOCS.read_text())
    DOCS.write_text(before + table() + after)
