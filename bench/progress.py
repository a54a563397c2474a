"""A progress line with the time of the current step."""

import sys
import threading
import time
from types import TracebackType


class Progress:
    """Shows `text` with the seconds elapsed while the block runs.

    A terminal gets one line, redrawn five times a second and cleared at the end; a pipe gets one
    plain line at the start. Everything goes to standard error, so standard output stays clean.
    """

    INTERVAL = 0.2
    FRAMES = "|/-\\"

    def __init__(self, text: str) -> None:
        self._text = text
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        if not sys.stderr.isatty():
            print(f"{self._text} ...", file=sys.stderr, flush=True)
            return
        # Daemon, so that an interrupt during the block is not held up by this thread.
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        start = time.monotonic()
        frame = 0
        while not self._stopped.is_set():
            mark = self.FRAMES[frame % len(self.FRAMES)]
            elapsed = time.monotonic() - start
            sys.stderr.write(f"\r{mark} {self._text}: {elapsed:.1f} s ")
            sys.stderr.flush()
            frame += 1
            self._stopped.wait(self.INTERVAL)
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
