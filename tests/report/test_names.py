"""Names are shown in one line, without invisible characters."""

import pytest

from fastplan.report.terminal import display_width, escape_name, shorten, table_name


@pytest.mark.parametrize("name", ["user_id", "a.b.c", "größe", "表", "a b", "<b>", "x\\n", "🙂"])
def test_ordinary_names_are_unchanged(name):
    assert escape_name(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\x0ab"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("a\u202eb", r"a\u202eb"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("line\u2028end", r"line\u2028end"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_does_not_show_or_moves_other_text_is_escaped(name, shown):
    assert escape_name(name) == shown
    escape_name(name).encode()


@pytest.mark.parametrize("width", [1, 2, 5, 10, 11, 40])
@pytest.mark.parametrize("name", ["feature_123_embedding", "表" * 30, "a\u0301" * 30, "\x00" * 9])
def test_shortened_names_fit(name, width):
    assert display_width(shorten(name, width)) <= width


def test_shortened_names_keep_both_ends():
    assert shorten("feature_123_embedding", 11) == "featu…dding"
    assert shorten("feature_123_embedding", 11, ellipsis="...") == "feat...ding"


def test_names_that_fit_stay_whole():
    assert shorten("t", 1) == "t"
    assert shorten("表", 2) == "表"


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert display_width("表a") == 3
    assert display_width("a\u0301") == 1


def test_tables_at_the_root_have_no_path():
    assert table_name("", "t") == "t"
    assert table_name("sparse.ebc", "t") == "sparse.ebc.t"
