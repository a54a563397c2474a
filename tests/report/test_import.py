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


def test_a_plan_file_is_shown_without_a_search_or_a_cache():
    code = "import fastplan.plans.foreign, fastplan.report.plan_text, sys; print(LOADED)"
    others = "('cache.plan_cache', 'engine.optimize', 'planning.policy', 'planning.replan')"
    loaded = f"[m for m in {others} if f'fastplan.{{m}}' in sys.modules]"
    assert python(code.replace("LOADED", loaded)) == "[]"


@pytest.mark.parametrize("module", ["terminal", "units"])
def test_helpers_load_no_numpy(module):
    assert python(f"import fastplan.report.{module}, sys; print('numpy' in sys.modules)") == "False"
