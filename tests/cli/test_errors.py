"""What a user reads of an error."""

import pytest

from fastplan.cache.stores import StoreError
from fastplan.cli.errors import CommandError, UsageError, message
from fastplan.model.plan import BadRecord


@pytest.mark.parametrize("kind", [CommandError, UsageError, StoreError, BadRecord])
def test_own_exceptions_speak_for_themselves(kind):
    assert message(kind("table a: too large")) == "table a: too large"


def test_an_exception_without_text_is_told_by_its_type():
    assert message(StoreError()) == "StoreError"
    assert message(RuntimeError()) == "RuntimeError (--debug shows where)"


def test_a_file_is_named_with_what_is_wrong_about_it(tmp_path):
    with pytest.raises(OSError) as error:
        (tmp_path / "no\x1bfile").read_bytes()
    assert message(error.value) == f"{tmp_path}/no\\x1bfile: No such file or directory"


def test_something_that_is_not_installed_leads_to_doctor():
    error = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert message(error) == ("No module named 'torch'; `fastplan doctor` shows what to install")


def test_of_an_import_that_fails_below_another_only_the_cause_is_told():
    error = ImportError("a page\nof advice")
    error.__cause__ = ImportError("libblas.so: cannot open shared object file")
    assert message(error) == (
        "libblas.so: cannot open shared object file; `fastplan doctor` shows what to install"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\ntwo\r\n  three", "one two three"),
        ("bell\x07 and \u202eoverride", "bell\\x07 and \\u202eoverride"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_a_message_is_one_line_that_plays_no_tricks(text, shown):
    assert message(CommandError(text)) == shown
