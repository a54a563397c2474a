"""Starts the workers of torchrun's agent through a fork server, or as usual if it can't."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import MAGIC_NUMBER
from typing import IO, Any

from fastplan.launch import server
from fastplan.model.log import escaped_logger

# What jobs of TorchRec import, most of them; torch.compile imports its own when it is first used.
# Modules that are not installed, or that another version does not have, are skipped.
MODULES = (
    "torch",
    "torch.distributed.checkpoint",
    "torch.distributed.elastic.multiprocessing.errors",
    "torchrec",
    "torchrec.distributed.model_parallel",
    "torchrec.distributed.planner",
    "torchrec.distributed.train_pipeline",
    "torchrec.models.dlrm",
    "torch._dynamo",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._inductor.compile_fx",
    "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.wrapper_fxir",
    "torch.export._trace",
    "torch.fx.experimental.validator",
    "torch.utils.cpp_extension",
    "fastplan.torchrec.planner",
    "fastplan.bundle",
)
# What torchrun's agent sets per worker, and what no import of these modules reads.
_PER_WORKER = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *server.HELD_BACK,
    }
)
_PER_JOB = "TORCHELASTIC_"
_SUBREAPER = 36  # prctl's PR_SET_CHILD_SUBREAPER
_PATIENCE = 300.0  # seconds for the imports
_END_TIMEOUT = 5.0
_DELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # torchrun handles these
_MOST_SERVERS = 5  # of a job: if the environment differs per worker, another one does not help

logger = escaped_logger(__name__)


class Preloader:
    """A fork server, and another one if the first has ended or has the wrong environment.

    Args:
        modules: More modules to import.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._modules = [*MODULES, *modules]
        self._asked = frozenset(modules)
        self._server: ForkServer | None = None
        self._started = 0
        self._workers: list[int] = []  # of earlier servers

    def start(self, python: str, environment: Mapping[str, str]) -> None:
        """Starts the fork server. It imports while this process goes on."""
        self.close()
        if self._started < _MOST_SERVERS:
            self._started += 1
            self._server = ForkServer(python, self._modules, self._asked, environment)

    def popen(
        self, words: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
    ) -> subprocess.Popen[bytes] | None:
        """Starts a worker as a fork.

        Args:
            words: The command line, beginning with Python.
            env: Its environment.
            streams: Its stdin, stdout and stderr.

        Returns:
            The worker; None if torchrun must start it as usual. The reason is logged.
        """
        reason = _why_not_python(words)
        if reason is None:
            found = self._fork(words, env, streams)
            if not isinstance(found, str):
                return found
            reason = found
        logger.warning("fastplan run: a worker starts without preloaded modules: %s", reason)
        return None

    def _fork(
        self, words: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
    ) -> subprocess.Popen[bytes] | str:
        """Returns the worker, or the reason for none; a new server may help the next one."""
        if self._server is None:
            return f"{_MOST_SERVERS} fork servers were not of use"
        changed = self._server.why_not_for(words[0], env)
        if changed is not None:
            self.start(words[0], env)
            return changed
        reason = self._server.wait()
        if reason is not None:
            return reason
        try:
            return ForkedProcess(self._server, words, env, streams)
        except (OSError, EOFError) as error:
            self.start(words[0], env)
            return f"the fork server has ended: {error}"

    def close(self) -> None:
        """Ends the fork server."""
        if self._server is not None:
            self._server.close()
            self._workers += self._server.workers
            self._server = None

    def end_lost_workers(self) -> None:
        """Ends the workers that run although torchrun has ended.

        A signal that comes while torchrun starts workers makes it forget those that it has started.
        """
        self.close()
        lost = [pid for pid in self._workers if _is_running(pid)]
        for pid in lost:
            _signal_session(pid, signal.SIGTERM)
        end = time.monotonic() + _END_TIMEOUT
        while any(map(_is_running, lost)) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in filter(_is_running, lost):
            _signal_session(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _is_running(pid: int) -> bool:
    """Whether a process is a child of this one and has not ended."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _signal_session(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, number)  # a worker leads a session of its own


def _why_not_python(words: Sequence[str]) -> str | None:
    """Returns why a command line can't be run in a fork; None if it can."""
    if sys.platform != "linux":
        return "this needs Linux"
    if len(words) < 3 or words[1] != "-u":
        return f"`{words[0]}` is not started as torchrun starts Python"
    if words[2] == "-m":
        return None if len(words) > 3 else "no module is given"
    return _why_not_source(words[2])


def _why_not_source(path: str) -> str | None:
    """Returns why a program is not a file with Python source; None if it is.

    Python tells these by their content, as here: a zip archive may begin with a line for the shell.
    """
    from zipfile import is_zipfile

    if not os.path.isfile(path):
        return f"{path} is not a file"
    if is_zipfile(path):
        return f"{path} is a zip archive"
    with suppress(OSError), open(path, "rb") as file:  # Python says what is wrong with it
        if path.endswith(".pyc") or file.read(2) == MAGIC_NUMBER[:2]:
            return f"{path} is compiled Python"
    return None


class ForkServer:
    """The agent's side of a fork server.

    Args:
        python: The interpreter.
        modules: What to import.
        asked: Which of them the user has asked for; only those must exist.
        environment: Of the workers. What differs per worker is removed.
    """

    def __init__(
        self,
        python: str,
        modules: Sequence[str],
        asked: frozenset[str],
        environment: Mapping[str, str],
    ) -> None:
        self.environment = _shared(environment)
        self._python, self._asked = python, asked
        self._why_not: str | None = None
        self._is_ready = False
        self.workers: list[int] = []
        _open_closed_streams()
        self.channel, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [python, "-u", server.__file__, str(other.fileno()), *modules],
                env=self.environment,
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C is for the agent, which then ends the workers
            )

    def why_not_for(self, python: str, env: Mapping[str, str]) -> str | None:
        """Returns why this server can't start a worker with this environment; None if it can."""
        if python != self._python:
            return f"the worker's Python is {python}, that of the fork server is {self._python}"
        wanted = _shared(env)
        names = sorted(
            name
            for name in wanted.keys() | self.environment.keys()
            if wanted.get(name) != self.environment.get(name)
        )
        if names:
            return (
                f"{', '.join(names)} changed after the fork server had started, and imports may "
                "have read it; the next restart uses a new fork server"
            )
        return None

    def wait(self) -> str | None:
        """Waits for the imports.

        Returns:
            Why the server can't fork; None if it can.
        """
        if self._is_ready:
            return self._why_not
        self._is_ready = True
        self.channel.settimeout(_PATIENCE)
        try:
            answer, _ = server.receive(self.channel)
        except (OSError, EOFError, ValueError) as error:
            self._why_not = f"the fork server did not finish its imports: {error!r}"
            return self._why_not
        self._why_not = answer["why_not"]
        for name, text in answer["failed"].items():
            if name in self._asked:
                logger.warning("fastplan run: --preload %s: %s", name, text)
        logger.info(
            "fastplan run: %s modules were imported in %.1f s", answer["modules"], answer["seconds"]
        )
        return self._why_not

    def fork(self, request: dict[str, Any], streams: Sequence[int]) -> int:
        """Returns the number of a new worker, which is a child of this process.

        Raises:
            OSError, EOFError: if the server has ended.
        """
        # Only now: orphans of workers are not this process's at any other time.
        _set_subreaper(True)
        try:
            with _delayed_signals():
                server.send(self.channel, request, list(streams))
                pid = int(server.receive(self.channel)[0]["pid"])
                self.workers.append(pid)
            return pid
        finally:
            _set_subreaper(False)

    def close(self) -> None:
        """Ends the server. Its workers stay."""
        self.channel.close()
        if not self._is_ready:
            self._process.kill()  # it would import to the end before it looks
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT)
            return
        self._process.kill()
        self._process.wait()


