"""Logs of invented jobs in the formats of other tools, and rows of a fleet."""

from __future__ import annotations

import json
from typing import Any

from fastplan.ett.fleet.jobs import FleetJob

BEGIN = 1_700_000_000_000  # milliseconds


def mllog(key: str, at: int, value: Any = None, **metadata: Any) -> str:
    """A line of an MLPerf log; `at` is in milliseconds since the begin."""
    entry = {
        "namespace": "",
        "time_ms": BEGIN + at,
        "event_type": "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 1, **metadata},
    }
    return f":::MLLOG {json.dumps(entry)}"


def mlperf_run(init: int = 61_250, run: int = 240_007, begin: int = 0) -> list[str]:
    """A run with two evaluations of 2 s, 100 ms after it began with 3 ms between init and run."""
    start = begin + init + 3
    return [
        mllog("cache_clear", begin - 6000, True),
        mllog("init_start", begin),
        mllog("submission_benchmark", begin + 5, "dlrm_dcnv2"),
        mllog("submission_org", begin + 5, "Example"),
        mllog("submission_platform", begin + 5, "2xBox"),
        mllog("init_stop", begin + init),
        mllog("run_start", start),
        mllog("eval_start", start + 100, epoch_num=0.05),
        mllog("eval_stop", start + 2100, epoch_num=0.05),
        mllog("eval_start", start + 5000, epoch_num=0.1),
        mllog("eval_stop", start + 7000, epoch_num=0.1),
        mllog("run_stop", start + run, status="success"),
    ]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def row(number: int = 0, **changes: Any) -> FleetJob:
    """A row of an invented job."""
    values: dict[str, Any] = {
        "source": f"/runs/{number}",
        "place": f"/runs/{number}",
        "kind": "fastplan",
        "job": f"job{number}",
        "begin": 1_767_225_600.0 + 86_400 * number,
        "seconds": 1000.0,
        "time_to_start_s": 100.0 + number,
        "train_s": 800.0,
        "ett": 0.8,
        "failures": 0,
        "phases": {"plan": 60.0, "compile": 140.0, "training": 800.0},
    }
    return FleetJob(**{**values, **changes})
