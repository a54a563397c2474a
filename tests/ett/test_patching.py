"""Functions are replaced when their module is imported, and restored."""

import importlib
import importlib.util
import sys
import types

import pytest

from fastplan.ett.hooks import ImportWatch, Patches


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Modules `outer_module`, which imports `inner_module`, and `user_module` of both."""
    (tmp_path / "inner_module.py").write_text("def answer():\n    return 41\n")
    (tmp_path / "outer_module.py").write_text("from inner_module import answer\n")
    (tmp_path / "failing_module.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("inner_module", "outer_module", "failing_module"):
        sys.modules.pop(name, None)


@pytest.fixture
def watching():
    started = []

    def start(hooks, tell=lambda begin, end: None):
        watch = ImportWatch(hooks, tell)
        watch.start()
        started.append(watch)
        return watch

    yield start
    for watch in started:
        watch.stop()


def plus_one(function):
    return lambda: function() + 1


def test_a_method_is_replaced_and_restored():
    class Thing:
        def answer(self):
            return 41

    before = Thing.__dict__["answer"]
    patches = Patches()
    patches.attribute(Thing, "answer", lambda function: lambda self: function(self) + 1)
    assert Thing().answer() == 42
    patches.undo()
    assert Thing.__dict__["answer"] is before


def test_a_method_that_a_class_only_inherits_is_left_alone():
    class Base:
        def answer(self):
            return 41

    class Thing(Base):
        pass

    Patches().attribute(Thing, "answer", plus_one)
    Patches().attribute(Thing, "no_such_thing", plus_one)
    assert "answer" not in vars(Thing)


def test_a_function_is_replaced_wherever_it_was_imported_to(package):
    inner, outer = map(importlib.import_module, ("inner_module", "outer_module"))
    before = inner.answer
    patches = Patches()
    patches.function(inner, "answer", plus_one)
    assert (inner.answer(), outer.answer()) == (42, 42)
    later = types.ModuleType("later_module")
    later.answer = inner.answer
    sys.modules["later_module"] = later
    patches.undo()
    del sys.modules["later_module"]
    assert inner.answer is outer.answer is later.answer is before


def test_replacements_by_other_code_stay(package):
    inner = importlib.import_module("inner_module")
    patches = Patches()
    patches.function(inner, "answer", plus_one)
    theirs = inner.answer = lambda: 7
    patches.undo()
    assert inner.answer is theirs


def test_a_module_is_hooked_when_it_is_imported(package, watching):
    seen = []
    watching({"inner_module": seen.append})
    assert seen == []
    outer = importlib.import_module("outer_module")
    assert seen == [sys.modules["inner_module"]]
    assert outer.answer() == 41


def test_a_hook_may_replace_a_function_before_anybody_imports_it(package, watching):
    patches = Patches()
    watching({"inner_module": lambda module: patches.function(module, "answer", plus_one)})
    assert importlib.import_module("outer_module").answer() == 42


def test_a_module_that_is_there_already_is_hooked_at_once(package, watching):
    importlib.import_module("inner_module")
    seen = []
    watching({"inner_module": seen.append})
    assert seen == [sys.modules["inner_module"]]


def test_only_imports_that_no_import_made_are_timed(package, watching):
    recorded = []
    watching({"inner_module": lambda module: None}, lambda begin, end: recorded.append(end - begin))
    importlib.import_module("outer_module")
    assert len(recorded) == 1
    assert recorded[0] > 0


def test_an_import_that_fails_fails_as_ever(package, watching):
    recorded = []
    watching({"failing_module": recorded.append}, lambda begin, end: recorded.append("timed"))
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module("failing_module")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module")
    assert recorded == ["timed"]
    assert importlib.import_module("inner_module").answer() == 41


def test_a_hook_that_fails_does_not_fail_the_import(package, watching, caplog):
    def hook(module):
        raise AttributeError("moved in this release")

    watching({"inner_module": hook})
    assert importlib.import_module("outer_module").answer() == 41
    assert "inner_module is not recorded" in caplog.text


def test_modules_look_the_same_as_without_the_watch(package, watching):
    watching({"inner_module": lambda module: None})
    inner = importlib.import_module("inner_module")
    assert "exec_module" not in vars(inner.__spec__.loader)
    assert inner.__spec__.loader.get_source("inner_module").startswith("def answer")
    assert importlib.reload(inner) is inner


def test_a_watch_that_has_stopped_sees_nothing(package, watching):
    seen = []
    watch = watching({"inner_module": seen.append})
    watch.stop()
    importlib.import_module("inner_module")
    assert seen == []
    assert watch not in sys.meta_path


def test_a_module_whose_import_was_under_way_is_not_hooked_after_the_end(tmp_path, watching):
    seen = []
    watch = watching({"inner_module": seen.append})
    (tmp_path / "inner_module.py").write_text("")
    spec = importlib.util.spec_from_file_location("inner_module", tmp_path / "inner_module.py")
    watch._wrap_loader("inner_module", spec.loader)
    watch.stop()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert seen == []
