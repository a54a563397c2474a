"""Files of measured times: read with limits, matched to SKUs, and estimated three ways."""

import json

import msgspec
import pytest

from fastplan.files.document import SpecError
from fastplan.measure import records as module
from fastplan.measure.record_estimates import estimate_records, match_device
from fastplan.measure.record_work import (
    Unknown,
    cache_misses,
    distinct_ids,
    exchange_work,
    lookup_work,
    milliseconds,
)
from fastplan.measure.records import (
    CollectiveRecord,
    LookupRecord,
    Record,
    parse_records,
    read_records,
)
from fastplan.spec.hardware import HardwareError, find_hardware

LOOKUP = {
    "id": "a",
    "kind": "lookup_forward",
    "gpu": "H100 SXM 80GB HBM3",
    "kernel": "fused",
    "tables": 1,
    "rows_per_table": 16777216,
    "dim": 128,
    "dtype": "float32",
    "output_dtype": "float32",
    "pooling": 1,
    "pooled": False,
    "bags_per_table": 1048576,
    "ids_total": 1048576,
    "ids_unique": 293987,
    "id_distribution": "power law alpha 1.05",
    "optimizer": "adam",
    "value": 0.3554,
    "unit": "ms",
}
COLLECTIVE = {
    "id": "b",
    "kind": "collective",
    "collective": "all_to_all",
    "gpu": "H100 SXM",
    "gpus_per_host": 8,
    "hosts": 1,
    "ranks": 8,
    "message_bytes": 2147483648,
    "value": 5532.7,
    "unit": "us",
}


def parsed(*objects):
    return list(parse_records([json.dumps(each).encode() for each in objects], "times.jsonl"))


def lookup(**changes):
    return msgspec.convert({**LOOKUP, **changes}, LookupRecord)


def collective(**changes):
    return msgspec.convert({**COLLECTIVE, **changes}, CollectiveRecord)


def estimated(record, **arguments):
    (found,) = estimate_records([record], **arguments)
    return found


class TestReading:
    def test_kinds_have_their_fields_and_others_a_name(self):
        one, other, step = parsed(LOOKUP, COLLECTIVE, {"id": "c", "kind": "step", "rows": "many"})
        assert isinstance(one, LookupRecord)
        assert isinstance(other, CollectiveRecord)
        assert type(step) is Record

    def test_unknown_fields_are_ignored(self):
        assert parsed({**LOOKUP, "weather": [1, {"a": 2}]}) == parsed(LOOKUP)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"{", "truncated"),
            (b"3", "Expected `object`"),
            (b'{"id": "a"}', "missing required field `kind`"),
            (json.dumps({**LOOKUP, "value": -1}).encode(), "$.value"),
            (json.dumps({**LOOKUP, "ids_total": "many"}).encode(), "$.ids_total"),
            (json.dumps({**COLLECTIVE, "ranks": 0}).encode(), "$.ranks"),
            (b'{"id": "\xff", "kind": "x"}', ""),
            (b"[" * 100_000, ""),
        ],
    )
    def test_a_malformed_line_is_an_error_with_its_number(self, line, words):
        with pytest.raises(SpecError) as caught:
            list(parse_records([json.dumps(LOOKUP).encode(), b"", line], "times.jsonl"))
        assert str(caught.value).startswith("times.jsonl:3: ")
        assert words in str(caught.value)

    def test_files_are_bounded(self, tmp_path, monkeypatch):
        path = tmp_path / "times.jsonl"
        path.write_text(f"{json.dumps(LOOKUP)}\n" * 3)
        assert len(read_records(path)) == 3
        monkeypatch.setattr(module, "MOST_RECORDS", 2)
        with pytest.raises(SpecError, match=r"times\.jsonl:3: has more than 2 records"):
            read_records(path)
        monkeypatch.setattr(module, "MOST_BYTES", 100)
        with pytest.raises(SpecError, match="is larger than"):
            read_records(path)
        with pytest.raises(SpecError, match="can't be read"):
            read_records(tmp_path / "none")

    def test_units(self):
        assert milliseconds(lookup(unit=None)) == 0.3554
        assert milliseconds(collective(unit=None)) == pytest.approx(5.5327)
        assert milliseconds(lookup(unit="s")) == pytest.approx(355.4)
        assert isinstance(milliseconds(lookup(unit="hours")), Unknown)


