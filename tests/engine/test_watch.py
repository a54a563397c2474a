"""Objects are compared with what was seen of them."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from fastplan.engine.watch import HASHED, ITEMS, OBJECT, OBJECTS, ObjectWatch

PART = (("sizes", ITEMS, ()), ("cost", OBJECT, ()))
WHOLE = (("settings", HASHED, ()), ("parts", OBJECTS, PART))


class Settings:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)


def part(n):
    return SimpleNamespace(sizes=[n, 2000 + n], cost=SimpleNamespace(time=float(n)), rank=None)


def whole():
    return SimpleNamespace(name="table", settings=Settings(5), parts=[part(0), part(1)])


def known(thing):
    watch = ObjectWatch([thing], WHOLE)
    watch.remember(0)
    assert watch.changed([0]) == []
    return watch


CHANGES = {
    "value": lambda it: setattr(it, "name", "other"),
    "new attribute": lambda it: setattr(it, "tag", 1),
    "lost attribute": lambda it: delattr(it, "name"),
    "settings": lambda it: setattr(it.settings, "value", 6),
    "no settings": lambda it: setattr(it, "settings", None),
    "value of a part": lambda it: setattr(it.parts[1], "rank", 3),
    "list item": lambda it: it.parts[0].sizes.__setitem__(1, 7),
    "longer list": lambda it: it.parts[1].sizes.append(0),
    "shorter list": lambda it: it.parts.pop(),
    "part of a part": lambda it: setattr(it.parts[0].cost, "time", 0.5),
    "other order": lambda it: it.parts.reverse(),
    "tuple": lambda it: setattr(it, "parts", tuple(it.parts)),
    "class": lambda it: setattr(it.parts[0].cost, "__class__", type("Other", (), {})),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change):
    thing = whole()
    if change is CHANGES["class"]:
        thing.parts[0].cost = type("One", (), {})()
    watch = known(thing)
    change(thing)
    assert watch.changed([0]) == [0]


def test_a_value_that_comes_back_is_known():
    thing = whole()
    watch = known(thing)
    thing.parts[0].rank = 5
    assert watch.changed([0, 0]) == [0, 1]
    thing.parts[0].rank = None
    assert watch.changed([0]) == []


def test_what_was_not_seen_before_counts_as_changed():
    watch = ObjectWatch([whole(), whole()], WHOLE)
    watch.remember(1)
    assert watch.changed([0, 1]) == [0]


@pytest.mark.parametrize("thing", [SimpleNamespace(parts=3), 5, SimpleNamespace(parts=[4])])
def test_what_is_not_of_its_kind_is_never_known(thing):
    watch = ObjectWatch([thing], WHOLE)
    watch.remember(0)
    assert watch.changed([0]) == [0]


def test_a_name_that_is_not_interned_is_never_known():
    thing = whole()
    thing.__dict__["".join(["par", "ts"]) + " "] = []
    watch = ObjectWatch([thing], WHOLE)
    watch.remember(0)
    assert watch.changed([0]) == [0]


def test_a_hash_that_fails_is_never_known():
    thing = whole()
    thing.settings = Settings([])
    watch = ObjectWatch([thing], WHOLE)
    watch.remember(0)
    assert watch.changed([0]) == [0]


def test_objects_that_were_seen_stay_alive_until_the_watch_ends():
    class Cost:
        pass

    thing = whole()
    thing.parts[0].cost = Cost()
    alive = weakref.ref(thing.parts[0].cost)
    watch = known(thing)
    thing.parts[0].cost = None
    gc.collect()
    assert alive() is not None
    del watch
    gc.collect()
    assert alive() is None


def test_numbers_and_fields_are_checked():
    watch = ObjectWatch([whole()], WHOLE)
    with pytest.raises(IndexError, match="no object has this number"):
        watch.changed([1])
    with pytest.raises(IndexError):
        watch.remember(1)
    with pytest.raises(TypeError, match="no meaning"):
        ObjectWatch([], [("name", 9, ())])


def test_objects_are_numbered_by_identity():
    things = [whole(), whole(), whole()]
    watch = ObjectWatch(things, WHOLE)
    assert watch.numbers([things[2], things[0]]) == [2, 0]
    assert watch.numbers(iter(things)) == [0, 1, 2]
    assert watch.numbers([things[0], whole()]) is None
