"""The programs in examples/ print what examples/expected says."""

import pytest

from fastplan.torchrec.support.digest import torchrec_version
from tests.examples import programs
from tests.examples.programs import EXAMPLES, NAMES
from tests.examples.public import internal_names


@pytest.mark.skipif(torchrec_version() != "1.8.0", reason="plans are those of TorchRec 1.8.0")
@pytest.mark.parametrize("name", NAMES)
def test_a_program_prints_what_is_expected(name, tmp_path):
    assert programs.run(name, tmp_path) == programs.expected(name).read_text("utf-8")


def test_the_readme_has_the_command_of_each_program():
    assert sorted(programs.commands()) == NAMES


def test_a_mask_hides_times_and_nothing_else():
    shown = "engine native, cache hit\nplanned in 12.3 ms\nstep 20: loss 0.443\n"
    masked = "engine native, cache hit\nplanned in #\nstep 20: loss 0.443\n"
    assert programs.mask("train_dlrm", shown) == masked


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 120


@pytest.mark.parametrize("name", NAMES)
def test_a_program_uses_only_public_names(name):
    assert internal_names((EXAMPLES / f"{name}.py").read_text()) == []


def test_internal_names_are_found():
    code = "from fastplan.spec.lower import lower, _job\nimport fastplan.engine\nfastplan.model.x"
    found = ["fastplan.engine", "fastplan.model.x", "fastplan.spec.lower._job"]
    assert internal_names(code) == found
