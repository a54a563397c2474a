"""The programs in examples/ print what examples/expected says."""

import ast
import re

import pytest

from fastplan.torchrec.support.digest import torchrec_version
from tests.cli.command import ROOT
from tests.examples import programs
from tests.examples.programs import EXAMPLES, NAMES


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


def internal_names(code):
    """The names of fastplan in some code that the API page does not list."""
    listed = (ROOT / "docs" / "api.md").read_text()
    public = set(re.findall(r"^- `(?:class )?(fastplan[\w.]*)", listed, re.M)) | {"fastplan"}
    packages = {name.rpartition(".")[0] for name in public}
    classes = {name for name in public if name.rpartition(".")[2][0].isupper()}
    used = set(used_names(code))
    whole = {name for name in used if not any(other.startswith(f"{name}.") for other in used)}
    of_classes = {name for name in whole if name.rpartition(".")[0] in classes}
    return sorted(whole - of_classes - public - packages)


def used_names(code):
    """The names of fastplan that code imports or writes out, such as `fastplan.Kernel.FUSED`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fastplan"))
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("fastplan"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("fastplan."):
            yield ast.unparse(node)


def test_internal_names_are_found():
    code = "from fastplan.spec.lower import lower, _job\nimport fastplan.engine\nfastplan.model.x"
    found = ["fastplan.engine", "fastplan.model.x", "fastplan.spec.lower._job"]
    assert internal_names(code) == found
