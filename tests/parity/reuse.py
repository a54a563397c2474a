"""Planners that plan several times while everything around them changes.

`python -m tests.parity.reuse --seeds 0-99` draws such sequences at scale, prints the first
difference of each, and ends with how many plans were compared. With `--mixed`, planners also have
custom parts, are copied and pickled, and other code replaces functions of TorchRec.
"""

import argparse
import copy
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator.types import PerfCoefficientConfig
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GridSearchProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.stats import EmbeddingStats

from . import components as parts
from .changes import CHANGES, OnDemand, Side, config_of, estimator, make_config
from .compare import first_difference, options_record, plain, quiet, run
from .custom import RecordingStats, TaggingEnumerator
from .draw import Draw
from .instances import FAMILIES, Built, Instance
from .mixture import MORE_CHANGES, put_parts, replaced_function
from .subject import SELF_CHECK, TORCHREC_VERSION, FastPlanner, TorchRecPlanner

# Proposers of large problems, and families whose plans take TorchRec seconds even when small.
LEFT_OUT = {"many_tables", "many_ranks", "quant"}
MOST_SECONDS = 60  # of a sequence
NUMPYS = re.compile(r"np\.float64\(([^)]*)\)")
SECONDS = re.compile(r"ran for \d+\.\d+s")


@dataclass(frozen=True)
class Sequence:
    """Several plans of two planners: a seed decides everything."""

    seed: int
    is_mixed: bool = False

    @property
    def family(self) -> str:
        names = [name for name in FAMILIES if name not in LEFT_OUT]
        return names[self.seed % len(names)]

    def __str__(self) -> str:
        return f"{self.family}-{self.seed}{'-mixed' if self.is_mixed else ''}"

    def draw(self, about: str) -> Draw:
        return Draw(f"fastplan reuse {self.seed} {about}")

    def build(self) -> Built:
        return Instance(self.seed, self.family, is_small=True).build()

    def side(self, planner_class: type) -> Side:
        """Fresh objects, equal for both planners."""
        draw = self.draw("parts")
        built = self.build()
        kwargs = built.planner_kwargs
        constraints = kwargs["constraints"] or {}
        if draw.chance(0.2):
            for rule in constraints.values():
                rule.pooling_factors = [np.float64(factor) for factor in rule.pooling_factors]
        if constraints and draw.chance(0.2):
            kwargs["constraints"] = OnDemand(constraints)
            kwargs.pop("enumerator", None)
        if draw.chance(0.6):
            kwargs["enumerator"] = make_enumerator(draw, kwargs)
        if draw.chance(0.15):
            made = [EmbeddingOffloadScaleupProposer(), *parts.make_proposers(draw, "static")]
            kwargs["proposer"] = draw.sample(made, len(made))
        kwargs.pop("stats", None)
        if draw.chance(0.6):
            kwargs["stats"] = []
        other = {**kwargs, "enumerator": None, "topology": copy.deepcopy(kwargs["topology"])}
        planners = [planner_class(**kwargs), planner_class(**other)]
        for proposer in (proposer for planner in planners for proposer in planner._proposers):
            if type(proposer) is GridSearchProposer:
                proposer._max_proposals = min(proposer._max_proposals, 40)
        side = Side(
            planners=planners,
            module=built.module,
            sharders=built.sharders,
            rebuild=lambda: self.build().module,
            constraints=constraints,
        )
        if self.is_mixed:
            put_parts(side, self.draw("custom parts"))
        return side

    def difference(self, counts: Counter[str]) -> str | None:
        """The first difference, after which the two sides have parted for good."""
        theirs, ours = self.side(TorchRecPlanner), self.side(FastPlanner)
        with stock_configurations_restored([theirs, ours]):
            return self._difference(theirs, ours, counts)

    def _difference(self, theirs: Side, ours: Side, counts: Counter[str]) -> str | None:
        draw = self.draw("steps")
        all_changes = [*CHANGES, *MORE_CHANGES] if self.is_mixed else CHANGES
        made: list[str] = []
        for step in range(draw.randint(2, 5)):
            changes = [draw.pick(all_changes) for _ in range(draw.randint(1, 3))] if step else []
            for i, change in enumerate(changes):
                for side in (theirs, ours):
                    change(side, self.draw(f"{step} {i}"))
                made.append(change.__name__)
            is_read = draw.chance(0.6)
            replaces = self.draw(f"{step} function")
            with replaced_function(replaces, 0.2 if self.is_mixed else 0.0) as function:
                expected, actual = planned(theirs, is_read), planned(ours, is_read)
            made.append(f"plan with another {function}" if function else "plan")
            counts["plans"] += 1
            counts["engine " + engine(ours.planner)] += 1
            if expected["error"]:
                counts["errors"] += 1
            difference = first_difference(expected, actual)
            if difference is not None:
                return f"{self}: {', '.join(made)}: {difference}"
        return None


