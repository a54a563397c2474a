"""The decorators, and what they make of a function."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from fastplan.costs import compiling, identity, loops
from fastplan.costs.compiling import Compiled
from fastplan.costs.errors import CostError, NoFingerprint
from fastplan.costs.identity import Frozen
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES

_PASSING = 8


class CustomFunction:
    """A Python function that is compiled when it is first needed, and again when a value that
    it reads has changed. Called from Python, it is the function itself."""

    _parameters: ClassVar[tuple[str, str]]
    _decorator: ClassVar[str]

    def __init__(self, function: Callable[[Any, Any], None]) -> None:
        plain = getattr(function, "py_func", function)  # of a function that numba has already
        if not isinstance(plain, FunctionType):
            raise CostError(f"@{self._decorator} takes a function, not a {type(plain).__name__}")
        wanted = f"{plain.__name__}({', '.join(self._parameters)})"
        parameters = inspect.signature(plain).parameters.values()
        if len(parameters) != 2 or any(
            p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in parameters
        ):
            raise CostError(
                f"@{self._decorator} takes a function `{wanted}`, but "
                f"{plain.__qualname__} is `{plain.__name__}{inspect.signature(plain)}`, "
                f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno}"
            )
        functools.update_wrapper(self, plain)
        self._function = plain
        self._compiled: dict[str, Compiled] = {}
        # Of a function that can't be followed. Several, since threads may still be calling them.
        self._passing: deque[tuple[Frozen, Compiled]] = deque(maxlen=_PASSING)

    def __call__(self, record: Any, out: Any) -> None:
        self._function(record, out)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled by name, as functions are

    def __repr__(self) -> str:
        return f"<{self._decorator} {self.name}>"

    @property
    def name(self) -> str:
        """`module:function`, by which a spec file or a command line can name it."""
        return f"{self._function.__module__}:{self._function.__qualname__}"

    def fingerprint(self) -> str:
        """A hash of the code and of all it reads. Raises NoFingerprint where there is none."""
        try:
            return identity.digest(self._function)
        except NoFingerprint as why:
            raise NoFingerprint(f"{self.name} can't be fingerprinted: {why}") from None

    def compiled(self) -> Compiled:
        """The machine code for all that the function reads, as it is now. Raises CostError.

        Where some of that can't be followed, nobody knows whether it has changed: the function is
        compiled for every call, and the code is kept neither here nor on disk.
        """
        seen = identity.look(self._function)
        known = None if seen.unknown else self._compiled.get(seen.digest)
        return known or self._compile_now()

    def address(self) -> int:
        """Where the core finds the function."""
        return self.compiled().address

    def _address_for_python(self) -> int:
        """The same for Python, which asks for every option or plan: a function that can't be
        followed is compiled again when a value that can be seen has changed."""
        seen = identity.look(self._function)
        if self._passing and seen.looks_like(self._passing[-1][0]):
            return self._passing[-1][1].address
        return self.address()

    def _compile_now(self) -> Compiled:
        frozen = identity.freeze(self._function)
        made = self._compile(frozen)
        if frozen.unknown:
            self._passing.append((frozen, made))
        else:
            self._compiled[frozen.digest] = made
        return made

    def _compile(self, frozen: Frozen) -> Compiled:
        raise NotImplementedError

    def _raised(self, record: Any, out: Any) -> str:
        """What the function raises; compiled code can't tell, so it is asked in Python."""
        try:
            with np.errstate(divide="raise", invalid="raise"):
                self._function(record, out)
        except Exception as error:
            trail = error.__traceback__
            line = None
            while trail is not None:
                if trail.tb_frame.f_code.co_filename == self._function.__code__.co_filename:
                    line = trail.tb_lineno
                trail = trail.tb_next
            where = f", line {line}" if line else ""
            return f"raised {type(error).__name__}: {error}{where}"
        return "raised an error that it does not raise in Python"


