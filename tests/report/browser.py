"""A headless Chromium, driven over a pipe by the DevTools protocol: no driver, no dependency."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Puts both pipes where the browser expects them; either may be where the other has to be.
_LAUNCHER = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 20) for pipe in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 30.0  # seconds for an answer, after which the browser counts as broken


def find_browser() -> str | None:
    """The Chromium to test with: FASTPLAN_TEST_BROWSER, or the first one on the path."""
    wanted = os.environ.get("FASTPLAN_TEST_BROWSER")
    return wanted or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One browser process. Pages are cheap, processes are not."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={self._profile.name}",
            "--remote-debugging-pipe",  # reads commands from 3 and answers on 4
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCHER, str(commands), str(answers), program, *options],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a command; events that come in between are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method: str, session: str) -> None:
        """Waits until an event has been seen."""
        while not any(e.get("method") == method and e["sessionId"] == session for e in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0, end - time.monotonic()))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser does not answer")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(
        self, path: Path, *, width: int = 1280, dark: bool = False, scripts: bool = True
    ) -> Page:
        return Page(self, path, width, dark, scripts)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()


class Page:
    """One open file."""

    def __init__(self, browser: Browser, path: Path, width: int, dark: bool, scripts: bool) -> None:
        self._browser = browser
        browser.events.clear()
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self._size(width)
        self.media(dark=dark)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path.as_uri())
        browser.wait_for("Page.loadEventFired", self._session)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def _size(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def resize(self, width: int) -> None:
        """Another width, and the time to draw for it."""
        self._size(width)
        drawn = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        self.call("Runtime.evaluate", expression=drawn, awaitPromise=True)

    def media(self, *, dark: bool = False, kind: str = "screen") -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def run(self, script: str) -> Any:
        """The value of an expression; raises what it throws."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """What all elements say that a selector finds."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        texts: list[str] = self.run(f"{found}.map((element) => element.textContent)")
        return texts

    def press(self, key: str) -> None:
        """A key, pressed and released on the element that has the focus."""
        text = {"Enter": "\r", " ": " "}.get(key)
        codes = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Tab": 9}
        both: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        down = {**both, "text": text} if text else both
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **both)

    def type_into(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Exceptions, console errors and warnings, and requests for anything but the file."""
        found = []
        for event in self._browser.events:
            kind, parameters = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(str(parameters["args"]))
            elif kind == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(str(parameters["entry"]["text"]))
            elif kind == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                found += [url] if not url.startswith(("file:", "data:")) else []
        return found

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