@contextmanager
def stock_configurations_restored(sides: list[Side]) -> Iterator[None]:
    """TorchRec's own configurations are classes that all planners of a process share."""
    configs = [config_of(planner) for side in sides for planner in side.planners]
    classes = {cls for config in configs if config for cls in type(config).__mro__[:-1]}
    kept = copy.deepcopy({cls: _data(cls) for cls in classes})
    try:
        yield
    finally:
        for cls, values in kept.items():
            for name in _data(cls).keys() - values.keys():
                delattr(cls, name)
            for name, value in values.items():
                setattr(cls, name, value)


def _data(cls: type) -> dict[str, Any]:
    kinds = int | float | dict | PerfCoefficientConfig | None
    return {
        name: value
        for name, value in vars(cls).items()
        if isinstance(value, kinds) and not name.startswith("__")
    }


def make_enumerator(draw: Draw, kwargs: dict[str, Any]) -> Any:
    """An enumerator whose configuration may change, or one that is not TorchRec's own."""
    topology, constraints = kwargs["topology"], kwargs["constraints"]
    kind = draw.pick([*5 * [EmbeddingEnumerator], TaggingEnumerator])
    estimators = [
        estimator(make_config(draw), topology, constraints),
        EmbeddingStorageEstimator(topology, constraints),
    ]
    return kind(topology, kwargs["batch_size"] or 512, constraints, estimator=estimators)


def planned(side: Side, is_read: bool) -> dict[str, Any]:
    """A plan, and what is visible of it; what is not read now may be read after the next."""
    planner = side.planner
    renew_scaleup(planner)
    if not is_read:
        try:
            planner.plan(side.module, side.sharders)
        except Exception as error:
            return {"error": type(error).__name__}
        return {"error": None}
    record = {**run(planner, side.module, side.sharders), **left_behind(planner)}
    if record["error"]:
        # docs/compatibility.md: options that other code estimates again have Python's floats.
        record["error"]["text"] = NUMPYS.sub(r"\1", record["error"]["text"])
    return record


def renew_scaleup(planner: Any) -> None:
    """TorchRec's scale-up proposer never ends when it is used for a second search."""
    planner._proposers = [
        EmbeddingOffloadScaleupProposer(use_depth=proposer.use_depth)
        if type(proposer) is EmbeddingOffloadScaleupProposer and proposer.search is not None
        else proposer
        for proposer in planner._proposers
    ]


def engine(planner: Any) -> str:
    return "torchrec" if SELF_CHECK else planner.last_run.engine


def left_behind(planner: Any) -> dict[str, Any]:
    tables = [stats for stats in planner._stats if type(stats) is EmbeddingStats]
    told = [stats.told for stats in planner._stats if type(stats) is RecordingStats]
    return {
        "shown": options_record(getattr(planner, "_search_space", None)),
        "statistics": [[SECONDS.sub("", line) for line in s._stats_table] for s in tables],
        "width": [stats._width for stats in tables],
        "told": {
            f"stats {i}": {f"call {j}": c for j, c in enumerate(t)} for i, t in enumerate(told)
        },
        "proposers": [proposer_state(proposer) for proposer in planner._proposers],
    }


def proposer_state(proposer: Any) -> dict[str, Any]:
    """What a proposer takes along to the next plan."""
    names = ("_best_perf_rating", "_num_inferior_perf", "_inited", "best_perf_rating", "heard")
    return {name: plain(getattr(proposer, name)) for name in names if hasattr(proposer, name)}


class TooLong(BaseException):
    """TorchRec's scale-up proposer never ends if no memory is free."""


def _raise_too_long(*_: Any) -> None:
    raise TooLong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", required=True, help="first and last, as 0-99")
    parser.add_argument("--mixed", action="store_true", help="with custom parts of all kinds")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    signal.signal(signal.SIGALRM, _raise_too_long)
    for seed in range(first, last + 1):
        signal.alarm(MOST_SECONDS)
        difference = None
        try:
            with quiet():
                difference = Sequence(seed, arguments.mixed).difference(counts)
        except TooLong:
            counts["too long"] += 1
            print(f"{Sequence(seed, arguments.mixed)}: over {MOST_SECONDS} seconds", flush=True)
        finally:
            signal.alarm(0)
        counts["sequences"] += 1
        if difference is not None:
            counts["differences"] += 1
            print(difference, flush=True)
    version = ".".join(map(str, TORCHREC_VERSION))
    took = time.perf_counter() - start
    print(f"TorchRec {version}, seeds {first}-{last}, {took:.0f} s: {dict(counts)}", flush=True)
    return 1 if counts["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
