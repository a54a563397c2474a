"""Hardware costs of shards, against the formulas written down once more in Python."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

import fastplan
from fastplan.engine.layout import narrowed
from fastplan.engine.solve import OutOfRange, estimate, estimate_columns, request_columns
from fastplan.model.hardware_costs import COLLECTIVES, FAMILY_OF_KERNEL
from fastplan.model.ids import Curve
from fastplan.model.plan import AS_REQUESTED, PlanRecord
from fastplan.model.request import IdCurves, MenuItem, Pricing
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from tests.hardware import drawn_request, menu
from tests.ids import curves_of, drawn_statistics
from tests.problems import ALL_TYPES

# The constants of lookups, in the order of hardware_costs.CONSTANTS.
NAMES = (
    *("hbm_forward_latency", "hbm_forward", "hbm_backward_latency", "hbm_backward"),
    *("uvm_forward_latency", "uvm_unique", "uvm_repeat"),
    *("uvm_backward_latency", "uvm_gradient", "uvm_row"),
    *("caching_forward_latency", "caching_id", "caching_miss"),
    *("caching_backward_latency", "caching_gradient", "caching_backward_id", "caching_state"),
)
PARTS = (
    *("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"),
    *("input_dist_comms", "prefetch_compute"),
)


class Formulas:
    """The cost of a shard by the definition."""

    def __init__(self, request):
        self.request = request
        values = request.hardware.constants
        self.c = dict(zip(NAMES, values, strict=False))
        exchanges = values[len(NAMES) :]
        blocks = [exchanges[5 * i : 5 * i + 5] for i in range(8)]
        self.links = dict(
            zip(itertools.product(("domain", "network"), COLLECTIVES), blocks, strict=True)
        )
        self.world = request.cost.perf_world_size
        self.group = request.cost.perf_group_size

    def exchange(self, kind, ranks, domain):
        """Latency, and ms per byte of the buffer."""
        if ranks <= 1:
            return 0.0, 0.0
        inside = ranks <= domain
        link = self.links["domain" if inside else "network", kind]
        latency = link[0] + link[1] * ranks + link[2] * math.log2(ranks)
        byte = link[3] + link[4] / ranks
        twice = 2 if kind == "all_reduce" else 1
        if inside:
            return latency, twice * (ranks - 1) / ranks * byte
        leaves = (ranks - domain) / ranks
        if kind != "all_to_all":
            leaves /= domain
        return latency, max(self.exchange(kind, domain, domain)[1], twice * leaves * byte)

    def exchanges(self, kind, pooled):
        domain = self.request.hardware.domain_ranks
        none = (0.0, 0.0)
        if kind == "data_parallel":
            reduced = self.exchange("all_reduce", self.world, domain)
            return {"input": none, "forward": none, "across": none, "backward": reduced}
        a2a = self.exchange("all_to_all", self.world, domain)
        if kind in ("table_row_wise", "grid_shard"):
            groups = self.world // self.group
            alone = groups if self.world <= domain else 1
            return {
                "input": a2a,
                "forward": self.exchange("reduce_scatter", self.group, domain),
                "across": self.exchange("all_to_all", groups, alone),
                "backward": self.exchange("all_gather", self.group, domain),
            }
        if kind == "row_wise" and pooled:
            return {
                "input": a2a,
                "forward": self.exchange("reduce_scatter", self.world, domain),
                "across": none,
                "backward": self.exchange("all_gather", self.world, domain),
            }
        return {"input": a2a, "forward": a2a, "across": none, "backward": a2a}

    def shard(self, number, kind, kernel, rows, cols):
        t, c = self.request.tables[number], self.c
        states = self.request.hardware.states[number]
        copies = kind == "data_parallel"
        split = {"row_wise": self.world, "table_row_wise": self.group, "grid_shard": self.group}
        parts = split.get(kind, 1)
        ids = t.perf_inputs * (1 if copies else self.world) / parts
        outputs = t.perf_outputs * (1 if copies else self.world) if t.pooled else ids
        row = math.ceil(cols * t.element_size / 32) * 32
        output = math.ceil(cols * t.output_element_size / 32) * 32
        if math.isnan(t.expected_lookups):
            unique = rows * (1 - math.exp(-ids / rows)) if rows else 0.0
        else:
            unique = min(t.expected_lookups / parts, ids)
        missed = 1 - min(t.cache_ratio, 1.0) if math.isnan(t.miss_rate) else t.miss_rate
        misses = unique * missed
        curves = self.request.hardware.ids[number] if self.request.hardware.ids else None
        if curves is not None:
            # The definition in model/ids.py, for the whole table.
            whole = min(ids * parts * curves.unique.at(ids * parts), t.rows)
            unique = whole / parts
            cached = t.cache_ratio * rows * parts
            share = 0.0 if t.cache_ratio >= 1 else curves.misses.at(cached) if cached else 1.0
            misses = min(ids * share, unique)
        family = FAMILY_OF_KERNEL[kernel]
        found = dict.fromkeys(PARTS, 0.0)
        if family == "uvm":
            fwd = unique * row * c["uvm_unique"] + (ids - unique) * row * c["uvm_repeat"]
            bwd = ids * output * c["uvm_gradient"] + unique * (1 + states) * row * c["uvm_row"]
        else:
            fwd = (ids * row + outputs * output) * c["hbm_forward"]
            touched = rows * (3 + 2 * states) if kernel == "dense" else 2 * unique * (1 + states)
            bwd = (ids * output + touched * row) * c["hbm_backward"]
        if family == "caching":
            fetched = misses * row * c["caching_miss"]
            found["prefetch_compute"] = unique * c["caching_id"] + fetched
            bwd = ids * output * c["caching_gradient"] + unique * c["caching_backward_id"]
            bwd += unique * states * row * c["caching_state"]
        found["fwd_compute"], found["bwd_compute"] = fwd, bwd
        wire = {name: byte for name, (_, byte) in self.exchanges(kind, t.pooled).items()}
        if copies:
            found["bwd_comms"] = rows * cols * t.element_size * wire["backward"]
        else:
            reduces = kind in ("table_row_wise", "grid_shard") or (kind == "row_wise" and t.pooled)
            reduces = reduces and parts > 1
            values = outputs * cols
            ahead, back = (t.fwd_sr, t.bwd_sr) if reduces else (t.fwd_a2a, t.bwd_a2a)
            across = values / self.group * wire["across"]
            found["fwd_comms"] = values * ahead * wire["forward"] + across * t.fwd_a2a
            found["bwd_comms"] = values * back * wire["backward"] + across * t.bwd_a2a
            sent = ids * (2 if t.weighted else 1) + outputs
            found["input_dist_comms"] = sent * 8 * wire["input"]
        if self.request.cost.perf_inference:
            found["bwd_compute"] = found["bwd_comms"] = 0.0
        return found


def drawn(seed, kernels, **changes):
    rng = random.Random(seed)
    hosts, group = rng.choice(((1, 1), (1, 4), (2, 4), (3, 2), (4, 8)))
    made = drawn_request(rng, 8, hosts * group, group)
    tables = tuple(
        t._replace(output_element_size=rng.choice((2.0, 4.0)), fwd_sr=2.0, bwd_a2a=3.0, **changes)
        for t in made.tables
    )
    return replace(made, tables=tables, menus=(menu(ALL_TYPES, kernels),))


def assert_formulas_hold(request):
    space, formulas = estimate(request), Formulas(request)
    menus = request.menus[0]
    options = [(t, item) for t in range(len(request.tables)) for item in menus]
    assert len(options) == space.options
    for number, (t, item) in enumerate(options):
        for run in range(*space.option_run_begin[number : number + 2]):
            shape = int(space.run_rows[run]), int(space.run_cols[run])
            expected = formulas.shard(t, item.sharding_type, item.kernel, *shape)
            actual = {part: float(getattr(space, f"run_{part}")[run]) for part in PARTS}
            assert actual == pytest.approx(expected, rel=1e-9, abs=1e-15), (item, shape)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("kernel", sorted(set(FAMILY_OF_KERNEL) - {"dense"}))
def test_every_type_and_kernel_costs_what_the_formulas_say(kernel, pooled, weighted):
    for seed in range(6):
        assert_formulas_hold(drawn(seed, (kernel,), pooled=pooled, weighted=weighted))


@pytest.mark.parametrize("kernel", ["fused", "fused_uvm", "fused_uvm_caching"])
def test_statistics_say_how_many_ids_are_distinct_and_missed(kernel):
    for seed in range(20):
        made = drawn(seed, (kernel,))
        rng = random.Random(seed)
        ratios = [rng.choice((0.001, 0.05, 0.3, 1.0)) for _ in made.tables]
        ids = [curves_of(drawn_statistics(rng, t.rows)) for t in made.tables]
        some = tuple(own if rng.random() < 0.8 else None for own in ids[:-1])
        made = replace(
            made,
            tables=tuple(
                t._replace(cache_ratio=r) for t, r in zip(made.tables, ratios, strict=True)
            ),
            hardware=replace(made.hardware, ids=(*some, ids[-1])),
        )
        assert_formulas_hold(made)
        assert estimate(made).step.statistics == sum(map(bool, made.hardware.ids))


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("hardware_curve_begin", np.array([0, 1]), "two curves per table"),
        ("hardware_curve_begin", np.array([0] + [99] * 16), "offsets"),
        ("hardware_curve_x", np.array([-1.0, 1.0] * 8), "positive"),
        ("hardware_curve_y", np.array([math.nan] * 16), "between 0 and 1"),
    ],
)
def test_curves_that_can_not_be_are_refused(column, value, told):
    made = drawn(0, ("fused",))
    point = Curve((1.0,), (0.5,))
    hardware = replace(made.hardware, ids=(IdCurves(point, point),) * 8)
    columns = request_columns(replace(made, hardware=hardware)) | {column: value}
    with pytest.raises((OutOfRange, TypeError), match=told):
        estimate_columns(made, columns)


def test_costs_without_any_statistics_have_one_form():
    made = drawn(0, ("fused",)).hardware
    assert replace(made, ids=(None,) * 8) == made
    with pytest.raises(ValueError, match="per table"):
        replace(made, ids=(IdCurves(Curve((1.0,), (0.5,)), Curve((1.0,), (0.5,))),))


def test_inference_has_no_backward_pass():
    made = drawn(1, ("fused", "fused_uvm"))
    made = replace(made, cost=replace(made.cost, perf_inference=True))
    assert_formulas_hold(made)
    assert not estimate(made).run_bwd_compute.any()


def test_kernels_without_figures_are_refused():
    made = drawn(0, ("fused",))
    made = replace(made, menus=((MenuItem("table_wise", "key_value", 1e7, 0),),))
    with pytest.raises(OutOfRange, match="kernel"):
        estimate(made)


def test_a_record_in_another_order_has_the_same_costs():
    made = drawn(3, ("fused", "fused_uvm_caching"))
    whole = estimate(made)
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    record = PlanRecord(
        table=np.array(order, np.int32),
        sharding_type=np.full(8, SHARDING_TYPE_INDEX["row_wise"], np.uint8),
        kernel=np.full(8, KERNEL_INDEX["fused_uvm_caching"], np.uint8),
        ranks=np.zeros(0, np.int32),
        load_factor=np.full(8, AS_REQUESTED),
        rating=1.0,
    )
    chosen = estimate(narrowed(made, record))
    menu_items = [(item.sharding_type, item.kernel) for item in made.menus[0]]
    place = menu_items.index(("row_wise", "fused_uvm_caching"))
    for position, t in enumerate(order):
        option = whole.table_option_begin[t] + place
        expected = whole.run_bwd_compute[slice(*whole.option_run_begin[option : option + 2])]
        own = slice(*chosen.option_run_begin[position : position + 2])
        assert chosen.run_bwd_compute[own].tolist() == expected.tolist()


@fastplan.shard_cost
def both_costs(shard, out):
    # Costs before the call are the hardware costs.
    out.fwd_comms = out.fwd_compute + shard.hardware.bwd_compute
    out.bwd_comms = shard.stock.fwd_compute
    out.prefetch_compute = shard.hardware.prefetch_compute


@fastplan.shard_cost
def without_hardware(shard, out):
    out.fwd_comms = 1.0 if math.isnan(shard.hardware.fwd_compute) else 0.0


@pytest.mark.needs("numba")
def test_custom_costs_read_both_costs():
    made = drawn(4, ("fused", "fused_uvm_caching"))
    own, stock = estimate(made), estimate(replace(made, hardware=None))
    priced = estimate(replace(made, pricing=Pricing(function=both_costs, batch_size=512)))
    assert priced.run_fwd_compute.tolist() == own.run_fwd_compute.tolist()
    assert priced.run_fwd_comms.tolist() == (own.run_fwd_compute + own.run_bwd_compute).tolist()
    assert priced.run_bwd_comms.tolist() == stock.run_fwd_compute.tolist()
    assert priced.run_prefetch_compute.tolist() == own.run_prefetch_compute.tolist()


@pytest.mark.needs("numba")
def test_custom_costs_see_no_hardware_costs_where_there_are_none():
    made = replace(drawn(4, ("fused",)), hardware=None)
    pricing = Pricing(function=without_hardware, batch_size=512)
    assert set(estimate(replace(made, pricing=pricing)).run_fwd_comms.tolist()) == {1.0}
