"""Reports need no torch, and what every command uses of them needs no numpy."""

import pytest

from tests.interpreter import python

HEAVY = "[m for m in ('torch', 'torchrec', 'numba', 'rich') if m in sys.modules]"


@pytest.mark.parametrize("module", ["html", "compare_text", "inspect_text"])
def test_reports_load_no_torch(module):
    assert python(f"import fastplan.report.{module}, sys; print({HEAVY})") == "[]"


@pytest.mark.parametrize("module", ["names", "table_text", "terminal", "units"])
def test_helpers_load_no_numpy(module):
    assert python(f"import fastplan.report.{module}, sys; print('numpy' in sys.modules)") == "False"
