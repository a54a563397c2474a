"""Emulated hosts: links with a rate that can be cut, and nothing left whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastplan.measure import hosts as module
from fastplan.measure.hosts import (
    EmulatedHosts,
    HostsUnavailable,
    format_rate,
    parse_rate,
    remove_abandoned,
    why_unavailable,
)
from fastplan.measure.launch import run_group
from fastplan.measure.processes import status
from fastplan.measure.settings import LaunchSettings, MeasureError, WorkerConfig
from tests.measure.emulated import needs_hosts

NAMESPACES = Path("/run/netns")
ROOT = str(Path(__file__).resolve().parents[2])
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("ready", flush=True)
    while True:
        server.accept()[0].close()
"""
CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2])).close()
"""
OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
import subprocess
from fastplan.measure.hosts import EmulatedHosts
hosts = EmulatedHosts(1, 1_000_000).__enter__()
quiet = subprocess.DEVNULL
child = subprocess.Popen(hosts.command(0, ["sleep", "600"]), stdout=quiet, start_new_session=True)
print(hosts.names[0], child.pid, hosts._guard.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("text", "rate"), [("500Mbit", 5e8), ("1gbit", 1e9), ("1.5 Gbit/s", 1.5e9), ("10kbit", 1e4)]
)
def test_a_rate_is_read_as_tc_writes_it(text, rate):
    assert parse_rate(text) == rate
    assert parse_rate(format_rate(parse_rate(text))) == rate


@pytest.mark.parametrize("text", ["", "fast", "500", "500MB/s", "1kbit", "900Gbit", "-1Mbit"])
def test_other_rates_are_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"500Mbit|100Gbit"):
        parse_rate(text)


@pytest.mark.parametrize(("count", "rate"), [(0, 10**6), (65, 10**6), (2, 1)])
def test_hosts_out_of_range_are_refused(count, rate):
    with pytest.raises(MeasureError, match=r"`count`|`rate`"):
        EmulatedHosts(count, rate)


def test_a_machine_without_iproute2_says_which_package_has_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    why_unavailable.cache_clear()
    assert "iproute2" in (why_unavailable() or "")
    with pytest.raises(HostsUnavailable, match="iproute2"):
        EmulatedHosts(1, 10**6).__enter__()
    why_unavailable.cache_clear()


def test_without_root_the_reason_is_root(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda tool: tool)
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    why_unavailable.cache_clear()
    assert why_unavailable() == "emulated hosts need root"
    why_unavailable.cache_clear()


def connects(hosts, seconds=5.0):
    """Whether host 0 reaches a server of host 1."""
    command = [sys.executable, "-c", CONNECT, hosts.address(1), str(seconds)]
    return subprocess.run(hosts.command(0, command), stderr=subprocess.DEVNULL).returncode == 0


@needs_hosts
def test_hosts_reach_each_other_until_a_link_is_cut():
    with EmulatedHosts(2, parse_rate("100Mbit")) as hosts:
        command = [sys.executable, "-c", LISTEN, hosts.address(1)]
        server = subprocess.Popen(hosts.command(1, command), stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert connects(hosts)
        hosts.cut(1)
        assert not connects(hosts, 0.3)
        hosts.restore(1)
        assert connects(hosts, 20.0)
    assert server.wait() == -signal.SIGKILL  # what still runs in a host ends with it
    server.stdout.close()


@needs_hosts
def test_both_directions_of_every_link_have_the_rate():
    with EmulatedHosts(2, parse_rate("250Mbit")) as hosts:
        names = [*hosts.names, hosts.names[0].rpartition("-")[0] + "-switch"]
        shown = [
            subprocess.run(
                ["tc", "-n", name, "qdisc", "show"], capture_output=True, text=True, check=True
            ).stdout
            for name in names
        ]
    assert [text.count("tbf") for text in shown] == [1, 1, 2]
    assert [text.count("rate 250Mbit") for text in shown] == [1, 1, 2]


@needs_hosts
def test_hosts_are_removed_after_an_error():
    with pytest.raises(RuntimeError), EmulatedHosts(2, 10**6) as hosts:
        assert all((NAMESPACES / name).exists() for name in hosts.names)
        raise RuntimeError
    assert not any((NAMESPACES / name).exists() for name in hosts.names)


def owner():
    """A process with a host, the host's name, a process in it, and the guard."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, ROOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    name, *pids = process.stdout.readline().decode().split()
    assert (NAMESPACES / name).exists()
    return process, name, *map(int, pids)


def end(process, *more):
    for pid in (*more, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def is_gone(name, pid):
    return not (NAMESPACES / name).exists() and status(pid) in ("", "zombie")


@needs_hosts
def test_the_guard_removes_the_hosts_of_a_killed_process():
    process, name, child, _ = owner()
    end(process)
    deadline = time.monotonic() + 60
    while not is_gone(name, child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_hosts
def test_hosts_without_owner_and_guard_are_removed_by_the_next_use():
    process, name, child, guard = owner()
    end(process, guard)
    assert (NAMESPACES / name).exists()
    remove_abandoned()
    assert is_gone(name, child)


@needs_hosts
def test_hosts_of_a_living_process_stay():
    process, name, _, _ = owner()
    remove_abandoned()
    assert (NAMESPACES / name).exists()
    end(process)


def launched(folder, do):
    WorkerConfig(task="test", device="cpu", timeout=60, settings={"do": do}).write(folder)
    group = LaunchSettings(
        device="cpu", ranks_per_host=1, hosts=2, timeout=60, link=parse_rate("100Mbit")
    )
    return run_group(folder, group, worker="tests.measure.light_worker")


@needs_hosts
def test_ranks_on_emulated_hosts_end_well(tmp_path):
    assert launched(tmp_path, "end") is None
    assert {file.name for file in tmp_path.glob("pid-*")} == {"pid-0", "pid-1"}
    assert not list(NAMESPACES.glob(f"fastplan-{os.getpid()}-*"))


@needs_hosts
def test_a_rank_that_dies_on_another_host_is_named(tmp_path):
    failure = launched(tmp_path, "kill")
    assert failure is not None
    assert failure.ranks == (1,)
    assert "SIGKILL" in failure.reason


def test_emulated_hosts_have_no_gpus():
    with pytest.raises(MeasureError, match="no GPUs"):
        LaunchSettings(device="cuda", ranks_per_host=1, hosts=2, link=10**6)


def test_emulated_hosts_share_the_machine():
    group = LaunchSettings(device="cpu", ranks_per_host=2, hosts=3, link=10**6)
    assert (group.on_this_machine, group.ranks_per_machine) == (True, 6)
    real = LaunchSettings(device="cpu", ranks_per_host=2, hosts=3)
    assert (real.on_this_machine, real.ranks_per_machine) == (False, 2)
