"""Measured figures of README and docs are those of the result files."""

import json

import pytest

from bench import page as results_page
from bench.figures.blocks import PAGES, with_figures
from bench.machine import RESULTS
from bench.summary import summary

ORIGIN = ("date", "commit", "packages", "python", "cpu", "cpu_count", "memory_bytes")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_figures_of_the_results(page):
    text = page.read_text()
    assert text.count("<!-- bench/results/") == text.count("<!-- end -->")
    assert with_figures(text) == text, "python -m bench --page writes them"


def test_the_page_of_results_shows_the_result_files():
    assert results_page.PAGE.read_text() == results_page.text(), "python -m bench --page writes it"


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.name)
def test_a_result_says_when_where_and_with_what_it_was_measured(file):
    result = json.loads(file.read_text())
    assert not [name for name in ORIGIN if not result.get(name)]


@pytest.mark.parametrize(
    "result",
    [
        {"checks": [{"text": "a ratio", "holds": False}, {"text": "of no goal"}]},
        {"checks": {"a calibration orders better": False}},
        {"summary": {"checks": {"the plan is not slower": False}}},
        {"cells": [{"goals": [{"value": 1.8, "goal": 2.0, "holds": False}]}]},
    ],
)
def test_the_summary_names_a_benchmark_that_misses_a_goal(result):
    """Wherever the benchmark states the goal in its result."""
    last = summary({"init": result, "sweep": {"checks": [{"holds": True}]}}).splitlines()[-1]
    assert "1 of 2 goals" in last
    assert last.endswith("Missed in: The start of a rank.")
