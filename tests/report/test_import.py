"""Reports need no torch, and what every command uses of them needs no numpy."""

import pytest

from tests.interpreter import python

HEAVY = "[m for m in ('torch', 'torchrec', 'numba', 'rich', 'jinja2') if m in sys.modules]"


@pytest.mark.parametrize("module", ["report.compare_text", "report.plan_text", "ett.text"])
def test_reports_load_no_torch_and_no_template_engine(module):
    assert python(f"import fastplan.{module}, sys; print({HEAVY})") == "[]"


@pytest.mark.parametrize("module", ["report.html", "ett.html"])
def test_pages_load_no_torch(module):
    assert python(f"import fastplan.{module}, sys; print({HEAVY})") == "['jinja2']"


@pytest.mark.parametrize("module", ["terminal", "units"])
def test_helpers_load_no_numpy(module):
    assert python(f"import fastplan.report.{module}, sys; print('numpy' in sys.modules)") == "False"
