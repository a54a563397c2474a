"""What was measured of plans, beside their comparison."""

from __future__ import annotations

from typing import Any

from fastplan.measure.agreement import agreement, measured_for
from fastplan.measure.results import read_runs
from fastplan.measure.text import agreement_json, agreement_text, order, warnings
from fastplan.model.plan import Plan
from fastplan.report.terminal import Style


class Measurements:
    """The folder of `fastplan measure`, read for these plans."""

    def __init__(self, folder: str, plans: list[Plan], labels: list[str]) -> None:
        self._runs = read_runs(folder)
        self._agreement = agreement(plans, labels, self._runs)
        self.by_label = measured_for(plans, labels, self._runs)

    def text(self, style: Style) -> str:
        return agreement_text(self._agreement, self._runs, style)

    def json(self) -> dict[str, Any]:
        return agreement_json(self._agreement, self._runs)

    def findings(self) -> list[str]:
        """Sentences below the picture."""
        return [*order(self._agreement), *warnings(self._runs)]
