"""Mutants of explanations and of the page's what-if."""

from __future__ import annotations

from tests.mutant import Mutant

_EXPLAIN = "tests/report/test_explain.py"
_PAGE = "tests/report/test_what_if_browser.py"

EXPLAIN = (
    Mutant(
        name="explain-one-block-for-each-rank",
        file="fastplan/report/places.py",
        old="most = 1 if apart else count",
        new="most = 1",
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="explain-blocks-need-no-memory",
        file="fastplan/report/places.py",
        old="times[None, :, None, None] * block.memory",
        new="block.memory",
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="explain-host-of-a-tower",
        file="fastplan/report/places.py",
        old="hosts = hosts[cluster.host : cluster.host + 1]",
        new="pass",
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="explain-any-memory-wins",
        file="fastplan/report/outcomes.py",
        old='place = self._place(option, Limits("lack", cost=most, lack=math.inf))',
        new='place = self._place(option, Limits("cost", cost=most, lack=math.inf))',
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="explain-cut-too-small",
        file="fastplan/report/outcomes.py",
        old="return 1 - low",
        new="return 1 - low - 0.01",
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="explain-lends-all-options",
        file="fastplan/report/options.py",
        old=" and not any(w in pair.kernel for w in _OWN_COSTS)",
        new="",
        tests=(_EXPLAIN,),
    ),
    Mutant(
        name="what-if-leaves-out-the-rest",
        file="fastplan/report/what_if.py",
        old="if position not in shown:",
        new="if position in shown:",
        tests=(_PAGE,),
    ),
    Mutant(
        name="what-if-in-another-order",
        file="fastplan/report/what_if.py",
        old="order = sorted(tables, key=lambda row: positions[row])",
        new="order = sorted(tables, key=lambda row: -positions[row])",
        tests=(_PAGE,),
    ),
    Mutant(
        name="what-if-uniform-on-one-rank",
        file="fastplan/report/assets/what_if.js",
        old="const rank = ranks === null ? shard : ranks[shard];",
        new="const rank = ranks === null ? 0 : ranks[shard];",
        tests=(_PAGE,),
    ),
)
