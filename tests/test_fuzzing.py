"""A thousand inputs for every fuzz target; `make fuzz` tries more."""

import pytest

from tests.fuzzing import TARGETS, fuzz, target_of


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_the_parser(name):
    assert fuzz(target_of(name), lambda tried: tried < 1000, seed=1) == 1000
