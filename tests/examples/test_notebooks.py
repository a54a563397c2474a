"""The notebooks in examples/ run, and show what their files show."""

import ast
import json
import re

import pytest

from fastplan.torchrec.support.digest import torchrec_version
from tests.examples import notebooks
from tests.examples.notebooks import EXAMPLES, NAMES
from tests.examples.public import internal_names

MAGIC = re.compile(r"^(\s*)(.*)= !.*$", re.M)


def cells(name, kind):
    """The cells of a kind in the file of a notebook."""
    found = json.loads((EXAMPLES / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


@pytest.mark.skipif(torchrec_version() != "1.8.0", reason="plans are those of TorchRec 1.8.0")
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_what_its_file_shows(name, tmp_path):
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is missing: see requirements/dev.txt")
    shown, kept = notebooks.run(name, tmp_path), notebooks.read(name)
    assert [*notebooks.texts(shown)] == [*notebooks.texts(kept)]
    assert notebooks.pictures(shown) == notebooks.pictures(kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_pictures_and_is_small(name):
    outputs = [output for cell in cells(name, "code") for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert (EXAMPLES / f"{name}.ipynb").stat().st_size < 200_000


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_from_top_to_bottom_without_errors_and_warnings(name):
    found = cells(name, "code")
    assert [cell["execution_count"] for cell in found] == [*range(1, len(found) + 1)]
    outputs = [output for cell in found for output in cell["outputs"]]
    assert not [each for each in outputs if each["output_type"] == "error"]
    assert not [each for each in outputs if each.get("name") == "stderr"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_does_not_show_where_it_was_run(name):
    outputs = json.dumps([cell["outputs"] for cell in cells(name, "code")])
    assert re.findall(r"/(?:home|root|tmp|usr|opt|work|Users)/[\w.-]+", outputs) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_uses_only_public_names(name):
    for cell in cells(name, "code"):
        if not source(cell).startswith("%%bash"):
            code = MAGIC.sub(r"\1\2= None", source(cell))
            ast.parse(code)
            assert internal_names(code) == []


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_notebook_lead_somewhere(name):
    text = "\n".join(source(cell) for cell in cells(name, "markdown"))
    for link in re.findall(r"\]\(([^):#]+)", text):
        assert (EXAMPLES / link).exists(), link


def test_times_are_masked_and_nothing_else():
    cell = {"outputs": [{"text": "40 cells, 39 fit, planned in 1.3 s\n2.54 ms"}]}
    shown = type("Notebook", (), {"cells": [cell]})
    assert [*notebooks.texts(shown)] == [(0, "40 cells, 39 fit, planned in #\n2.54 ms")]
