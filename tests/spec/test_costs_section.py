"""The constants of the hardware costs in SKU files."""

import pytest

from fastplan.files.document import SpecError, document_of
from fastplan.model.hardware_costs import CONSTANTS, CONSTANTS_BY_NAME
from fastplan.spec.hardware import (
    HardwareError,
    find_hardware,
    for_job,
    hardware_constants,
    link_speeds,
    read_hardware,
)
from tests.docs.blocks import blocks

from .skus import one

LATENCY = "hbm_forward.latency"


def skus(**fields):
    return {each.name: each for each in read_hardware(document_of({"skus": fields}, "mine.yaml"))}


def problem(sku):
    with pytest.raises(SpecError) as caught:
        one(sku)
    return str(caught.value)


def test_a_number_is_a_value_from_the_file():
    found = one({"like": "h100", "costs": {"hbm_forward": {"latency": 0.07}}}).costs[LATENCY]
    assert (found.value, found.low, found.n, found.sku) == (0.07, None, 0, "mine")
    assert found.source == "skus.json"


def test_a_mapping_has_interval_number_and_source():
    given = {"value": 0.07, "low": 0.05, "high": 0.1, "n": 9, "source": "us", "note": "thin"}
    found = one({"like": "h100", "costs": {"hbm_forward": {"latency": given}}}).costs[LATENCY]
    assert (found.value, found.low, found.high, found.n) == (0.07, 0.05, 0.1, 9)
    assert (found.source, found.note) == ("us", "thin")


def test_like_inherits_constants_and_keeps_whose_they_are():
    found = one({"like": "h100", "costs": {"hbm_forward": {"latency": 0.07}}})
    assert found.costs.keys() == CONSTANTS_BY_NAME.keys()
    assert (
        found.costs["hbm_forward.efficiency"]
        == find_hardware("h100").costs["hbm_forward.efficiency"]
    )
    assert found.costs["hbm_forward.efficiency"].sku == "h100"


def test_costs_from_carries_constants_over():
    found = one({"like": "torchrec", "costs_from": "b200"})
    assert found.costs == find_hardware("b200").costs
    assert found.hbm_mem_bw == find_hardware("torchrec").hbm_mem_bw


def test_costs_from_comes_before_like_and_after_the_own():
    own = {"hbm_forward": {"latency": 0.07}}
    found = one({"like": "h100", "costs_from": "mi355x", "costs": own})
    assert found.costs[LATENCY].value == 0.07
    assert found.costs["domain_all_to_all.latency"].sku == "mi355x"


def test_costs_from_may_name_another_sku_of_the_file():
    first = {"like": "torchrec", "costs": {"hbm_forward": {"latency": 0.07}}}
    found = skus(a=first, b={"like": "torchrec", "costs_from": "a"})
    assert found["b"].costs[LATENCY].sku == "a"


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({"hbm": {}}, "known are hbm_forward"),
        ({"hbm_forward": {"latncy": 1}}, "did you mean `latency`?"),
        ({"hbm_forward": {"latency": -1}}, "must be from 0 to 1e+06"),
        ({"hbm_forward": {"efficiency": 0}}, "must be from 1e-09 to 1e+06"),
        ({"hbm_forward": {"latency": {"value": 1, "low": 2}}}, "from `low` to `high`"),
        ({"hbm_forward": {"latency": {"value": 1, "hgh": 2}}}, "did you mean `high`?"),
        ({"hbm_forward": {"latency": {}}}, "is missing"),
        ({"hbm_forward": {"latency": "fast"}}, "must be"),
        ({"hbm_forward": 3}, "must be a mapping"),
    ],
)
def test_mistakes_are_explained(costs, words):
    text = problem({"like": "h100", "costs": costs})
    assert words in text
    assert "costs" in text


def test_circles_and_unknown_lenders_are_refused():
    assert "no hardware is called" in problem({"like": "h100", "costs_from": "h1000"})
    with pytest.raises(SpecError, match="circular"):
        skus(a={"like": "h100", "costs_from": "b"}, b={"like": "a"})


def test_links_are_counted_in_one_direction():
    links = link_speeds(find_hardware("h100"))
    assert (links.memory, links.host, links.domain, links.network) == (3.35e9, 64e6, 450e6, 50e6)
    assert link_speeds(find_hardware("cpu")).memory == find_hardware("cpu").ddr_mem_bw
    assert link_speeds(find_hardware("h100"), 12.5e6).network == 12.5e6


def test_a_job_in_one_pod_keeps_its_constants():
    found = for_job(find_hardware("gb200"), 32)
    assert found.costs == find_hardware("gb200").costs
    assert len(hardware_constants(found)) == len(CONSTANTS)


def test_missing_constants_are_named_with_the_way_out():
    more = len(CONSTANTS) - 1
    with pytest.raises(
        HardwareError, match=f"torchrec has no `hbm_forward.latency` and {more} more"
    ):
        hardware_constants(find_hardware("torchrec"))
    with pytest.raises(HardwareError, match="costs_from"):
        hardware_constants(find_hardware("cpu"))


@pytest.mark.needs("docs")
def test_the_example_of_the_docs_is_valid(tmp_path):
    (text,) = blocks("hardware-costs.md", "yaml")
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    lab = find_hardware(f"{path}:lab-h100").costs
    assert (lab["domain_all_to_all.latency"].value, lab[LATENCY].sku) == (0.021, "h100")
    assert find_hardware(f"{path}:new-gpu").costs["domain_all_to_all.latency"].sku == "b200"
