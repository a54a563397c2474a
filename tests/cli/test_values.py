"""Times and parts of a whole mean the same in every command."""

import click
import pytest

from fastplan.cli.main import COMMANDS, load
from fastplan.cli.values import age, part, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("90s", 90), ("250ms", 0.25), ("15m", 900), ("1h30m", 5400), ("3d", 259200)),
        *(("1.5 h", 5400), ("2min", 120), (".5s", 0.5), ("0s", 0), ("1h 5s", 3605)),
        *(("2w", 1209600), ("1w2d", 777600), ("360.5h", 1297800), (" 1 w ", 604800)),
    ],
)
def test_times(text, expected):
    assert seconds(text) == age(text) == pytest.approx(expected)


def test_a_time_without_a_unit_is_in_seconds_but_no_age():
    assert [seconds(text) for text in ("90", "0", ".5", " 2.5 ")] == [90, 0, 0.5, 2.5]
    with pytest.raises(ValueError, match="must be a time such as 30d"):
        age("90")


@pytest.mark.parametrize("text", ["", "s", "3x", "-5s", "1e3", "nan", "inf", "1h-5m", "five", "²s"])
def test_what_is_no_time(text):
    for read in (seconds, age):
        with pytest.raises(ValueError, match="must be a time such as"):
            read(text)


@pytest.mark.parametrize(
    ("per_cent", "plain"),
    [
        ("5%", "0.05"),
        ("5.3 %", ".053"),
        ("0.7%", "0.007"),
        ("0%", "0"),
        ("100%", "1"),
        ("29%", ".29"),
    ],
)
def test_parts_are_the_same_in_either_notation(per_cent, plain):
    assert part(per_cent) == part(plain) == float(plain)


def test_a_part_above_the_whole_must_be_in_per_cent():
    assert part("150%") == 1.5
    with pytest.raises(ValueError, match=r"write 5% or 0\.05"):
        part("5")


@pytest.mark.parametrize("text", ["", "%", "much", "-1%", "-0.1", "nan", "inf", "inf%", "5%%"])
def test_what_is_no_part(text):
    with pytest.raises(ValueError, match=r"must be a part such as 5% or 0\.05"):
        part(text)


def test_all_options_for_parts_and_times_have_the_same_readers():
    """By what they are called: a new one that reads for itself would show here."""
    readers = {"PART": {part}, "TIME": {seconds}, "AGE": {age}}
    found = {name: set() for name in readers}
    commands = [load(name) for name in COMMANDS]
    for command in commands:
        if isinstance(command, click.Group):
            commands += command.commands.values()
        for param in command.params:
            if param.type.name in found:
                found[param.type.name].add(param.type.read)
    assert found == readers
