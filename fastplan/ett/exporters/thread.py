"""Starts the exporters that were asked for, and runs them in a thread of their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Protocol

from fastplan.ett.events import to_text, warn
from fastplan.ett.exporters.snapshot import Snapshot, Source

# Exporters, separated by commas: textfile:DIR, http:PORT or http:HOST:PORT, otlp:URL.
EXPORT = "FASTPLAN_ETT_EXPORT"
# Seconds between two exports.
INTERVAL = "FASTPLAN_ETT_EXPORT_INTERVAL"
_USUAL_INTERVAL = 15.0
_LEAST_INTERVAL = 0.05
_LOOPBACK = "127.0.0.1"
_LAST_WORDS = 3.0  # seconds for the last export, when the process ends


class Exporter(Protocol):
    """Where figures go."""

    def export(self, snapshot: Snapshot) -> None:
        """Sends or writes figures. May raise anything."""

    def close(self) -> None:
        """Releases what it holds."""


class ExportThread:
    """Exports the figures of a recorder's file until it is stopped. Nothing here raises.

    Args:
        path: The file.
        wanted: The exporters, such as `["http:9400", "otlp:http://localhost:4318"]`.
        interval: Seconds between two exports.
    """

    def __init__(self, path: str, wanted: Iterable[str], interval: float = _USUAL_INTERVAL) -> None:
        self._source = Source(path)
        self._wanted = list(wanted)
        self._interval = max(_LEAST_INTERVAL, interval)
        self._over = threading.Event()
        self._warned: set[str] = set()
        self.exporters: list[tuple[str, Any]] = []
        self.opened = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fastplan-ett-export", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Exports a last time, for at most a few seconds."""
        self._over.set()
        self._thread.join(_LAST_WORDS)

    def _run(self) -> None:
        for words in self._wanted:
            try:
                self.exporters.append((words, open_exporter(words, self._source)))
            except Exception as error:
                self._warn(words, error)
        self.opened.set()
        over = not self.exporters
        while not over:
            over = self._over.wait(self._interval)
            self._export(over)
        for words, exporter in self.exporters:
            try:
                exporter.close()
            except Exception as error:
                self._warn(words, error)

    def _export(self, last: bool) -> None:
        try:
            snapshot = self._source.snapshot(fresh=last)
        except Exception as error:
            self._warn("the recording", error)
            return
        for words, exporter in self.exporters:
            try:
                exporter.export(snapshot)
            except Exception as error:
                self._warn(words, error)

    def _warn(self, words: str, error: Exception) -> None:
        """Logs the first error of an exporter. It is tried again at the next interval."""
        if words not in self._warned:
            self._warned.add(words)
            warn("nothing is exported to %s for now: %s: %s", words, type(error).__name__, error)


def open_exporter(words: str, source: Source) -> Exporter:
    """Opens an exporter.

    Raises:
        ValueError: The words name none.
        Exception: Whatever keeps it from being opened, such as a port that is taken.
    """
    kind, _, place = words.strip().partition(":")
    if kind == "textfile" and place:
        from fastplan.ett.exporters.prometheus import TextFile

        return TextFile(place)
    if kind == "http" and place:
        from fastplan.ett.exporters.prometheus import Endpoint

        host, _, port = place.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{place!r} is not a port, such as 9400 or 0.0.0.0:9400")
        return Endpoint(host.strip("[]") or _LOOPBACK, _port(int(port)), source)
    if kind == "otlp" and place.startswith(("http://", "https://")):
        from fastplan.ett.exporters.otlp import Otlp

        return Otlp(place)
    raise ValueError(
        f"{words!r} is not an exporter: use textfile:DIR, http:PORT, http:HOST:PORT or otlp:URL"
    )


def _port(port: int) -> int:
    """Every rank of a host has a port of its own: the first one's, and those after it."""
    local = os.environ.get("LOCAL_RANK", "0")
    return port + int(local) if port and local.isdecimal() else port


def start_exporters(path: str, wanted: Any = None) -> ExportThread | None:
    """Starts exporters for a recorder's file, if any are wanted. Never raises.

    Args:
        path: The file.
        wanted: The exporters as a list or as text; those of FASTPLAN_ETT_EXPORT if it is None.
    """
    try:
        given = os.environ.get(EXPORT, "") if wanted is None else wanted
        parts = given.split(",") if isinstance(given, str) else [to_text(each) for each in given]
        names = [part.strip() for part in parts if part.strip()]
        return ExportThread(path, names, _interval()) if names else None
    except Exception as error:
        warn("nothing is exported: %s: %s", type(error).__name__, error)
        return None


def _interval() -> float:
    try:
        return float(os.environ[INTERVAL])
    except (KeyError, ValueError):
        return _USUAL_INTERVAL
