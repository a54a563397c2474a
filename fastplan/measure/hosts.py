"""Several hosts on one Linux machine: network namespaces with rate-limited links between them.

Each host is a namespace with one interface, `eth0`. A bridge in a namespace of its own connects the
hosts. A token bucket limits each direction of each host's link. All interfaces are inside these
namespaces, so nothing is added to the machine's own network, and no packet leaves the machine.

    with EmulatedHosts(2, parse_rate("500Mbit")) as hosts:
        subprocess.run(hosts.command(0, ["ip", "addr"]), env={**os.environ, **hosts.environment})

Ranks of one host talk over its own loopback, which has no limit. All hosts share the machine's
cores, memory and files.

The hosts are removed when the `with` block ends. If the process ends first, for any reason, a guard
process removes them. If the guard is killed, too, the next `EmulatedHosts` removes them:
their names contain the number and the start time of the process that they belong to.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from fastplan.measure.processes import start_time
from fastplan.measure.settings import MeasureError

INTERFACE = "eth0"  # of every host
MOST_HOSTS = 64

_NAMESPACES = Path("/run/netns")  # of iproute2
_NAME = re.compile(r"(fastplan-(\d+)-(\d+)-\d+)-(?:switch|h\d+)")
_BRIDGE = "br0"
_RATE = re.compile(r"(\d+(?:\.\d*)?)\s*([kmg]?)(?:bit|bit/s|bps)", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_SLOWEST, _FASTEST = 10_000, 100_000_000_000
_SMALLEST_BURST = 128 << 10  # of two packets that TCP hands over at once
_BURST_SECONDS = 1e-3
# Long enough that nothing is ever dropped. A lost packet would cost TCP 200 ms.
_QUEUE = 256 << 20
_TIMEOUT = 20.0  # seconds of one command
_serial = itertools.count()


class HostsUnavailable(MeasureError):
    """This machine can't emulate hosts. The message says why."""


def parse_rate(text: str) -> int:
    """Parses the rate of a link.

    Args:
        text: A rate as `tc` has it, such as "500Mbit" or "1gbit".

    Returns:
        Bits per second.

    Raises:
        ValueError: It is not a rate, or out of range.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} must be a rate such as 500Mbit or 1Gbit")
    rate = float(found[1]) * _UNITS[found[2].lower()]
    if not _SLOWEST <= rate <= _FASTEST:
        raise ValueError(f"{text!r} must be from 10kbit to 100Gbit")
    return round(rate)


def format_rate(rate: int) -> str:
    """Returns a rate of bits per second as text, such as `500Mbit`."""
    for unit in ("g", "m", "k"):
        if rate >= _UNITS[unit]:
            return f"{rate / _UNITS[unit]:g}{unit.upper() if unit != 'k' else unit}bit"
    return f"{rate}bit"


@lru_cache(maxsize=1)
def why_unavailable() -> str | None:
    """Returns why hosts can't be emulated here; None if they can. It builds one to find out."""
    if sys.platform != "linux":
        return "emulated hosts need Linux"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"emulated hosts need the command `{tool}`; Debian's package iproute2 has it"
    if os.geteuid() != 0:
        return "emulated hosts need root"
    try:
        with EmulatedHosts(1, 1_000_000):
            return None
    except HostsUnavailable as error:
        return str(error)


