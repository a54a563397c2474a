"""Constants from micro-benchmarks whose truth is known."""

import numpy as np
import pytest

from fastplan.measure.cases import DEFAULT_SIZES, HOST, LOOKUP, WORLD, cases, sizes_of
from fastplan.measure.constants import Point, calibration, slowest_median
from fastplan.measure.settings import MeasureError
from fastplan.report.estimates import estimates
from fastplan.spec.model import replace
from tests.measure.points import BACKWARD, EXCHANGE, LINK, MEMORY, NETWORK, REDUCE, points
from tests.measure.samples import planned, spec


def near(value, rel=0.03):
    return pytest.approx(value, rel=rel)


def test_a_cpu_gives_its_constants_back():
    found = calibration(points(), "cpu", 4, 1).constants
    assert {name: constant.value for name, constant in found.items()} == {
        "ddr_mem_bw": near(MEMORY / 1000),
        "bwd_compute_multiplier": near(BACKWARD),
        "weighted_feature_bwd_compute_multiplier": near(1.0, 0.05),
        "intra_host_bw": near(EXCHANGE / 1000),
        "inter_host_bw": near(REDUCE / 4 / 1000),
    }
    for constant in found.values():
        assert constant.low <= constant.value <= constant.high


def test_what_a_cpu_does_not_have_is_left_out_with_the_reason():
    found = calibration(points(), "cpu", 4, 1)
    assert found.left_out == {
        "hbm_mem_bw": "CPUs have no HBM",
        "hbm_to_ddr_mem_bw": "CPUs have no link to a device",
        "ssd_mem_bw": "no SSD kernel is benchmarked",
    }


def test_on_one_host_the_network_is_said_not_to_be_measured():
    found = calibration(points(), "cpu", 4, 1).constants["inter_host_bw"]
    assert "no network was measured" in found.source


def test_several_hosts_tell_the_network_s_bandwidth():
    found = calibration(points(hosts=2), "cpu", 4, 2).constants
    assert found["intra_host_bw"].value == near(EXCHANGE / 1000)
    assert found["inter_host_bw"].value == near(NETWORK / 1000)


def test_hosts_of_one_rank_tell_nothing_of_exchanges_within():
    found = calibration(points(ranks=2, hosts=2), "cpu", 2, 2)
    assert "one rank" in found.left_out["intra_host_bw"]
    assert found.constants["inter_host_bw"].value == near(NETWORK / 1000)


def test_a_gpu_gives_memory_and_link():
    found = calibration(points("cuda"), "cuda", 4, 1)
    assert found.constants["hbm_mem_bw"].value == near(MEMORY / 1000)
    assert found.constants["hbm_to_ddr_mem_bw"].value == near(LINK / 1000)
    assert "ddr_mem_bw" in found.left_out
    assert any("fused_uvm_caching" in remark for remark in found.remarks)


def test_times_that_are_noise_determine_nothing():
    random = np.random.default_rng(5)
    noisy = [
        Point(point.case, {work: float(random.uniform(1e-4, 1e-2)) for work in point.seconds})
        for point in points()
    ]
    found = calibration(noisy, "cpu", 4, 1)
    assert found.constants == {}
    assert set(found.left_out) >= {"ddr_mem_bw", "bwd_compute_multiplier", "intra_host_bw"}


def test_collectives_that_differ_are_remarked():
    found = calibration(points(reduce_scatter=0.2e9), "cpu", 4, 1)
    assert any(remark.startswith("collectives differ") for remark in found.remarks)
    assert not any(
        remark.startswith("collectives differ")
        for remark in calibration(points(), "cpu", 4, 1).remarks
    )


def test_a_latency_that_torchrec_has_no_word_for_is_remarked():
    late = [
        Point(point.case, {work: 5e-3 + seconds for work, seconds in point.seconds.items()})
        for point in points()
    ]
    remarks = calibration(late, "cpu", 4, 1).remarks
    assert any("TorchRec has no latency" in remark for remark in remarks)


def test_a_lookup_counts_what_the_estimate_has_for_it():
    given = spec(ranks=4)
    table = replace(given.tables[0], dim=64, pooling=(8.0,))
    given = replace(given, tables=(table,), batch_size=128)
    case = next(
        case
        for case in cases("cpu", 4, 4, DEFAULT_SIZES["cpu"])
        if case.kind == LOOKUP
        and (case.dim, case.pooling, case.samples) == (64, 8, 512)
        and case.tables == 1
        and not case.weighted
    )
    plan = planned(given, "table_wise")
    milliseconds = estimates(plan.basis).rank_parts["fwd_compute"].max()
    assert case.counted == pytest.approx(milliseconds * given.topology.hardware.ddr_mem_bw)


def test_sizes_follow_the_model():
    sizes = sizes_of(spec(ranks=4), 4)
    assert sizes.batch_sizes == (16, 32, 64)  # four shapes are too few for a fit
    assert sizes.dims == (32, 64)
    assert sizes.poolings == (1, 5)
    assert sizes.rows == 1000
    even = 32 * (64 + 32) * 2 * 4
    assert sizes.buffers == (even // 2, even // 2 * 16)


def test_a_model_of_one_shape_is_calibrated_at_other_batch_sizes_too():
    given = spec()
    sizes = sizes_of(replace(given, tables=given.tables[:1]), 2)
    assert sizes.batch_sizes == (4, 8, 16, 32, 64, 128, 256)


def test_many_sizes_are_thinned_out():
    given = spec()
    tables = tuple(
        replace(given.tables[0], name=f"t{i}", dim=8 * (i + 1), pooling=(float(i),))
        for i in range(30)
    )
    sizes = sizes_of(replace(given, tables=tables), 2)
    assert len(sizes.dims) == len(sizes.poolings) == 4
    assert (sizes.dims[0], sizes.dims[-1]) == (8, 240)
    assert sizes.batch_sizes == (given.batch_size,)


def test_collectives_need_company():
    with pytest.raises(MeasureError, match="--nproc 2"):
        cases("cpu", 1, 1, DEFAULT_SIZES["cpu"])


def test_one_host_has_no_cases_across_hosts():
    scopes = {case.scope for case in cases("cpu", 4, 4, DEFAULT_SIZES["cpu"])}
    assert scopes == {HOST}
    assert WORLD in {case.scope for case in cases("cpu", 4, 2, DEFAULT_SIZES["cpu"])}


def test_the_slowest_rank_of_each_repetition_counts():
    ranks = [{"copy": [1.0, 5.0, 2.0]}, {"copy": [3.0, 1.0, 2.5]}]
    assert slowest_median(ranks) == {"copy": 3.0}