class ShardCost(CustomFunction):
    """A function that prices a shard."""

    _parameters = ("shard", "out")
    _decorator = "shard_cost"

    def price(self, shards: Any, costs: Any) -> int:
        """Prices records in place, as the core does; returns how many before one raised."""
        return _call(self._address_for_python(), shards.ctypes.data, costs.ctypes.data, len(shards))

    def failure(self, facts: dict[str, Any], table: str) -> CostError:
        """What went wrong with a shard of a table: `facts` are those of the core."""
        record, cost = facts["record"][0], facts["cost"][0]
        kind = f"{SHARDING_TYPES[record['sharding_type']]}, {KERNELS[record['kernel']]}"
        if facts["raised"]:
            what = self._raised(_plain(record), _plain(record["stock"]))
        else:
            part = next(n for n in cost.dtype.names if not 0 <= cost[n] < np.inf)
            what = f"set `{part}` to {float(cost[part])}, which is no cost"
        return CostError(
            f"{self.name} {what}: table {table} as ({kind}), shard {facts['shard']} of "
            f"{record['shards']}, {record['rows']} x {record['dim']}"
        )

    def _compile(self, frozen: Frozen) -> Compiled:
        return compiling.compile_cost(frozen)


class PlanObjective(CustomFunction):
    """A function that rates a plan by what its ranks carry."""

    _parameters = ("ranks", "out")
    _decorator = "plan_objective"

    def rate(self, ranks: Any) -> float:
        """The rating of rank records, as the core takes it. Raises CostError."""
        out = np.full(1, np.nan, loops.RATING_DTYPE)
        done = _call(self._address_for_python(), ranks.ctypes.data, len(ranks), out.ctypes.data)
        rating = float(out["rating"][0])
        if not done or not 0 <= rating < 2.0**63:
            raise self.failure({"raised": not done, "rating": rating, "ranks": ranks})
        return rating

    def failure(self, facts: dict[str, Any]) -> CostError:
        """What went wrong with a plan: `facts` are those of the core."""
        ranks = facts["ranks"]
        worst = int(ranks["total"].argmax())
        if facts["raised"]:
            what = self._raised(ranks.view(np.recarray), SimpleNamespace())
        elif np.isnan(facts["rating"]):
            what = "set `rating` to nan, or not at all"
        else:
            what = f"set `rating` to {facts['rating']}, and a rating is at least 0 and below 2**63"
        return CostError(
            f"{self.name} {what}: a plan of {len(ranks)} ranks, where rank {worst} costs most, "
            f"{ranks['total'][worst]:.6g}"
        )

    def _compile(self, frozen: Frozen) -> Compiled:
        return compiling.compile_objective(frozen)


def _plain(record: Any) -> SimpleNamespace:
    """A record with Python's own numbers, which raise where compiled ones do."""
    fields = {name: record[name] for name in record.dtype.names}
    return SimpleNamespace(
        **{
            name: _plain(value) if isinstance(value, np.void) else value.tolist()
            for name, value in fields.items()
        }
    )


def _call(address: int, *arguments: int) -> int:
    from ctypes import CFUNCTYPE, c_int64

    function = CFUNCTYPE(c_int64, *(c_int64 for _ in arguments))(address)
    return int(function(*arguments))


def shard_cost(function: Callable[[Any, Any], None]) -> ShardCost:
    """Makes a cost of `function(shard, out)`, which prices one shard.

    `out` holds TorchRec's cost of the shard and keeps what the function does not set. Compiled
    with numba when a plan first needs it. Raises CostError for what is no such function; planning
    raises it where the function can't be compiled, raises, or sets what is no cost.
    """
    return ShardCost(function)


def plan_objective(function: Callable[[Any, Any], None]) -> PlanObjective:
    """Makes an objective of `function(ranks, out)`, which sets `out.rating`; less is better.

    `ranks` is an array with a record of each rank: costs, memory and host. Compiled with numba when
    a plan first needs it. Raises CostError for what is no such function; planning raises it where
    the function can't be compiled, raises, or sets what is no rating.
    """
    return PlanObjective(function)