class EmulatedHosts:
    """Hosts with links of one rate, for a `with` statement that removes them.

    Args:
        count: The number of hosts, up to 64.
        rate: Bits per second of each direction of each host's link.

    Raises:
        MeasureError: A value is out of range.
    """

    def __init__(self, count: int, rate: int) -> None:
        if not 1 <= count <= MOST_HOSTS:
            raise MeasureError(f"`count` must be from 1 to {MOST_HOSTS}, not {count}")
        if not _SLOWEST <= rate <= _FASTEST:
            raise MeasureError(f"`rate` must be from 10kbit to 100Gbit, not {rate} bit/s")
        self.count = count
        self.rate = rate
        pid = os.getpid()
        self._prefix = f"fastplan-{pid}-{start_time(pid)}-{next(_serial)}"
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The network namespaces of the hosts."""
        return tuple(f"{self._prefix}-h{i}" for i in range(self.count))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for ranks: gloo uses the host's interface."""
        return {"GLOO_SOCKET_IFNAME": INTERFACE, "TP_SOCKET_IFNAME": INTERFACE}

    def address(self, host: int) -> str:
        """Returns the IP address of a host, which only the other hosts reach."""
        return f"10.77.0.{1 + host}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Returns a command that runs another command in a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def __enter__(self) -> EmulatedHosts:
        """Builds the hosts, and removes those of processes that have ended.

        Raises:
            HostsUnavailable: A command failed. Nothing is left.
        """
        _check_tools()
        remove_abandoned()
        self._guard = _start_guard(self._prefix)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills the processes that still run in the hosts, and removes the hosts."""
        remove(self._prefix)
        if self._guard is not None:
            self._guard.communicate()  # it ends when its input does
            self._guard = None

    def cut(self, host: int) -> None:
        """Disconnects a host. Packets from and to it disappear, as with a cable that is cut."""
        _run("ip", "-n", self._switch, "link", "set", f"h{host}", "down")

    def restore(self, host: int) -> None:
        """Connects a host again."""
        _run("ip", "-n", self._switch, "link", "set", f"h{host}", "up")

    @property
    def _switch(self) -> str:
        return f"{self._prefix}-switch"

    def _build(self) -> None:
        switch = self._switch
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "-n", switch, "link", "set", _BRIDGE, "up")
        for host, name in enumerate(self.names):
            port = f"h{host}"
            _run("ip", "netns", "add", name)
            ends = ("type", "veth", "peer", "name", port, "netns", switch)
            _run("ip", "link", "add", INTERFACE, "netns", name, *ends)
            self._limit(name, INTERFACE)
            self._limit(switch, port)
            _run("ip", "-n", switch, "link", "set", port, "master", _BRIDGE, "up")
            # gloo takes the interface's first address, which must be the IPv4 one.
            _run("ip", "-n", name, "link", "set", INTERFACE, "addrgenmode", "none")
            _run("ip", "-n", name, "addr", "add", f"{self.address(host)}/16", "dev", INTERFACE)
            _run("ip", "-n", name, "link", "set", INTERFACE, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")

    def _limit(self, namespace: str, interface: str) -> None:
        """Limits what an interface sends."""
        burst = max(_SMALLEST_BURST, int(self.rate / 8 * _BURST_SECONDS))
        limit = ("rate", f"{self.rate}bit", "burst", str(burst), "limit", str(_QUEUE))
        _run("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *limit)


def remove_abandoned() -> None:
    """Removes the hosts of processes that have ended."""
    for prefix, pid, started in _found():
        if start_time(pid) != started:
            remove(prefix)


def remove(prefix: str) -> None:
    """Kills the processes in the hosts with this prefix, and removes the hosts."""
    for path in sorted(_NAMESPACES.glob(f"{prefix}-*")):
        # A namespace lives until its last process ends, whether it still has a name or not.
        found = _run("ip", "netns", "pids", path.name, must=False)
        for pid in map(int, found.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _run("ip", "netns", "del", path.name, must=False)


def _found() -> set[tuple[str, int, int]]:
    """Returns the prefix, process and start time of all hosts that exist."""
    names = [path.name for path in _NAMESPACES.glob("fastplan-*")]
    found = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
    return {(match[1], int(match[2]), int(match[3])) for match in found}


def _check_tools() -> None:
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise HostsUnavailable(
                f"emulated hosts need the command `{tool}`; Debian's package iproute2 has it"
            )


def _start_guard(prefix: str) -> subprocess.Popen[bytes]:
    """Starts a process that removes the hosts when this one ends and its pipe closes."""
    return subprocess.Popen(
        [sys.executable, "-c", _GUARD, str(Path(__file__).resolve().parents[2]), prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to this process's group must not end it
    )


_GUARD = """
import sys
sys.path.insert(0, sys.argv[1])
sys.stdin.buffer.read()
from fastplan.measure.hosts import remove
remove(sys.argv[2])
"""


def _run(*command: str, must: bool = True) -> str:
    """Runs a command of iproute2 and returns its output.

    Raises:
        HostsUnavailable: The command can't be run, or it failed and `must` is True.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostsUnavailable(f"`{' '.join(command)}` failed: {error}") from error
    if must and done.returncode != 0:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise HostsUnavailable(f"hosts can't be emulated here: `{' '.join(command)}`: {why}")
    return done.stdout
