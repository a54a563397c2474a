"""Prometheus: the text format, a file for node_exporter's collector, and an HTTP endpoint."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from fastplan.ett.exporters.snapshot import Snapshot, Source
from fastplan.files.storage import replace_file

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[^a-zA-Z0-9_]")
_PATIENCE = 2.0  # seconds that a client may take

_Sample = tuple[dict[str, str], float]


def metrics_text(snapshot: Snapshot) -> str:
    """Returns the figures of a process in Prometheus' text format."""
    own = _labels(snapshot)
    one = [(own, 0.0)]

    def single(value: float | None) -> list[_Sample]:
        return [] if value is None else [(labels, value) for labels, _ in one]

    phases = [({**own, "phase": name}, took) for name, took in snapshot.phases.items()]
    metrics: list[tuple[str, str, str, list[_Sample]]] = [
        ("phase_seconds_total", "counter", "Time of this rank by phase.", phases),
        ("steps_total", "counter", "Steps that have ended.", single(snapshot.steps)),
        ("last_step", "gauge", "Number of the step that ended last.", single(snapshot.last_step)),
        ("checkpoints_total", "counter", "Recorded checkpoints.", single(snapshot.checkpoints)),
        ("failures_total", "counter", "Recorded failures.", single(snapshot.failures)),
        ("ratio", "gauge", "Share of training in the time of this rank.", single(snapshot.ett)),
        (
            "time_to_start_seconds",
            "gauge",
            "From launch to the first batch.",
            single(snapshot.time_to_start),
        ),
        ("begin_seconds", "gauge", "When it began, since 1970.", single(snapshot.begin / 1e9)),
    ]
    return "".join(_metric(*metric) for metric in metrics if metric[3])


def _labels(snapshot: Snapshot) -> dict[str, str]:
    labels = {_label_name(name): value for name, value in snapshot.labels.items()}
    return {
        "job_name": labels.pop("job", snapshot.run),  # Prometheus has a label `job` of its own
        **labels,
        "rank": str(snapshot.rank),
        "attempt": str(snapshot.attempt),
        "host": snapshot.host,
    }


def _label_name(name: str) -> str:
    """A name that Prometheus accepts."""
    found = _NAME.sub("_", name)
    return f"_{found}" if not found or found[0].isdigit() else found.lstrip("_") or "_"


def _metric(name: str, kind: str, help: str, samples: Iterable[_Sample]) -> str:
    full = f"fastplan_ett_{name}"
    lines = [f"# HELP {full} {help}\n# TYPE {full} {kind}\n"]
    for labels, value in samples:
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{full}{{{inner}}} {value!r}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    # A lone surrogate, which a name may have, is no UTF-8.
    usable = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return usable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class TextFile:
    """A file for node_exporter's textfile collector, replaced as a whole.

    Args:
        place: A directory, in which every rank has its own file; or a file, `*.prom`.
    """

    def __init__(self, place: str) -> None:
        self._place = place

    def export(self, snapshot: Snapshot) -> None:
        """Writes the figures."""
        path = self._place
        if not path.endswith(".prom"):
            os.makedirs(path, exist_ok=True)
            path = os.path.join(path, f"fastplan_ett_rank{snapshot.rank:05}.prom")
        replace_file(path, [metrics_text(snapshot).encode()])

    def close(self) -> None:
        """Keeps the file, which the collector may still read."""


class _Server(HTTPServer):
    """A server that prints nothing about clients that leave: the job's output is not ours."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Drops the client."""


class Endpoint:
    """An HTTP endpoint for Prometheus to scrape. It serves one client at a time.

    Args:
        host: The address to listen on.
        port: The port; 0 for any.
        source: The figures.

    Raises:
        OSError: if the address is taken.
    """

    def __init__(self, host: str, port: int, source: Source) -> None:
        self._server = _Server((host, port), _handler(source))
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="fastplan-ett-http", daemon=True
        )
        self._thread.start()

    def export(self, snapshot: Snapshot) -> None:
        """Does nothing: Prometheus asks for figures when it wants them."""

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


def _hang_up(client: socket.socket) -> None:
    with suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def _handler(source: Source) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def setup(self) -> None:
            # A client that sends a byte now and then would never time out.
            self._end = threading.Timer(_PATIENCE, _hang_up, [self.request])
            self._end.daemon = True
            self._end.start()
            super().setup()

        def finish(self) -> None:
            self._end.cancel()
            super().finish()

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404)
                return
            try:
                body = metrics_text(source.snapshot()).encode()
            except Exception:  # the file is gone, or not written yet
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing: the job's output is not ours."""

    return Handler
