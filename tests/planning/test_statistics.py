"""Id statistics in plans: keys, reports, files."""

import json
import random

import pytest

from fastplan.cache.fingerprint import parse_canonical
from fastplan.planning.specs import plan_spec
from fastplan.plans.file import read_plan, write_plan
from fastplan.report.analysis import analyse
from fastplan.report.comparison import compare
from fastplan.report.plan_text import inspect_text
from fastplan.spec.read import with_statistics
from tests.ids import drawn_statistics
from tests.planning.test_hardware_costs import MOVES, spec

STATISTICS = {f"t{i}": drawn_statistics(random.Random(i), 10 ** (3 + i % 5)) for i in range(6)}


def measured(costs="hardware"):
    return with_statistics(spec(costs), STATISTICS)


def test_statistics_change_the_key_and_the_step_with_hardware_costs_only():
    plain, own = plan_spec(spec()), plan_spec(measured())
    assert plain.key.fingerprint != own.key.fingerprint
    assert (plain.step.statistics, own.step.statistics, own.step.tables) == (0, 6, 12)
    assert "ids" not in json.loads(plain.key.request)["hardware"]
    stock = [plan_spec(each).key.fingerprint for each in (spec("torchrec"), measured("torchrec"))]
    assert stock[0] == stock[1]


def test_the_canonical_request_gives_the_curves_back():
    result = plan_spec(measured())
    request, _ = parse_canonical(result.key.request)
    assert request.hardware == result.job.request.hardware


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([None] * 12, "hardware.ids"),
        ([{}] + [None] * 11, "hardware.ids"),
        ([{"unique": [], "misses": []}] + [None] * 11, "hardware.ids[0].unique"),
        ([{"unique": [[1], [2]], "misses": [[1], [1]]}] + [None] * 11, "hardware.ids[0].unique"),
        ([{"unique": [[1], ["a"]], "misses": [[1], [1]]}] + [None] * 11, "hardware.ids[0].unique"),
        ([{"unique": [[1], [1]], "misses": [[0], [1]]}] + [None] * 11, "hardware.ids[0].misses"),
    ],
)
def test_bad_curves_of_a_request_are_named(value, place):
    document = json.loads(plan_spec(measured()).key.request)
    document["hardware"]["ids"] = value
    with pytest.raises(ValueError, match=rf"^{place.replace('[', chr(92) + '[')}"):
        parse_canonical(json.dumps(document).encode())


def test_a_plan_file_says_which_ids_are_assumed(tmp_path):
    result = plan_spec(measured(), optimize=MOVES)
    write_plan(result.plan(), tmp_path / "plan.json")
    found = analyse(read_plan(tmp_path / "plan.json"))
    assert found.step == result.step
    text = " ".join(inspect_text(found.plan).split())
    assert "statistics of 6 of 12 tables" in text
    assert "other 6 are assumed to be uniform" in text


def test_plans_with_and_without_statistics_are_compared_by_the_same():
    plans = [plan_spec(measured()).plan(), plan_spec(spec()).plan()]
    assert [each.step.statistics for each in compare(plans).analyses] == [6, 6]


def test_a_cached_plan_is_not_that_of_other_statistics(tmp_path):
    statuses = [plan_spec(each, cache=tmp_path).cache.status for each in (measured(), spec())]
    assert statuses == ["miss", "miss"]
    assert plan_spec(measured(), cache=tmp_path).cache.status == "hit"