def _open_closed_streams() -> None:
    """Opens /dev/null as stdin, stdout and stderr where they are closed.

    The next file or socket would get their number, and be a stream of the workers.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number


class ForkedProcess(subprocess.Popen[bytes]):
    """A worker that is a fork of the server, and a child of this process like any other.

    Raises:
        OSError, EOFError: if the server has ended.
    """

    def __init__(
        self,
        server: ForkServer,
        words: Sequence[str],
        env: Mapping[str, str],
        streams: Sequence[int],
    ) -> None:
        request = {"words": list(words[2:]), "env": dict(env), "cwd": os.getcwd()}
        self._start_fork: Callable[[], int] = lambda: server.fork(request, streams)
        super().__init__(list(words))

    def _execute_child(self, *args: Any, **kwargs: Any) -> None:
        """Replaces what Popen does to start a program."""
        self.pid = self._start_fork()
        self._child_created = True


def _shared(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is the same for all workers of a job."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _PER_WORKER and not name.startswith(_PER_JOB)
    }


@contextmanager
def _delayed_signals() -> Iterator[None]:
    """Calls handlers of signals after the block.

    torchrun's handlers raise an error, which would lose the number of a worker that has started.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _DELAYED}
    own = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in own:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in own.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _set_subreaper(on: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, int(on), 0, 0, 0)


def use(preloader: Preloader) -> None:
    """Lets torchrun's agent, in this process, start its workers through the preloader."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    handler: Any = subprocess_handler.SubprocessHandler
    plain = handler._popen

    def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
        files: list[IO[str] | None] = [None, self._stdout, self._stderr]
        streams = [number if file is None else file.fileno() for number, file in enumerate(files)]
        found = preloader.popen(args, env, streams)
        if found is not None:
            return found
        process: subprocess.Popen[bytes] = plain(self, args, env)
        return process

    handler._popen = popen
