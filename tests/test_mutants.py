"""The list of mutants fits the code. Whether tests notice them, `python -m tests.mutants` says."""

import ast
from pathlib import Path

import pytest

from tests.mutant_list import MUTANTS
from tests.mutants import DoesNotApply, mutated

ROOT = Path(__file__).parent.parent


def each(values):
    return pytest.mark.parametrize("mutant", values, ids=lambda mutant: mutant.name)


@each(MUTANTS)
def test_a_mutant_has_one_place_in_its_file_and_changes_it(mutant):
    text = (ROOT / mutant.file).read_text()
    changed = mutated(text, mutant)
    assert changed != text
    if mutant.file.endswith(".py"):
        ast.parse(changed)


@each(MUTANTS)
def test_the_tests_of_a_mutant_exist(mutant):
    assert mutant.tests
    for test in mutant.tests:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in names if function else any(name.startswith("test_") for name in names)


def test_names_are_different():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_text_that_is_missing_or_there_twice_does_not_apply():
    mutant = MUTANTS[0]
    assert mutated(f"a {mutant.old} b", mutant) == f"a {mutant.new} b"
    for text in ("nothing", mutant.old + mutant.old):
        with pytest.raises(DoesNotApply, match=mutant.file):
            mutated(text, mutant)
