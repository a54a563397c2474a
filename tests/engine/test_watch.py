"""Objects are compared with what was seen of them."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from fastplan.engine.watch import ASSIGNED, HASHED, ITEMS, OBJECT, OBJECTS, ObjectWatch

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
    watch.remember([0])
    assert watch.changed([0]) == []
    return watch


CHANGES = {
    "value": lambda it: setattr(it, "name", "other"),
    "new attribute": lambda it: setattr(it, "tag", 1),
    "lost attribute": lambda it: delattr(it, "name"),
    "settings": lambda it: setattr(it.settings, "value", 6),
    "no settings": lambda it: setattr(it, "settings", None),
    "value of a part": lambda it: setattr(it.parts[1], "rank", 3),
    "new attribute of a part": lambda it: setattr(it.parts[0], "tag", 1),
    "other list of a part": lambda it: setattr(it.parts[1], "sizes", [1, 2001]),
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
    watch.remember([1])
    assert watch.changed([0, 1]) == [0]


@pytest.mark.parametrize("thing", [SimpleNamespace(parts=3), 5, SimpleNamespace(parts=[4])])
def test_what_is_not_of_its_kind_is_never_known(thing):
    watch = ObjectWatch([thing], WHOLE)
    watch.remember([0])
    assert watch.changed([0]) == [0]


def test_a_name_that_is_not_interned_is_never_known():
    thing = whole()
    thing.__dict__["".join(["par", "ts"]) + " "] = []
    watch = ObjectWatch([thing], WHOLE)
    watch.remember([0])
    assert watch.changed([0]) == [0]


def test_a_hash_that_fails_is_never_known():
    thing = whole()
    thing.settings = Settings([])
    watch = ObjectWatch([thing], WHOLE)
    watch.remember([0])
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
        watch.remember([1])
    with pytest.raises(TypeError, match="no meaning"):
        ObjectWatch([], [("name", 9, ())])


def test_objects_are_numbered_by_identity():
    things = [whole(), whole(), whole()]
    watch = ObjectWatch(things, WHOLE)
    assert watch.numbers([things[2], things[0]]) == [2, 0]
    assert watch.numbers(iter(things)) == [0, 1, 2]
    assert watch.numbers([things[0], whole()]) is None


ASSIGNABLE = (("settings", HASHED, ()), ("parts", OBJECTS, (*PART, ("rank", ASSIGNED, ()))))


def ranks_of(thing):
    return [each.rank for each in thing.parts]


def assignable():
    things = [whole(), whole()]
    watch = ObjectWatch(things, ASSIGNABLE)
    watch.remember([0, 1])
    return things, watch


def test_values_are_assigned_in_order_or_by_position():
    (first, second), watch = assignable()
    watch.assign([second, first], [300, 7], [False, True])
    assert (ranks_of(second), ranks_of(first)) == ([300, 7], [0, 1])
    assert watch.changed([0, 1]) == [0, 1]
    watch.assign([first, second], None, [])
    assert ranks_of(first) == ranks_of(second) == [None, None]
    assert watch.changed([0, 1]) == []


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_change_is_seen_whenever_values_are_assigned(change, moment):
    thing = whole()
    if change is CHANGES["class"]:
        thing.parts[0].cost = type("One", (), {})()
    watch = ObjectWatch([thing], ASSIGNABLE)
    watch.remember([0])
    steps = {
        "before": lambda: None,
        "assign": lambda: watch.assign([thing], [4, 5], [False]),
        "between": lambda: None,
        "reset": lambda: watch.assign([thing], None, []),
        "after": lambda: None,
    }
    for name, step in steps.items():
        step()
        if name == moment:
            change(thing)
    # The value that assign() sets itself is as it was, whatever it was in between.
    is_reset = change is CHANGES["value of a part"] and moment != "after"
    assert watch.changed([0]) == ([] if is_reset else [0])


def test_a_value_that_was_there_before_is_a_change_when_it_is_reset():
    thing = whole()
    thing.parts[0].rank = 2
    watch = ObjectWatch([thing], ASSIGNABLE)
    watch.remember([0])
    watch.assign([thing], None, [])
    assert watch.changed([0]) == [0]
    watch.assign([thing], [2, None], [False])
    assert watch.changed([0]) == []


def test_parts_that_are_shared_are_compared_again():
    things = [whole(), whole()]
    things[1].parts[0] = things[0].parts[0]
    watch = ObjectWatch(things, ASSIGNABLE)
    watch.remember([0, 1])
    watch.assign(things, [1, 2, 3, 4], [False, False])
    assert [ranks_of(thing) for thing in things] == [[3, 2], [3, 4]]
    assert watch.changed([0, 1]) == [0, 1]
    watch.assign(things[:1], None, [])
    assert watch.changed([0, 1]) == [1]
    watch.assign(things, None, [])
    assert watch.changed([0, 1]) == []


def test_other_objects_get_values_as_python_sets_them():
    seen = []

    class Part:
        rank = property(lambda self: 0, lambda self, value: seen.append(value))

    things, watch = assignable()
    things[0].parts = (Part(), Part())
    stranger = SimpleNamespace(parts=[part(0)])
    watch.assign([things[0], stranger], [5, 6, 7], [False, False])
    assert seen == [5, 6]
    assert ranks_of(stranger) == [7]


def test_a_setter_sees_every_value_also_of_a_known_part():
    class Part:
        def __init__(self):
            self.seen = ()

        rank = property(lambda self: 0, lambda self, value: setattr(self, "seen", value))

    thing = SimpleNamespace(settings=None, parts=[Part()])
    watch = ObjectWatch([thing], ASSIGNABLE)
    watch.remember([0])
    watch.assign([thing], [5], [False])
    assert thing.parts[0].seen == 5
    assert watch.changed([0]) == [0]


def test_values_must_fit_the_objects():
    things, watch = assignable()
    with pytest.raises(IndexError, match="too short"):
        watch.assign(things[:1], [1], [False])
    with pytest.raises(TypeError, match="as long as"):
        watch.assign(things, [1, 2], [False])
    with pytest.raises(AttributeError):
        watch.assign([5], None, [])
    with pytest.raises(TypeError, match="nothing to assign"):
        ObjectWatch(things, WHOLE).assign(things, None, [])


def test_a_list_that_grows_while_it_is_assigned_is_an_error():
    things = []

    class Part:
        def __setattr__(self, name, value):
            things.append(SimpleNamespace(parts=[SimpleNamespace()]))

    things.append(SimpleNamespace(parts=[Part()]))
    watch = ObjectWatch(things, ASSIGNABLE)
    with pytest.raises(IndexError):
        watch.assign(things, [*range(9)], [True])


def test_what_was_remembered_ends_after_the_new_memory_is_complete():
    seen = []

    class Ending:
        def __del__(self):
            seen.append(watch.changed([0]))

    thing = SimpleNamespace(settings=None, parts=[])
    thing.parts += [SimpleNamespace(name=Ending(), n=n) for n in range(20)]
    watch = ObjectWatch([thing], WHOLE)
    watch.remember([0])
    thing.parts[:] = [SimpleNamespace(name=n) for n in range(20)]
    watch.remember([0])
    assert seen == [[]] * 20