class TestDevices:
    @pytest.mark.parametrize(
        ("name", "sku"),
        [
            ("H100 SXM 80GB HBM3", "h100"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("H200", "h200"),
            ("GH200 120GB", "gh200"),
            ("A100 PCIe 80GB", "a100-80"),
            ("NVIDIA A100-SXM4-40GB", "a100-40"),
            ("A100-40 SXM", "a100-40"),
            ("A100", "a100-80"),
            ("Tesla V100-SXM2-16GB", "v100-32"),
            ("GB200", "gb200-nvl72"),
            ("GB300 NVL72", "gb300-nvl72"),
            ("MI350X/MI355X (gfx950)", "mi355x"),
            ("NVIDIA L40S", "l40s"),
        ],
    )
    def test_names_match_skus(self, name, sku):
        assert match_device(name).sku == sku

    @pytest.mark.parametrize(
        "name",
        [
            None,
            "",
            "unknown (Meta, 2021, V100 class)",
            "A10G",
            "H100 PCIe (NVLink bridge)",
            "H100 NVL 94GB",
            "H200 NVL",
            "H100 or A100",
            "A100 MIG 1g.5gb",
            "RTX 4090",
            "H1000",
        ],
    )
    def test_vague_names_and_other_variants_match_nothing(self, name):
        match = match_device(name)
        assert match.sku is None
        assert match.reason

    def test_a_card_without_nvlink_has_lookups_only(self):
        assert estimated(lookup(gpu="A100 PCIe 80GB")).hardware_ms is not None
        found = estimated(collective(gpu="A100 PCIe 80GB"))
        assert found.hardware_ms is None
        assert "other links" in found.reason


class TestWork:
    def test_a_lookup_in_the_terms_of_the_core(self):
        work = lookup_work(lookup(kind="lookup_fwd_bwd", dim=100))
        assert (work.forward, work.backward, work.states) == (True, True, 2.0)
        assert (work.row_bytes, work.output_bytes) == (416.0, 416.0)
        assert (work.ids, work.unique, work.outputs) == (1048576, 293987, 1048576)

    def test_pooling_makes_fewer_outputs(self):
        work = lookup_work(lookup(pooled=True, pooling=4, bags_per_table=262144))
        assert work.outputs == 262144

    def test_distinct_ids_of_a_power_law(self):
        record = lookup(ids_unique=None)
        assert distinct_ids(record, 1048576) == pytest.approx(293987, rel=0.05)

    def test_distinct_ids_of_equally_likely_rows(self):
        record = lookup(ids_unique=None, id_distribution="uniform", tables=32, rows_per_table=1e5)
        assert distinct_ids(record, 327680) == pytest.approx(311524, rel=0.01)

    def test_misses_come_from_the_size_of_the_cache(self):
        record = lookup(
            kernel="fused_uvm_caching", id_distribution="uniform", cache_load_factor=0.2
        )
        assert cache_misses(record, 1e6, 1000) == pytest.approx(800)
        skewed = lookup(kernel="fused_uvm_caching", cache_load_factor=0.2)
        assert cache_misses(skewed, 1e6, 1000) < 400
        given = lookup(kernel="fused_uvm_caching", misses_per_batch_expected=7)
        assert cache_misses(given, 1e6, 1000) == 7

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"kernel": "hkv"}, "no kernel `hkv`"),
            ({"dim": None}, "`dim`"),
            ({"dtype": "complex"}, "`dtype`"),
            ({"ids_total": None, "pooling": None}, "`ids_total`"),
            ({"kernel": "fused_uvm", "ids_unique": None, "id_distribution": None}, "`ids_unique`"),
            ({"kernel": "fused_uvm_caching"}, "cache's size"),
            ({"kind": "lookup_backward", "optimizer": None}, "`optimizer` is missing"),
            ({"kind": "lookup_backward", "optimizer": "magic"}, "`optimizer` is unknown"),
        ],
    )
    def test_what_is_missing_is_named(self, changes, words):
        work = lookup_work(lookup(**changes))
        assert isinstance(work, Unknown)
        assert words in work.reason

    def test_a_forward_pass_in_hbm_does_not_need_distinct_ids(self):
        work = lookup_work(lookup(ids_unique=None, id_distribution=None))
        assert not isinstance(work, Unknown)

    @pytest.mark.parametrize(
        ("sku", "changes", "domain", "network"),
        [
            ("h100", {}, 8, None),
            ("h100", {"hosts": 2, "ranks": 16}, 8, None),
            ("h100", {"hosts": 2, "ranks": 16, "network": "EFA 3200 Gb/s per host"}, 8, 50e6),
            ("gb200", {"hosts": 9, "ranks": 36, "gpus_per_host": 4}, 36, None),
            (
                "gb200",
                {"hosts": 32, "ranks": 128, "gpus_per_host": 4, "network": "400 Gb/s per GPU"},
                64,
                50e6,
            ),
            (
                "gb200",
                {"hosts": 4, "ranks": 8, "gpus_per_host": 2, "network": "400 Gb/s per GPU"},
                2,
                50e6,
            ),
            ("a100", {"hosts": 2, "ranks": 16, "network": "16 x 100 Gb/s per host"}, 8, 25e6),
        ],
    )
    def test_domains_and_networks(self, sku, changes, domain, network):
        work = exchange_work(collective(**changes), find_hardware(sku))
        assert (work.domain_ranks, work.network) == (domain, network)


