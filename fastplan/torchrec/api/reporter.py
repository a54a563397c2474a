"""Writes fastplan's reports on the plans of TorchRec's planner API."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchrec.distributed.planner.stats import EmbeddingStats, _calculate_critical_path
from torchrec.distributed.planner.types import Stats

from fastplan.files.storage import replace_file
from fastplan.model.log import escaped_logger
from fastplan.model.plan import Plan
from fastplan.report.html import html_report
from fastplan.report.plan_text import inspect_text
from fastplan.torchrec.api import api_module
from fastplan.torchrec.api.throughput import estimated_qps
from fastplan.torchrec.plan_files import describe_plan, plan_text

logger = escaped_logger(__name__)

_FORMATS = ("json", "txt", "html")


class PlanReporter:
    """A PlanReporter of TorchRec's planner API that writes files for each SKU.

    They are `SKU.json`, a plan file for `fastplan inspect`, `compare` and `load_plan`; `SKU.txt`,
    the text of `fastplan inspect`; and `SKU.html`, a page on the plan. The result's
    `sharding_plan_manifold_url` is the path of the first one. With fastplan's PlannerProvider, the
    files contain the request of the plan, and so costs and memory. A file that can't be written
    is a warning and an entry in `ctx.plan_persist_failures`, never an error.

    Args:
        directory: where to write; created if it does not exist.
        formats: which of "json", "txt" and "html" to write.
        console: also log TorchRec's table of statistics, as TorchRec's reporter does.

    Raises:
        ImportError: TorchRec does not have the planner API.
        ValueError: `formats` has another value, or none.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        formats: Sequence[str] = _FORMATS,
        console: bool = True,
    ) -> None:
        api_module("reporter", type(self).__name__)
        unknown = [each for each in formats if each not in _FORMATS]
        if unknown or not formats or isinstance(formats, str):
            raise ValueError(f"`formats` must be some of {', '.join(_FORMATS)}, not {formats!r}")
        self._directory = Path(directory)
        self._formats = tuple(formats)
        self._console = console

    def build_stats(self, ctx: Any, sku: str) -> list[Any]:
        """Returns what the planner of a SKU reports its plan to."""
        # A SKU may be any text, and must not lead out of the directory.
        base = self._directory / quote(sku, safe=" ")
        files = PlanFileStats(ctx, sku, {each: f"{base}.{each}" for each in self._formats})
        return [EmbeddingStats(), files] if self._console else [files]


class PlanFileStats(Stats):
    """Writes the files of one SKU when its plan is finished.

    Args:
        ctx: the PlannerSessionContext, for failures.
        sku: the SKU.
        paths: the files by format.
    """

    def __init__(self, ctx: Any, sku: str, paths: dict[str, str]) -> None:
        self._ctx = ctx
        self._sku = sku
        self._paths = paths
        self._planner: Callable[[], Any] = lambda: None
        self._written: list[str] = []

    def follow(self, planner: Any) -> None:
        """Takes requests and costs from a planner of fastplan."""
        self._planner = weakref.ref(planner)  # which holds this object

    def get_most_recent_sharding_plan_dump_location(self) -> str | None:
        """Returns the first file that was written, under the name that TorchRec looks for."""
        return self._written[0] if self._written else None

    def log(self, **known: Any) -> None:
        """Writes the files. Takes the arguments of TorchRec's Stats.log()."""
        self._written = []
        if not known["sharding_plan"].plan:
            return  # nothing fits, or the model has no tables
        try:
            self._write(known)
        except Exception as error:  # a report must not cost the job its plan
            logger.warning("fastplan: the plan for %s is not reported: %r", self._sku, error)
            self._ctx.record_plan_persist_failure(f"plan_report:{self._sku}", error)

    def _write(self, known: dict[str, Any]) -> None:
        plan, planner = known["sharding_plan"], self._planner()
        arguments = {"notes": self._notes(known, planner), "planner": planner}
        described = describe_plan(plan, self._sku, **arguments)
        for kind, path in self._paths.items():
            text = plan_text(plan, path, **arguments) if kind == "json" else _page(kind, described)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            replace_file(path, [text.encode()])
            self._written.append(path)

    def _notes(self, known: dict[str, Any], planner: Any) -> dict[str, str]:
        critical_path_ms = _calculate_critical_path(known["best_plan"]).total()
        world_size = known["topology"].world_size
        notes = {
            "sku": self._sku,
            "request_hash": self._ctx.request.request_hash,
            "critical_path_ms": repr(critical_path_ms),
            "estimated_qps": repr(estimated_qps(known["batch_size"], world_size, critical_path_ms)),
        }
        if planner is None:
            notes["no_basis"] = "the planner was not built by fastplan.PlannerProvider"
        else:
            notes |= {"engine": planner.last_run.engine, "cache": planner.last_run.cache.status}
        return notes


def _page(kind: str, plan: Plan) -> str:
    return html_report([plan]) if kind == "html" else inspect_text(plan, tables=True)
