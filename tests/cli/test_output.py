"""Tables, and progress by a clock of the test's own."""

import io
import sys

import pytest

from fastplan.cli.output import Progress, table

GONE = "\x1b[?25h\r\x1b[1A\x1b[2K"  # the cursor is back, and the line of the bar empty


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def steps(stream, total, seconds, count=None):
    """What is written in `count` steps that take so many seconds each."""
    clock = Clock()
    with Progress("checking", total, stream=stream, clock=clock) as progress:
        for _ in range(total if count is None else count):
            clock.now += seconds
            progress.advance()
    return stream.getvalue()


def test_a_table_aligns_texts_left_and_numbers_right():
    lines = table(("name", "rows"), [("a", "1"), ("long name", "1,000")], "<>")
    assert lines == ["  name        rows", "  a              1", "  long name  1,000"]


def test_a_table_escapes_what_would_break_its_lines():
    lines = table(("name",), [("a\nb\x1b[31m",)], "<")
    assert lines == ["  name", "  a\\x0ab\\x1b[31m"]


def test_a_table_in_a_pipe_is_never_cut():
    name = "n" * 300
    assert name in table(("name", "size"), [(name, "1")], "<>")[1]


def test_a_table_on_a_terminal_fits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = table(("name", "size"), [("n" * 300, "123,456")], "<>")
    assert max(map(len, lines)) <= 60
    assert lines[1].endswith("123,456")


def test_long_texts_on_a_terminal_go_on_in_the_next_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = table(
        ("name", "source"), [("hbm", "[b]a[/b] \x1b datasheet :smile: of many words")], "<<"
    )
    assert len(lines) > 2
    shown = " ".join(line.strip() for line in lines[1:])
    assert " ".join(shown.split()) == "hbm [b]a[/b] \\x1b datasheet :smile: of many words"


def test_work_that_ends_soon_shows_nothing():
    assert steps(Terminal(), 10, 0.05) == ""
    assert steps(io.StringIO(), 10, 0.05) == ""


def test_elsewhere_than_on_a_terminal_there_is_nothing():
    assert steps(io.StringIO(), 100, 1.0) == ""


def test_on_a_terminal_there_is_one_line_that_goes_in_the_end(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = steps(Terminal(), 8, 0.5)
    states = shown.split("\r\x1b[2K")
    assert states[1].endswith(" checking  25 % (2 of 8, 2/s, 3 s left)")
    assert states[1].startswith("━━━━━━ ")
    assert shown.endswith(GONE)
    assert all(len(state) < 80 for state in states)


def test_a_bar_is_not_drawn_more_often_than_can_be_seen():
    assert steps(Terminal(), 2048, 1 / 1024).count("checking") <= 11


def test_more_or_fewer_steps_than_announced_are_no_error():
    stream = Terminal()
    steps(stream, 2, 5.0, count=4)
    steps(stream, 0, 5.0, count=2)
    assert "100 %" in stream.getvalue()


def test_a_bar_goes_when_the_work_fails():
    stream, clock = Terminal(), Clock()
    with pytest.raises(KeyError), Progress("work", 2, stream=stream, clock=clock) as progress:
        clock.now += 5
        progress.advance()
        raise KeyError
    assert stream.getvalue().endswith(GONE)
