"""Fits of the hardware costs find the constants that times were made with, and no others."""

import math

import numpy as np
import pytest

from fastplan.costs.fit import (
    ExchangeTimes,
    LookupTimes,
    estimate_times,
    first_prior,
    fit,
)
from fastplan.model.hardware_costs import COLLECTIVES, CONSTANTS_BY_NAME, LinkSpeeds

LINKS = LinkSpeeds(memory=3e9, host=6e7, domain=4.5e8, network=5e7)
ALL_TO_ALL = tuple(
    f"domain_all_to_all.{name}"
    for name in ("efficiency", "latency", "latency_per_rank", "small_group", "latency_per_doubling")
)
UVM = ("uvm_forward.unique_efficiency", "uvm_forward.repeat_efficiency")


def exchanges(ranks, sizes=range(10, 31), values=None, noise=0.0, seed=1):
    """All-to-alls of many sizes, with the times that constants give, times noise."""
    every = [(n, 2.0**size) for n in ranks for size in sizes]
    made = ExchangeTimes(
        links=LINKS,
        columns={
            "collective": np.full(len(every), COLLECTIVES.index("all_to_all"), np.uint8),
            "ranks": np.array([n for n, _ in every], np.int64),
            "domain_ranks": np.full(len(every), 72, np.int64),
            "bytes": np.array([size for _, size in every]),
        },
        ms=np.ones(len(every)),
        configurations=[str(n) for n, _ in every],
    )
    return timed(made, values, noise, seed)


def timed(made, values, noise=0.0, seed=1):
    ms = estimate_times([made], {**first_prior(), **(values or {})})
    ms *= np.exp(noise * np.random.default_rng(seed).standard_normal(len(ms)))
    fields = {name: getattr(made, name) for name in made.__dataclass_fields__}
    return type(made)(**{**fields, "ms": ms})


def lookups(unique_share, values):
    ids = np.array([1e5, 3e5, 1e6, 3e6])
    made = LookupTimes(
        links=LINKS,
        columns={
            "family": np.full(4, 1, np.uint8),
            "ids": ids,
            "unique": ids * unique_share,
            "misses": np.zeros(4),
            "outputs": ids,
            "row_bytes": np.full(4, 512.0),
            "output_bytes": np.full(4, 512.0),
            "states": np.zeros(4),
        },
        forward=np.ones(4),
        backward=np.zeros(4),
        ms=np.ones(4),
        configurations=list("abcd"),
    )
    return timed(made, values)


TRUE = {
    "domain_all_to_all.efficiency": 0.7,
    "domain_all_to_all.latency": 0.03,
    "domain_all_to_all.latency_per_rank": 0.002,
    "domain_all_to_all.small_group": 2.0,
}


def test_it_finds_the_constants_of_exact_times():
    found = fit([exchanges((2, 4, 8), values=TRUE)], ALL_TO_ALL[:4], first_prior())
    assert not found.not_identified
    for name, value in TRUE.items():
        assert found.constants[name].value == pytest.approx(value, rel=0.01)


def test_intervals_contain_the_constants_of_noisy_times():
    found = fit([exchanges((2, 4, 8), values=TRUE, noise=0.1)], ALL_TO_ALL[:4], first_prior())
    for name, value in TRUE.items():
        fitted = found.constants[name]
        assert fitted.low < value < fitted.high
        assert fitted.n > 10


def test_outliers_change_little():
    times = exchanges((2, 4, 8), values=TRUE, noise=0.03)
    times.ms[::6] *= 7
    found = fit([times], ALL_TO_ALL[:4], first_prior(), intervals=False)
    assert found.constants["domain_all_to_all.efficiency"].value == pytest.approx(0.7, rel=0.05)


def test_one_number_of_ranks_does_not_show_how_times_depend_on_ranks():
    found = fit([exchanges((8,), values=TRUE)], ALL_TO_ALL, first_prior())
    assert found.constants.keys() == {ALL_TO_ALL[0], ALL_TO_ALL[1]}
    assert found.not_identified.keys() == set(ALL_TO_ALL[2:])
    assert all("vary too little" in reason for reason in found.not_identified.values())
    assert [found.values[name] for name in ALL_TO_ALL[2:]] == [0.0, 0.0, 0.0]


def test_constants_that_are_not_identified_have_the_priors_value():
    prior = {**first_prior(), "domain_all_to_all.latency_per_rank": 0.001}
    found = fit([exchanges((8,), values=TRUE)], ALL_TO_ALL, prior)
    assert found.values["domain_all_to_all.latency_per_rank"] == 0.001
    # The rest of the latency of 8 ranks: 0.03 + 8 x 0.002 = latency + 8 x 0.001.
    latency = found.values["domain_all_to_all.latency"]
    assert latency == pytest.approx(0.038, rel=0.02)


def test_two_numbers_of_ranks_show_one_dependence_on_ranks():
    found = fit([exchanges((2, 8), values=TRUE)], ALL_TO_ALL, first_prior())
    assert "domain_all_to_all.latency_per_doubling" in found.not_identified
    assert "domain_all_to_all.latency_per_rank" in found.constants


def test_without_repeated_ids_their_efficiency_is_unknown():
    true = {"uvm_forward.unique_efficiency": 0.9, "uvm_forward.repeat_efficiency": 1.3}
    found = fit([lookups(1.0, true)], UVM, first_prior())
    assert found.constants.keys() == {"uvm_forward.unique_efficiency"}
    assert found.not_identified == {"uvm_forward.repeat_efficiency": "no measurements"}


def test_without_times_nothing_is_identified():
    found = fit([], ALL_TO_ALL, first_prior())
    assert not found.constants
    assert found.not_identified == dict.fromkeys(ALL_TO_ALL, "no measurements")
    assert found.values == first_prior()


def test_a_single_time_identifies_nothing():
    times = exchanges((8,), sizes=(28,), values=TRUE)
    found = fit([times], ALL_TO_ALL, first_prior())
    assert not found.constants


def test_a_constant_that_no_time_shows_is_zero():
    prior = {**first_prior(), "domain_all_to_all.latency_per_rank": 0.01}
    true = {**TRUE, "domain_all_to_all.latency_per_rank": 0.0}
    times = exchanges((2, 8, 32, 64), values=true)
    found = fit([times], ALL_TO_ALL[:4], prior, intervals=False)
    assert found.values["domain_all_to_all.latency_per_rank"] * 64 < 0.002


def test_fewer_configurations_give_wider_intervals():
    def width(ranks):
        times = exchanges(ranks, values=TRUE, noise=0.2)
        fitted = fit([times], ALL_TO_ALL[:2], first_prior()).constants[ALL_TO_ALL[0]]
        return math.log(fitted.high / fitted.low)

    assert width((8, 9)) > width((7, 8, 9, 10, 11, 12))


def test_the_first_prior_is_complete_and_has_no_dependence_on_ranks():
    prior = first_prior()
    assert prior.keys() == CONSTANTS_BY_NAME.keys()
    assert all(
        (value == 0) == name.endswith(("per_rank", "per_doubling", "small_group"))
        for name, value in prior.items()
    )


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_times_must_be_positive(wrong):
    times = exchanges((2, 8), values=TRUE)
    times.ms[3] = wrong
    with pytest.raises(ValueError, match="`ms` must be positive"):
        fit([times], ALL_TO_ALL, first_prior())
