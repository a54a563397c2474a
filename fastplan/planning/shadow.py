"""The report of a comparison with TorchRec's own planner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

IDENTICAL = "identical"
DIFFERENT = "different"
NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two plans.

    Attributes:
        table: The path of the module and the name of the table; empty if it is not about one table.
        field: What differs, for example `sharding_type` or `shard 3`.
        fastplan: The value in fastplan's plan.
        torchrec: The value in TorchRec's plan.
    """

    table: str
    field: str
    fastplan: str
    torchrec: str

    def __str__(self) -> str:
        where = f"{self.table}: " if self.table else ""
        return f"{where}{self.field} is {self.fastplan}, TorchRec has {self.torchrec}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a comparison ended.

    Attributes:
        outcome: "identical", "different" or "not compared".
        reason: Why the plans were not compared.
        difference: The first difference.
        tables: The number of tables in TorchRec's plan.
        seconds: Of fastplan and TorchRec; `torchrec_cpu` is the CPU time of TorchRec.
        note: What may have caused a difference apart from the planners.
    """

    outcome: str
    reason: str | None = None
    difference: Difference | None = None
    tables: int | None = None
    seconds: dict[str, float]
    note: str | None = None


class Shadow:
    """The comparison of a plan with TorchRec's own, in `planner.last_run.shadow`.

    `verdict` is None until the comparison is done. `uses` names the planner whose plan the job has.
    """

    def __init__(self, uses: str) -> None:
        self.uses = uses
        self.verdict: Verdict | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()

    @property
    def outcome(self) -> str | None:
        """ "identical", "different", "not compared", or None while TorchRec still plans."""
        return None if self.verdict is None else self.verdict.outcome

    def wait(self, timeout: float | None = None) -> Verdict | None:
        """Waits for the verdict, and returns None if it takes longer than `timeout` seconds."""
        self._ended.wait(timeout)
        return self.verdict

    def end(self, verdict: Verdict, then: Callable[[Shadow], None]) -> None:
        """Takes the verdict and calls `then`; a second verdict is ignored."""
        with self._lock:
            if self.verdict is not None:
                return
            self.verdict = verdict
        try:
            then(self)
        finally:
            self._ended.set()

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data; without a verdict, `outcome` is None."""
        found = {} if self.verdict is None else asdict(self.verdict)
        return {"outcome": None, "uses": self.uses, **found}

    def __str__(self) -> str:
        verdict = self.verdict
        if verdict is None:
            return "not compared yet: TorchRec still plans"
        if verdict.outcome == NOT_COMPARED:
            return f"not compared: {verdict.reason}"
        times = ", ".join(f"{name} {spent:.3g} s" for name, spent in verdict.seconds.items())
        found = (
            "identical plans" if verdict.difference is None else f"different: {verdict.difference}"
        )
        note = f"; {verdict.note}" if verdict.note and verdict.difference else ""
        return f"{found} ({times}){note}"

    def __repr__(self) -> str:
        return f"Shadow({self})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickles what is known; the copy of a running comparison never gets a verdict."""
        return {"uses": self.uses, "verdict": self.verdict}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["uses"])  # type: ignore[misc]
        self.verdict = state["verdict"]
        self._ended.set()
