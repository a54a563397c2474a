"""The fork server: imports modules once, and then becomes a worker per request, as a fork.

It is a script of its own: importing fastplan here could start the recording of a job. It must have
no thread and no CUDA context when it forks, because a fork copies neither. If it has, it says so,
and workers start without it.

The main function returns in the worker only. The interpreter then ends the worker as it ends any
Python program: with exit functions, threads, exit code and signals.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import struct
import sys
import time
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

# A message is its length and JSON. A request comes with the worker's stdin, stdout and stderr.
_LENGTH = struct.Struct("<I")
_STREAMS = 3
# `import fastplan` acts on these. The server's environment lacks them; the worker acts on them.
HELD_BACK = ("FASTPLAN_ETT", "FASTPLAN_PATCH")
_ENVIRONMENT = dict(os.environ)  # before the imports


def send(channel: socket.socket, message: dict[str, Any], streams: list[int] | None = None) -> None:
    """Sends a message, with descriptors if there are any."""
    text = json.dumps(message).encode("ascii")
    head = _LENGTH.pack(len(text))
    if streams:
        socket.send_fds(channel, [head], streams)
    else:
        channel.sendall(head)
    channel.sendall(text)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns the next message and its descriptors.

    Raises:
        EOFError: if the other side has ended.
    """
    head, streams, _, _ = socket.recv_fds(channel, _LENGTH.size, _STREAMS)
    head += _exactly(channel, _LENGTH.size - len(head))
    message: dict[str, Any] = json.loads(_exactly(channel, *_LENGTH.unpack(head)))
    return message, list(streams)


def _exactly(channel: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = channel.recv(size - len(parts))
        if not part:
            raise EOFError("the other side has ended")
        parts += part
    return parts


def preload(modules: list[str]) -> dict[str, str]:
    """Imports modules, and calls the functions that `module:function` names.

    Returns:
        The errors, by module.
    """
    failed = {}
    here = os.getcwd()
    is_new = here not in sys.path
    if is_new:
        sys.path.append(here)  # last, so that it hides nothing
    for name in modules:
        module, _, function = name.partition(":")
        try:
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()
        except Exception as error:  # a module of the user may raise anything
            failed[name] = f"{type(error).__name__}: {error}"
    if is_new:
        sys.path.remove(here)
    return failed


def why_not_fork() -> str | None:
    """Returns why a fork of this process would be unsafe; None if it is safe."""
    own = "/proc/self/task"
    threads = [thread for thread in os.listdir(own) if int(thread) != os.getpid()]
    if threads:
        names = sorted({_read(f"{own}/{thread}/comm").strip() for thread in threads})
        return (
            f"{len(threads)} threads were started by imports ({', '.join(names)}); if they are of "
            "a math library, OMP_NUM_THREADS=1 or OPENBLAS_NUM_THREADS=1 prevents them"
        )
    if _read(f"{own}/{os.getpid()}/children").split():
        return "a process was started by imports"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an import has initialised CUDA"
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def serve(channel: socket.socket, modules: list[str]) -> dict[str, Any]:
    """Answers requests until the agent ends, which ends this process as well.

    Returns:
        The request, in each worker.
    """
    begin = time.monotonic()
    failed = preload(modules)
    gc.collect()
    gc.freeze()  # so that workers neither search nor copy what they share
    ready = {"seconds": time.monotonic() - begin, "modules": len(sys.modules), "failed": failed}
    try:
        send(channel, {**ready, "why_not": why_not_fork()})
        while True:
            request, streams = receive(channel)
            pid = _fork_for_agent()
            if pid == 0:
                break
            for stream in streams:
                os.close(stream)
            send(channel, {"pid": pid})
    except (EOFError, OSError):
        os._exit(0)
    channel.close()
    _take_streams(streams)
    return request


def _fork_for_agent() -> int:
    """Forks twice and ends the process in between, so that the agent becomes the parent.

    The worker has a session of its own when this returns.

    Returns:
        The number of the worker; 0 in the worker.
    """
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        os.close(reader)
        between = os.getpid()
        if os.fork():
            os._exit(0)
        os.setsid()  # before the agent knows the worker, and may end its session
        os.write(writer, str(os.getpid()).encode())
        os.close(writer)
        while os.getppid() == between:  # a job may ask for its parent at once
            time.sleep(0.0005)
        return 0
    os.close(writer)
    os.waitpid(between, 0)
    with os.fdopen(reader) as file:
        text = file.read()
    if not text:
        raise OSError("the worker could not be started")
    return int(text)


def _take_streams(streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        if stream >= _STREAMS:
            os.close(stream)


def become_worker(request: dict[str, Any]) -> None:
    """Takes the folder and the environment of a worker."""
    os.chdir(request["cwd"])
    for name, value in request["env"].items():
        if _ENVIRONMENT.get(name) != value:  # all others may have been changed by an import
            os.environ[name] = value
    _seed_generators()
    if "fastplan" in sys.modules:
        sys.modules["fastplan"]._follow_environment()


def _seed_generators() -> None:
    """Seeds the global generators as in a new process; Python's own does that by itself."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed()
    if torch is not None:
        torch.default_generator.seed()


def run_program(words: list[str]) -> None:
    """Runs `-m MODULE ARGS` or `SCRIPT ARGS` as Python's main program."""
    is_module = words[0] == "-m"
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, "-u", *words]
    if is_module:
        import runpy

        sys.argv = ["-m", *words[2:]]
        _set_first_path(os.getcwd())
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
    else:
        sys.argv = list(words)
        path = os.path.join(os.getcwd(), words[0])
        _set_first_path(os.path.dirname(os.path.realpath(path)))
        loader = SourceFileLoader("__main__", path)
        vars(main).update(__file__=path, __loader__=loader, __builtins__=__builtins__)
        exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(main))


def _set_first_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def run_worker(request: dict[str, Any]) -> None:
    """Runs the worker's program. Its traceback begins with its own first frame."""
    try:
        become_worker(request)
        run_program(request["words"])
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = _own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = lambda *_: None  # shown already; the interpreter decides on the exit code
        raise


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    run_worker(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]))
