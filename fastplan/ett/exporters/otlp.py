"""OpenTelemetry: metrics and spans over OTLP and HTTP, by OpenTelemetry's own SDK.

Spans have the names of NVIDIA's one-logger where it has one; `fastplan.phase` is the phase itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from fastplan.ett.exporters.snapshot import Snapshot
from fastplan.ett.phases import phase_name

_TIMEOUT = 2.0  # seconds of a request
_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_MOST_SPANS = 2000  # of one request


class Otlp:
    """Sends metrics and spans to a collector.

    Args:
        url: Its address, such as http://localhost:4318.

    Raises:
        ImportError: The SDK or the exporter is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._latest: Snapshot | None = None
        self._sent = 0  # spans
        self._metrics: Any = None
        # Both are imported here, where a missing one can be reported.
        import_module("opentelemetry.sdk.metrics")
        import_module(f"{_EXPORTER}.metric_exporter")

    def export(self, snapshot: Snapshot) -> None:
        """Sends the figures, and the phases that have ended since the last time.

        Raises:
            ConnectionError: The collector does not accept them.
        """
        if self._metrics is None:
            self._open(snapshot)
        self._latest = snapshot
        data = self._reader.get_metrics_data()
        if data is not None:
            self._check(self._metrics.export(data, timeout_millis=1000 * _TIMEOUT))
        new = snapshot.spans[self._sent : self._sent + _MOST_SPANS]
        if new:
            self._check(self._spans.export([self._span(*each) for each in new]))
            self._sent += len(new)

    def close(self) -> None:
        """Ends the connection."""
        if self._metrics is not None:
            self._metrics.shutdown()
            self._spans.shutdown()
            self._silence.end()

    def _open(self, snapshot: Snapshot) -> None:
        metrics = import_module("opentelemetry.sdk.metrics")
        readers = import_module("opentelemetry.sdk.metrics.export")
        traces = import_module("opentelemetry.sdk.trace")
        resource = import_module("opentelemetry.sdk.resources").Resource(_resource(snapshot))
        self._reader = readers.InMemoryMetricReader()
        # Without an exit handler: the recorder ends the exporter itself.
        provider = metrics.MeterProvider([self._reader], resource, shutdown_on_exit=False)
        self._declare(provider.get_meter("fastplan.ett"))
        self._tracer = traces.TracerProvider(resource=resource, shutdown_on_exit=False).get_tracer(
            "fastplan.ett"
        )
        self._spans = import_module(f"{_EXPORTER}.trace_exporter").OTLPSpanExporter(
            endpoint=f"{self._url}/v1/traces", timeout=_TIMEOUT
        )
        self._metrics = import_module(f"{_EXPORTER}.metric_exporter").OTLPMetricExporter(
            endpoint=f"{self._url}/v1/metrics", timeout=_TIMEOUT
        )
        self._silence = _Silence()

    def _declare(self, meter: Any) -> None:
        observation = import_module("opentelemetry.metrics").Observation

        def value(name: str) -> Any:
            def observe(options: Any) -> Iterable[Any]:
                found = None if self._latest is None else getattr(self._latest, name)
                return [] if found is None else [observation(found)]

            return observe

        def phases(options: Any) -> Iterable[Any]:
            found = {} if self._latest is None else self._latest.phases
            return [observation(took, {"phase": name}) for name, took in found.items()]

        meter.create_observable_counter("fastplan.ett.phase", [phases], "s", "time by phase")
        for name, unit in (("steps", "{step}"), ("failures", "{failure}")):
            meter.create_observable_counter(f"fastplan.ett.{name}", [value(name)], unit)
        for name, unit in (("ett", "1"), ("time_to_start", "s"), ("last_step", "{step}")):
            meter.create_observable_gauge(f"fastplan.ett.{name}", [value(name)], unit)

    def _span(self, phase: str, begin: int, end: int) -> Any:
        span = self._tracer.start_span(
            phase_name(phase).span or phase,
            start_time=begin,
            attributes={"fastplan.phase": phase},
        )
        span.end(end_time=end)
        return span

    def _check(self, result: Any) -> None:
        if result.name != "SUCCESS":
            raise ConnectionError(f"{self._url} does not accept metrics and spans")


class _Silence(logging.Filter):
    """Drops what OpenTelemetry logs in this thread: the first failure is logged by `thread`."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        known = list(logging.root.manager.loggerDict)
        names = [name for name in known if name.startswith(("opentelemetry.", "urllib3"))]
        self._loggers = [logging.getLogger(name) for name in names]
        for logger in self._loggers:
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether to log it."""
        return record.thread != self._thread

    def end(self) -> None:
        """Lets everything through again."""
        for logger in self._loggers:
            logger.removeFilter(self)


def _resource(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "service.name": snapshot.labels.get("job", snapshot.run),
        "host.name": snapshot.host,
        "fastplan.rank": snapshot.rank,
        "fastplan.world": snapshot.world,
        "fastplan.attempt": snapshot.attempt,
        **{f"fastplan.label.{name}": value for name, value in snapshot.labels.items()},
    }
