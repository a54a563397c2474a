"""Proves that no plan both reaches a rating and moves few bytes."""

from collections.abc import Mapping
from dataclasses import replace

from bench.replan_models import Asked
from fastplan.engine.certificate import NoBound, lower_bound
from fastplan.engine.problem import Problem
from fastplan.engine.replan import Held, ReplanSettings, best_ratings
from fastplan.engine.solve import estimate, solve

_DEPTH = 6
_NO_MOVES = ReplanSettings(move_budget=0)

Menus = Mapping[int, tuple[int, ...]]  # by table: the items of its menu that are left


def impossible(asked: Asked, held: Held, *, rating: float, moved: int) -> bool:
    """Whether it is proven that every plan rated at most `rating` moves more than `moved` bytes.

    The largest tables either keep what is held or do not: each way to choose among them moves too
    much at the least, or has a lower bound above the rating.
    """
    tables = asked.request.tables
    leasts = _leasts(asked, held)
    least = sum(map(min, leasts))
    largest = sorted(range(len(tables)), key=lambda number: -tables[number].bytes)[:_DEPTH]

    def closed(menus: Menus, more: int, tables_left: list[int]) -> bool:
        if least + more > moved:
            return True
        problem = _restricted(asked, menus)
        bound = lower_bound(problem, upper=solve(problem, asked.search).rating)
        if isinstance(bound, NoBound) or bound.value > rating:
            return True
        if not tables_left:
            return False
        table, *others = tables_left
        extra = [bytes_moved - min(leasts[table]) for bytes_moved in leasts[table]]
        stay = tuple(item for item, bytes_moved in enumerate(extra) if bytes_moved == 0)
        go = tuple(item for item, bytes_moved in enumerate(extra) if bytes_moved > 0)
        return closed({**menus, table: stay}, more, others) and (
            not go or closed({**menus, table: go}, more + min(extra[item] for item in go), others)
        )

    return closed({}, 0, largest)


def _leasts(asked: Asked, held: Held) -> list[list[int]]:
    """By table and item of its menu: the fewest bytes that it moves, wherever it goes.

    Items that can't be placed move nothing, and all of a table may be off by the same amount that
    makes their sum right.
    """
    tables, menus = asked.request.tables, asked.request.menus
    alone: Menus = dict.fromkeys(range(len(tables)), (0,))
    first = _least(_restricted(asked, alone), held)
    leasts = [
        [
            _least(_restricted(asked, {**alone, number: (item,)}), held) - first
            for item in range(len(menus[table.menu]))
        ]
        for number, table in enumerate(tables)
    ]
    leasts[0] = [first + each for each in leasts[0]]
    return leasts


def _restricted(asked: Asked, left: Menus) -> Problem:
    menus, tables = list(asked.request.menus), list(asked.request.tables)
    for table, items in left.items():
        menu = asked.request.menus[tables[table].menu]
        tables[table] = tables[table]._replace(menu=len(menus))
        menus.append(tuple(menu[item] for item in items))
    request = replace(asked.request, tables=tuple(tables), menus=tuple(menus))
    return Problem(estimate(request), asked.cluster)


def _least(problem: Problem, held: Held) -> int:
    return best_ratings(problem, held, budgets=[], settings=_NO_MOVES).least
