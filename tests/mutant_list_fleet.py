"""Mutants of fleets, importers, exporters and the gate; see mutant_list."""

from __future__ import annotations

from tests.mutant import Mutant

FLEET = (
    Mutant(
        name="mllog-ranks-are-runs",
        file="fastplan/ett/imports/mllog.py",
        old=" and at >= self._latest",
        new="",
        tests=("tests/ett/fleet/test_mllog.py::test_a_job_waits_for_its_slowest_rank",),
    ),
    Mutant(
        name="fleet-settles-at-once",
        file="fastplan/ett/fleet/places.py",
        old="recent = self._now - modified < _TICK",
        new="recent = False",
        tests=(
            "tests/ett/fleet/test_fleet.py::"
            "test_a_directory_that_changed_just_now_is_looked_at_again",
        ),
    ),
    Mutant(
        name="fleet-forgets-staged-files",
        file="fastplan/ett/fleet/store.py",
        old="        if staged:\n            _insert(database, staged)",
        new="        if staged:",
        tests=(
            "tests/ett/fleet/test_fleet.py::test_a_killed_update_loses_nothing_that_it_has_staged",
        ),
    ),
    Mutant(
        name="gate-without-a-limit",
        file="fastplan/ett/fleet/compare.py",
        old="p <= level and high >= allowed and change > 0",
        new="p <= level and change > 0",
        tests=(
            "tests/ett/fleet/test_gate.py::"
            "test_a_small_change_that_rules_the_limit_out_is_accepted",
        ),
    ),
    Mutant(
        name="gate-without-a-test",
        file="fastplan/ett/fleet/compare.py",
        old="p <= level and high >= allowed and change > 0",
        new="high >= allowed and change > 0",
        tests=(
            "tests/ett/fleet/test_gate.py::"
            "test_a_seeded_regression_is_found_and_false_alarms_are_rare",
        ),
    ),
    Mutant(
        name="last-export-is-old",
        file="fastplan/ett/exporters/thread.py",
        old="self._source.snapshot(fresh=last)",
        new="self._source.snapshot()",
        tests=("tests/ett/test_exporters.py::test_a_job_exports_everything_while_it_runs",),
    ),
    Mutant(
        name="fleet-lock-follows-links",
        file="fastplan/ett/fleet/store.py",
        old="flags | os.O_NOFOLLOW",
        new="flags",
        tests=("tests/ett/fleet/test_fleet.py",),
    ),
)
