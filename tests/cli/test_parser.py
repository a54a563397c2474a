"""Declarations of options and arguments: what they take, what they refuse, and their help."""

import pytest

from fastplan.cli import main as cli
from fastplan.cli.parser import argument, command, option, options
from tests.cli.command import call


@pytest.fixture
def given(capsys, monkeypatch):
    """The Args of a command with everything there is, or the error that it ends with."""
    found = []

    @command("try", "fastplan try a")
    @argument("FILE", "the first", name="first")
    @argument("[FILE...]", "others", name="rest")
    @option("-o, --output FILE", "the file to write")
    @option("--plans WHERE...", "several")
    @option("--as NAME", "called otherwise", name="alias")
    @option("--kind {small,large}", "one of these", default="small")
    @options(
        option("--size N", "a number"),
        option("--quick", "a flag", excludes="--size"),
        section="sizes",
    )
    def act(args):
        """Tries.
        All of it.
        """
        found.append(args)
        return 0

    monkeypatch.setattr(cli, "COMMANDS", {"try": "tries"})
    monkeypatch.setattr(cli, "load", lambda _: act)

    def answer(*words):
        found.clear()
        _, out, err = call(capsys, "try", *words)
        return found[0] if found else out or err.removeprefix("fastplan: error: ").strip()

    return answer


def test_what_is_not_given_has_its_default(given):
    args = given("a")
    assert vars(args) == {
        "first": "a",
        "rest": (),
        "output": None,
        "plans": (),
        "alias": None,
        "kind": "small",
        "size": None,
        "quick": False,
    }


def test_options_may_stand_between_arguments(given):
    args = given("a", "--quick", "b", "-o", "x", "c")
    assert (args.first, args.rest, args.output, args.quick) == ("a", ("b", "c"), "x", True)


@pytest.mark.parametrize("words", [("-o", "x"), ("-ox",), ("--output", "x"), ("--output=x",)])
def test_a_value_may_be_given_in_four_ways(given, words):
    assert given("a", *words).output == "x"


def test_an_option_may_be_followed_by_several_values(given):
    assert given("a", "--plans", "x", "y", "--quick").plans == ("x", "y")
    assert given("a", "--plans", "x", "--plans", "y", "--", "b").plans == ("x", "y")


def test_an_option_may_have_another_name_in_the_code(given):
    assert given("a", "--as", "b").alias == "b"


def test_a_negative_number_is_a_value(given):
    assert given("a", "--size", "-3").size == -3


def test_a_dash_alone_is_a_value(given):
    assert given("-", "--output", "-").output == "-"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "the following arguments are required: FILE"),
        (("a", "--output"), "argument -o/--output: needs a value"),
        (("a", "-o", "--quick"), "argument -o/--output: needs a value"),
        (("a", "--plans", "--quick"), "argument --plans: needs a value"),
        (("a", "--size", "many"), "argument --size: must be a whole number, not 'many'"),
        (("a", "--kind", "smal"), "unknown --kind `smal`: did you mean `small`?"),
        (("a", "--sise", "3"), "unknown argument `--sise`; did you mean `--size`?"),
        (("a", "--sise=3"), "unknown argument `--sise`; did you mean `--size`?"),
        (("a", "-x"), "unknown argument `-x`"),
        (("a", "--quick=1"), "Option '--quick' does not take a value"),
        (("a", "--size", "3", "--quick"), "argument --quick: not allowed with argument --size"),
    ],
)
def test_a_mistake_is_named_with_the_way_to_help(given, words, told):
    assert given(*words) == f"{told} (see `fastplan try --help`)"


def test_help_shows_declarations_by_section(given):
    assert (
        given("--help")
        == """\
usage: fastplan try [OPTIONS] FILE [FILE...]

Tries. All of it.

arguments:
  FILE  the first
  FILE  others

options:
  -h, --help            show this help and exit
  --debug               show where an error comes from
  --no-color            no colours, as NO_COLOR=1 does
  -o, --output FILE     the file to write
  --plans WHERE...      several
  --as NAME             called otherwise
  --kind {small,large}  one of these

sizes:
  --size N  a number
  --quick   a flag

examples:
  fastplan try a
"""
    )


def test_headings_of_help_are_bold_where_colours_are_wanted(given, monkeypatch):
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\n\x1b[1msizes\x1b[0m:\n" in given("--help")
