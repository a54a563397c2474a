"""The text of a plan file is read at once as what the checks of its JSON make of it, or by them."""

import json
import random
from functools import partial

import pytest

from fastplan.plans import document
from fastplan.plans.checks import BadValue
from fastplan.plans.document import parse_document, parse_json, read_document
from fastplan.plans.file import plan_text
from tests.plans.samples import SEEDS, damaged, mixed_plan, random_plan

PLANS = [partial(random_plan, seed) for seed in SEEDS] + [
    partial(mixed_plan, seed) for seed in range(10)
]


def outcome(read, data):
    try:
        return repr(read(data))
    except (BadValue, RecursionError) as error:
        return str(error)


def checked(data):
    return read_document(parse_json(data))


def is_read_at_once(data):
    return document._decoded(data) is not None


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_a_plan_is_read_at_once_and_as_by_the_checks(make):
    data = plan_text(make()).encode()
    assert is_read_at_once(data) or b"\\" in data
    assert parse_document(data) == checked(data)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_have_the_same_content_or_error(seed):
    draw = random.Random(seed)
    data = plan_text(random_plan(SEEDS[seed])).encode()
    for _ in range(50):
        broken = damaged(draw, data)
        assert outcome(parse_document, broken) == outcome(checked, broken)


@pytest.mark.parametrize(
    "change",
    [
        ('"notes": {', '"notes": {"a": "x", "a": "y", '),
        ('"notes": {', '"notes": {"a" : "x", "a": "y", '),
        ('"notes": {', '"notes": {"a": "x:", "a": "y", '),
        ('"notes": {', '"notes": {"a": "x", "a": "\\u003a", '),
    ],
)
def test_names_that_occur_twice_are_found(change):
    data = plan_text(random_plan(0)).replace(*change, 1).encode()
    data = data.replace(b'"y", }', b'"y"}').replace(b'"\\u003a", }', b'"\\u003a"}')
    json.loads(data)
    with pytest.raises(BadValue, match="occurs twice"):
        parse_document(data)


def test_a_colon_in_a_text_is_no_name():
    data = plan_text(random_plan(0)).replace('"notes": {', '"notes": {"a": "x:y", ', 1).encode()
    data = data.replace(b'"x:y", }', b'"x:y"}')
    assert is_read_at_once(data)
