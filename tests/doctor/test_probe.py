"""Importing in another process, whatever that does to it."""

import signal
import sys

import pytest

from fastplan.doctor import probe
from fastplan.doctor.probe import try_imports


@pytest.fixture
def seen(site, monkeypatch):
    monkeypatch.syspath_prepend(site.path)
    return site


def test_modules_are_imported_in_order(seen):
    seen.package("one", "1.0").package("two", "2.0", "import one")
    outcomes = try_imports("one", "two")
    assert [(name, o.worked, o.version) for name, o in outcomes.items()] == [
        ("one", True, "1.0"),
        ("two", True, "2.0"),
    ]


def test_nothing_is_imported_after_a_failure(seen):
    seen.package("one", "1.0", "raise ValueError('bad luck')").package("two", "2.0")
    outcomes = try_imports("one", "two")
    assert list(outcomes) == ["one"]
    assert outcomes["one"].errors == ("ValueError: bad luck",)


def test_a_missing_module_is_named():
    outcome = try_imports("no_such_module")["no_such_module"]
    assert not outcome.worked
    assert outcome.missing == "no_such_module"


def test_the_cause_of_an_error_is_told(seen):
    seen.package(
        "one",
        "1.0",
        "try:\n    raise OSError('one.so: undefined symbol: x')\n"
        "except OSError as error:\n    raise RuntimeError('could not load') from error",
    )
    outcome = try_imports("one")["one"]
    assert outcome.errors == (
        "RuntimeError: could not load",
        "OSError: one.so: undefined symbol: x",
    )
    assert outcome.cause == "OSError: one.so: undefined symbol: x"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import sys; sys.exit('bye')"])
def test_a_module_that_wants_to_exit_has_failed(seen, code):
    seen.package("one", "1.0", code)
    assert not try_imports("one")["one"].worked


def test_a_module_that_ends_the_process_has_failed(seen):
    seen.package("one", "1.0").package("two", "1.0", "import os; os._exit(3)")
    outcomes = try_imports("one", "two")
    assert outcomes["one"].worked
    assert outcomes["two"].cause == "Python ended with exit code 3"


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGILL", "SIGABRT"])
def test_a_module_that_crashes_the_process_is_told_with_the_signal(seen, name):
    number = int(getattr(signal, name))
    seen.package(
        "one",
        "1.0",
        "import os, sys, resource\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        f"print('last words', file=sys.stderr, flush=True)\nos.kill(os.getpid(), {number})",
    )
    cause = try_imports("one")["one"].cause
    assert cause == f"importing crashes Python ({name}): last words"


def test_what_modules_print_does_not_matter(seen):
    code = "import sys; print('fastplan', end=''); sys.stdout.buffer.write(b'\\xff{}')"
    seen.package("one", "1.0", code)
    assert try_imports("one")["one"].worked


def test_a_module_that_hangs_is_given_up(seen, monkeypatch):
    monkeypatch.setattr(probe, "_TIMEOUT", 1.0)
    seen.package("one", "1.0").package("two", "1.0", "import threading; threading.Event().wait()")
    outcomes = try_imports("one", "two")
    assert outcomes["two"].cause == "importing takes over 1 s"


def test_a_python_that_cannot_be_started_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert "Python can't be started" in try_imports("json")["json"].cause


def test_fastplan_is_imported_without_its_patch(seen, monkeypatch):
    monkeypatch.setenv("FASTPLAN_PATCH", "1")
    seen.torch(code="raise RuntimeError('torch was imported')")
    assert try_imports("fastplan.model.request")["fastplan.model.request"].worked


def test_gpus_that_torch_can_use_are_listed(seen):
    seen.package(
        "torch",
        "2.13.0",
        "class cuda:\n"
        "    is_available = staticmethod(lambda: True)\n"
        "    device_count = staticmethod(lambda: 2)\n"
        "    get_device_name = staticmethod(lambda i: f'H100 {i}')\n",
    )
    assert try_imports("torch")["torch"].gpus == ("H100 0", "H100 1")
