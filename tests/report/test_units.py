"""Figures are formatted for people."""

import pytest

from fastplan.report.units import (
    format_bytes,
    format_change,
    format_count,
    format_milliseconds,
    format_percent,
    format_ranks,
    format_seconds,
    rank_words,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (-3 << 30, "-3.0 GiB"),
        (int(12.3 * 2**30), "12.3 GiB"),
        (1014 << 20, "1014 MiB"),
        (1 << 62, "4096 PiB"),
    ],
)
def test_bytes(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000 ms"),
        (0.00123, "1.230 us"),
        (0.651177, "0.651 ms"),
        (9.9996, "10.00 ms"),
        (12.3456, "12.35 ms"),
        (999.96, "1,000 ms"),
        (2395.2, "2,395 ms"),
        (12345.0, "12.35 s"),
    ],
)
def test_milliseconds_have_about_four_digits(value, text):
    assert format_milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0012, "1.200 ms"),
        (3.21, "3.2 s"),
        (119.0, "119.0 s"),
        (180, "3.0 min"),
        (-9000, "-2.5 h"),
    ],
)
def test_seconds(value, text):
    assert format_seconds(value) == text


def test_shares_that_are_not_nothing_do_not_look_like_it():
    assert format_percent(0) == "0.0 %"
    assert format_percent(0.0001) == "<0.1 %"
    assert format_percent(0.129) == "12.9 %"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1, 0.814, "-18.6 %"),
        (1, 1, "0 %"),
        (0, 1, "new"),
        (1, 1.0001, "+0.01 %"),
        (1, 0, "-100.0 %"),
    ],
)
def test_changes_have_a_sign(before, after, text):
    assert format_change(before, after) == text


def test_counts():
    assert format_count(1, "table") == "1 table"
    assert format_count(1024, "table") == "1,024 tables"
    assert format_count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "r3"),
        ([0, 1], "r0,1"),
        ([0, 1, 2], "r0-2"),
        ([0, 1, 2, 7, 9, 10, 11], "r0-2,7,9-11"),
        ([5, 3], "r5,3"),
        ([4, 4, 5, 5, 6], "r4-6"),
        ([], "-"),
        (range(8), "all ranks"),
    ],
)
def test_ranks_as_ranges(ranks, text):
    assert format_ranks(ranks, 8) == text


def test_the_only_rank_is_named():
    assert format_ranks([0], 1) == "r0"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([1, 5], "ranks 1 and 5"),
        ([0, 1, 2, 3], "4 ranks (r0-3)"),
        (list(range(0, 60, 2)), "30 ranks"),
        (list(range(64)), "every rank"),
    ],
)
def test_ranks_have_words_for_a_sentence(ranks, words):
    assert rank_words(ranks, 64) == words
