"""Streams get the width, characters and colours they can show."""

import io
import os

import pytest

from fastplan.report.terminal import Column, Style, table_lines


class Stream(io.StringIO):
    def __init__(self, *, terminal=False, encoding="utf-8"):
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    def isatty(self):
        return self._terminal

    @property
    def encoding(self):
        return self._encoding


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_pipe_gets_no_colour_and_the_full_width():
    assert Style.of(Stream()) == Style(width=100, colour=False, unicode=True)


def test_a_terminal_gets_colour():
    assert Style.of(Stream(terminal=True)).colour


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_the_environment_decides_about_colour(monkeypatch, environment, terminal, colour):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Style.of(Stream(terminal=terminal)).colour is colour


@pytest.mark.parametrize(("columns", "width"), [(80, 80), (300, 100), (10, 40)])
def test_the_width_is_the_terminals_within_limits(monkeypatch, columns, width):
    size = os.terminal_size((columns, 24))
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: size)
    assert Style.of(Stream(terminal=True)).width == width


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", None, "no-such-codec"])
def test_streams_without_blocks_get_ascii(encoding):
    assert not Style.of(Stream(encoding=encoding)).unicode


def test_paint_is_plain_without_colour():
    assert Style().paint("x", "red") == "x"
    assert Style(colour=True).paint("x", "red") == "\x1b[31mx\x1b[0m"
    assert Style(colour=True).paint("", "red") == ""


def test_ascii_names_are_ascii():
    assert Style(unicode=False).name("größe" * 9, 20).isascii()


def test_tables_are_aligned_by_columns_not_characters():
    rows = [["表", "1"], ["ab", "22"]]
    lines = list(table_lines([Column("t"), Column("n", right=True)], rows, Style()))
    assert lines == ["  t    n", "  表   1", "  ab  22"]


def test_wide_names_are_shortened_and_figures_are_not():
    rows = [["x" * 200, "1,234,567 ms"], ["y", "2 ms"]]
    lines = list(table_lines([Column("t"), Column("n", right=True)], rows, Style(width=40)))
    assert max(map(len, lines)) == 40
    assert lines[1].endswith("  1,234,567 ms")
    assert "…" in lines[1]


def test_control_characters_in_cells_are_escaped():
    lines = list(table_lines([Column("t")], [["a\x1b[2Jb\n"]], Style()))
    assert lines[1] == r"  a\x1b[2Jb\x0a"