class TestEstimates:
    def test_a_lookup_three_ways(self):
        found = estimated(lookup())
        assert found.sku == "h100"
        assert found.reason is None
        assert found.torchrec_ms == pytest.approx(1.1235, rel=0.01)
        # Bandwidths alone: 897 GiB/s and 3.35 TB/s.
        ratio = find_hardware("h100").hbm_mem_bw / find_hardware("torchrec").hbm_mem_bw
        assert found.torchrec_ms / found.datasheet_ms == pytest.approx(ratio)
        assert found.ratio("hardware") < 1.3

    def test_a_collective_three_ways(self):
        found = estimated(collective())
        assert found.torchrec_ms == 2147483648 / find_hardware("torchrec").intra_host_bw
        assert found.datasheet_ms == 2147483648 / find_hardware("h100").intra_host_bw
        assert found.ratio("hardware") < 1.3

    def test_across_hosts_the_network_counts(self):
        found = estimated(collective(hosts=2, ranks=16))
        assert found.datasheet_ms == 2147483648 / find_hardware("h100").inter_host_bw

    def test_an_unknown_device_has_torchrecs_estimate_and_a_reason(self):
        found = estimated(lookup(gpu="TPU v5"))
        assert found.torchrec_ms is not None
        assert found.datasheet_ms is found.hardware_ms is None
        assert "TPU v5" in found.reason

    def test_a_map_names_the_sku(self):
        record = lookup(gpu="H100 NVL 94GB")
        assert estimated(record, sku_map={"H100 NVL 94GB": "h100"}).sku == "h100"
        with pytest.raises(HardwareError, match="no hardware is called"):
            estimated(record, sku_map={"x": "h1000"})

    def test_a_map_may_name_a_sku_file(self, tmp_path):
        path = tmp_path / "lab.yaml"
        path.write_text("like: h100\ncosts: {hbm_forward: {latency: 5}}\n")
        found = estimated(lookup(gpu="ours"), sku_map={"ours": str(path)})
        assert found.hardware_ms > 5

    def test_a_sku_without_constants_says_so(self):
        found = estimated(lookup(), sku_map={"H100 SXM 80GB HBM3": "torchrec"})
        assert "torchrec has no `hbm_forward.latency`" in found.reason

    def test_other_kinds_have_a_reason(self):
        (step,) = parsed({"id": "c", "kind": "step", "value": 3})
        assert "kind `step`" in estimated(step).reason

    @pytest.mark.parametrize(
        "changes",
        [
            {"rows_per_table": 1e18},
            {"tables": 1e18, "bags_per_table": 1e18},
            {"dim": 1e18},
            {"rows_per_table": 0.1},
            {"pooling": 1e18},
            {"kernel": "key_value"},
            {"id_distribution": "power law alpha 99", "ids_unique": None},
        ],
    )
    def test_absurd_shapes_are_no_crash(self, changes):
        found = estimated(lookup(**changes))
        json.dumps(found.to_json(), allow_nan=False)
