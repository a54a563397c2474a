"""Constants of the hardware costs from micro-benchmarks whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.measure.cases import ADAM, COLLECTIVES, DEFAULT_SIZES, LOOKUP, Sizes, cases
from fastplan.measure.constants import Point
from fastplan.measure.cost_constants import cost_lender, fit_costs
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME, core_constants
from fastplan.spec.hardware import find_hardware, link_speeds
from tests.measure.hardware_points import TRUTH, hardware_points

CPU = replace(
    find_hardware("torchrec-cpu"),
    ranks_per_host=4,
    ddr_mem_bw=5e6,
    intra_host_bw=1e6,
    inter_host_bw=4e5,
)
GPU = replace(find_hardware("h100"), ranks_per_host=4, costs={})


def of_groups(*starts):
    return {name for name in TRUTH if name.startswith(starts)}


def check_recovered(found, names, *, within=1.3):
    """Every constant is near the truth, and nine of ten intervals have it."""
    assert names <= found.measured
    inside = 0
    for name in names:
        figure = found.figures[name]
        assert TRUTH[name] / within < figure.value < TRUTH[name] * within, name
        assert figure.n >= 2
        inside += figure.low <= TRUTH[name] <= figure.high
    assert inside >= 0.9 * len(names)


@pytest.mark.parametrize("seed", range(3))
def test_a_cpu_gives_its_constants_back_despite_noise_and_outliers(seed):
    points = hardware_points(CPU, seed=seed, noise=0.05, outliers=0.05)
    check_recovered(fit_costs(points, CPU, 4, None), of_groups("hbm", "domain"))


def test_a_gpu_gives_its_constants_back():
    found = fit_costs(hardware_points(GPU, seed=1, noise=0.03, outliers=0.03), GPU, 4, None)
    # The gradients of UVM are too little of the time to be seen.
    hidden = {"uvm_backward.gradient_efficiency", "uvm_forward.repeat_efficiency"}
    check_recovered(found, of_groups("hbm", "uvm", "caching", "domain") - hidden)


def test_several_hosts_give_the_network_s_constants_back():
    hosts = replace(CPU, ranks_per_host=2, inter_host_bw=4e4)
    found = fit_costs(hardware_points(hosts, 4, 2, noise=0.03), hosts, 4, None)
    check_recovered(found, of_groups("network", "domain"))


def test_a_network_that_is_faster_than_the_hosts_hides_its_efficiency():
    hosts = replace(CPU, ranks_per_host=2, inter_host_bw=4e6)
    found = fit_costs(hardware_points(hosts, 4, 2, noise=0.03), hosts, 4, None)
    assert "network_reduce_scatter.latency" in found.measured
    assert "network_reduce_scatter.efficiency" not in found.measured


def test_hosts_of_one_rank_have_the_network_s_speed_within():
    hosts = replace(CPU, ranks_per_host=1)
    found = fit_costs(hardware_points(hosts, 2, 2), hosts, 2, None)
    figure = found.figures["domain_all_to_all.efficiency"]
    assert (figure.n, figure.note) == (0, "not measured: one rank per host")
    own = figure.value * hosts.intra_host_bw / 2
    assert own == pytest.approx(
        found.figures["network_all_to_all.efficiency"].value * hosts.inter_host_bw
    )


def test_what_one_number_of_ranks_can_t_tell_is_zero_and_says_so():
    found = fit_costs(hardware_points(CPU), CPU, 4, None)
    for kind in COLLECTIVES:
        for name in ("latency_per_rank", "latency_per_doubling", "small_group"):
            figure = found.figures[f"domain_{kind}.{name}"]
            assert (figure.value, figure.n) == (0, 0)
            assert figure.note == "measured with 4 ranks only"
            assert f"domain_{kind}.{name}" not in found.measured


def test_kernels_that_a_cpu_lacks_cost_as_much_as_its_own():
    found = fit_costs(hardware_points(CPU), CPU, 4, None)
    figures = found.figures
    host = figures["uvm_forward.unique_efficiency"]
    assert host.note == "no such kernel on CPUs"
    assert host.value * CPU.hbm_to_ddr_mem_bw == pytest.approx(
        figures["hbm_forward.efficiency"].value * CPU.ddr_mem_bw
    )
    assert figures["caching_forward.latency"].value == 0  # in addition to the forward pass


def test_one_size_identifies_no_latency():
    points = [
        point
        for point in hardware_points(CPU, noise=0.0)
        if point.case.kind == LOOKUP or point.case.bytes == 1 << 24
    ]
    found = fit_costs(points * 3, CPU, 4, None)
    assert of_groups("hbm") <= found.measured
    assert "domain_all_to_all.latency" not in found.measured
    figure = found.figures["domain_all_to_all.latency"]
    assert figure.n == 0
    assert figure.source == "assumed: half of the shortest time"
    assert "can't tell" in figure.note or "too little" in figure.note


def test_times_that_do_not_grow_identify_no_efficiency():
    random = np.random.default_rng(3)
    points = [
        Point(point.case, {work: float(random.uniform(1e-3, 1.1e-3)) for work in point.seconds})
        for point in hardware_points(CPU)
    ]
    found = fit_costs(points, CPU, 4, None)
    for kind in COLLECTIVES:
        assert f"domain_{kind}.efficiency" not in found.measured
        assert f"domain_{kind}.latency" in found.measured
    assert any("the interval spans a factor of" in reason for reason in found.not_measured())


def test_times_without_latency_have_none():
    truth = {name: 0.0 if name.endswith("latency") else value for name, value in TRUTH.items()}
    found = fit_costs(hardware_points(CPU, noise=0.02, truth=truth), CPU, 4, None)
    shortest = 1000 * min(
        point.seconds["all_to_all"]
        for point in hardware_points(CPU, noise=0.0, truth=truth)
        if point.case.kind == "all_to_all"
    )
    assert found.figures["domain_all_to_all.latency"].value < 0.1 * shortest
    assert found.figures["domain_all_to_all.efficiency"].value == pytest.approx(
        TRUTH["domain_all_to_all.efficiency"], rel=0.05
    )


def test_carried_over_constants_mean_the_same_milliseconds():
    lender = find_hardware("h100")
    own = replace(GPU, hbm_mem_bw=1e9, intra_host_bw=2e8, inter_host_bw=1e6)
    found = fit_costs(hardware_points(own, noise=0.01), own, 4, lender)
    names = [name for name in CONSTANTS_BY_NAME if name.startswith("network")]
    order = list(CONSTANTS_BY_NAME)
    mine = core_constants({n: f.value for n, f in found.figures.items()}, link_speeds(own))
    theirs = core_constants({n: f.value for n, f in lender.costs.items()}, link_speeds(lender))
    for name in names:
        assert mine[order.index(name)] == pytest.approx(theirs[order.index(name)])
        assert found.figures[name].source.startswith("carried over from h100: ")
        assert name not in found.measured


def test_who_lends_constants():
    h100, plain = find_hardware("h100"), find_hardware("torchrec")
    assert cost_lender(h100, ("anything",)) is h100
    assert cost_lender(plain, ("NVIDIA H100 80GB HBM3",)) == h100
    assert cost_lender(plain, ("NVIDIA H100 80GB HBM3", "NVIDIA H200")) is None
    assert cost_lender(find_hardware("torchrec-cpu"), ("AMD EPYC, 2 cores",)) is None


def test_both_forms_are_judged_by_the_times_that_torchrec_s_are_fitted_to():
    points = hardware_points(CPU, noise=0.02)
    errors = fit_costs(points, CPU, 4, None).errors
    assert set(errors) == {
        "hbm_forward",
        "hbm_backward",
        *(f"domain_{kind}" for kind in COLLECTIVES),
    }
    for group, found in errors.items():
        assert found.n == (36 if group.startswith("hbm") else 8)
        assert found.hardware.median < 1.05 < found.torchrec.median
        assert found.hardware.median <= found.hardware.p90


def test_torchrec_s_estimate_is_its_formula():
    points = hardware_points(CPU, noise=0.0)
    sizes = [p for p in points if p.case.kind == "all_reduce" and not p.case.extra]
    ratios = [
        p.case.bytes / (CPU.inter_host_bw * 4) / (1000 * p.seconds["all_reduce"]) for p in sizes
    ]
    found = fit_costs(points, CPU, 4, None).errors["domain_all_reduce"].torchrec.median
    assert found == pytest.approx(np.exp(np.median(np.abs(np.log(ratios)))))


def test_weights_of_ids_are_remarked():
    points = [
        Point(p.case, {w: s * (3 if p.case.weighted else 1) for w, s in p.seconds.items()})
        for p in hardware_points(CPU, noise=0.0)
    ]
    (remark,) = fit_costs(points, CPU, 4, None).remarks
    assert "hbm_forward 3 x, hbm_backward 3 x" in remark


def test_extra_cases_are_small_or_have_another_optimizer():
    for device in ("cpu", "cuda"):
        every = cases(device, 4, 4, DEFAULT_SIZES[device])
        extra = [case for case in every if case.extra]
        assert {case.kind for case in extra} == {LOOKUP, *COLLECTIVES}
        assert len(extra) < 0.25 * len(every)
        for case in extra:
            assert case.bytes <= 1 << 16
            assert case.samples <= 64 or case.optimizer == ADAM
    few = Sizes((1,), (16,), (1,), 100, (1 << 10, 1 << 20))
    assert not any(case.extra for case in cases("cpu", 2, 2, few))
