"""The decorators `shard_cost` and `plan_objective`, and the objects they return."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fastplan.costs import compiling, identity, loops
from fastplan.costs.compiling import Compiled
from fastplan.costs.errors import CostError, NoFingerprint
from fastplan.costs.identity import Frozen
from fastplan.model.references import BadReference, find
from fastplan.model.request import Request, Search
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES

_PASSING = 8


class CustomFunction:
    """A Python function that is compiled on first use, and again if a value it reads has changed.

    A call from Python runs the Python function.
    """

    _parameters: ClassVar[tuple[str, str]]
    _decorator: ClassVar[str]

    def __init__(self, function: Callable[[Any, Any], None]) -> None:
        plain = getattr(function, "py_func", function)  # already compiled with numba
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
        # Code of a function without a fingerprint. Several, because threads may still call them.
        self._passing: deque[tuple[Frozen, Compiled]] = deque(maxlen=_PASSING)

    def __call__(self, record: Any, out: Any) -> None:
        self._function(record, out)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled by name, as functions are

    def __repr__(self) -> str:
        return f"<{self._decorator} {self.name}>"

    @property
    def name(self) -> str:
        """The name `module:function` for spec files and command lines."""
        return f"{self._function.__module__}:{self._function.__qualname__}"

    def fingerprint(self) -> str:
        """Returns a hash of the code and of everything it reads.

        Raises:
            NoFingerprint: The function reads something that can't be fingerprinted.
        """
        try:
            return identity.digest(self._function)
        except NoFingerprint as why:
            raise NoFingerprint(f"{self.name} can't be fingerprinted: {why}") from None

    def compiled(self) -> Compiled:
        """Returns the machine code for the current values that the function reads.

        If some of them can't be fingerprinted, changes can't be detected. Then every call compiles
        the function, and the code is cached neither in memory nor on disk.

        Raises:
            CostError: The function can't be compiled.
        """
        seen = identity.look(self._function)
        known = None if seen.unknown else self._compiled.get(seen.digest)
        return known or self._compile_now()

    def address(self) -> int:
        """Returns the address of the compiled function for the core."""
        return self.compiled().address

    def _cached_address(self) -> int:
        """Returns the address for Python, which needs it for every option or plan.

        A function without a fingerprint is compiled again only if a visible value has changed.
        """
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

    def _python_error(self, record: Any, out: Any) -> str:
        """Describes the error of the function. Compiled code has no details, so Python runs it."""
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
        return "raised an error that can't be reproduced in Python"


class ShardCost(CustomFunction):
    """A function that sets the cost of a shard."""

    _parameters = ("shard", "out")
    _decorator = "shard_cost"

    def price(self, shards: Any, costs: Any) -> int:
        """Sets the costs of records in place, as the core does.

        Returns:
            The number of records before the first one that raised an error.
        """
        return _call(self._cached_address(), shards.ctypes.data, costs.ctypes.data, len(shards))

    def failure(self, facts: dict[str, Any], table: str) -> CostError:
        """Returns the error for a shard of a table, from the facts that the core reports."""
        record, cost = facts["record"][0], facts["cost"][0]
        kind = f"{SHARDING_TYPES[record['sharding_type']]}, {KERNELS[record['kernel']]}"
        if facts["raised"]:
            # A request without hardware costs has NaN in their place.
            start = record["stock" if np.isnan(record["hardware"]["fwd_compute"]) else "hardware"]
            what = self._python_error(_to_python_record(record), _to_python_record(start))
        else:
            part = next(n for n in cost.dtype.names if not 0 <= cost[n] < np.inf)
            what = f"set `{part}` to {float(cost[part])}, which is not a valid cost"
        return CostError(
            f"{self.name} {what}: table {table} as ({kind}), shard {facts['shard']} of "
            f"{record['shards']}, {record['rows']} x {record['dim']}"
        )

    def _compile(self, frozen: Frozen) -> Compiled:
        return compiling.compile_cost(frozen)


class PlanObjective(CustomFunction):
    """A function that rates a plan by the load of its ranks."""

    _parameters = ("ranks", "out")
    _decorator = "plan_objective"

    def rate(self, ranks: Any) -> float:
        """Returns the rating of rank records, as the core computes it.

        Raises:
            CostError: The function raises an error or sets an invalid rating.
        """
        out = np.full(1, np.nan, loops.RATING_DTYPE)
        done = _call(self._cached_address(), ranks.ctypes.data, len(ranks), out.ctypes.data)
        rating = float(out["rating"][0])
        if not done or not 0 <= rating < 2.0**63:
            raise self.failure({"raised": not done, "rating": rating, "ranks": ranks})
        return rating

    def failure(self, facts: dict[str, Any]) -> CostError:
        """Returns the error for a plan, from the facts that the core reports."""
        ranks = facts["ranks"]
        worst = int(ranks["total"].argmax())
        if facts["raised"]:
            what = self._python_error(ranks.view(np.recarray), SimpleNamespace())
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


def _to_python_record(record: Any) -> SimpleNamespace:
    """Returns a record with Python numbers, which raise the same errors as compiled code."""
    fields = {name: record[name] for name in record.dtype.names}
    return SimpleNamespace(
        **{
            name: _to_python_record(value) if isinstance(value, np.void) else value.tolist()
            for name, value in fields.items()
        }
    )


def _call(address: int, *arguments: int) -> int:
    from ctypes import CFUNCTYPE, c_int64

    function = CFUNCTYPE(c_int64, *(c_int64 for _ in arguments))(address)
    return int(function(*arguments))


def shard_cost(function: Callable[[Any, Any], None]) -> ShardCost:
    """Turns `function(shard, out)` into a cost, which sets the cost of one shard.

    `out` has TorchRec's cost of the shard, or its hardware cost if the request has hardware costs;
    parts that the function does not set keep it. The function is compiled with numba when a plan
    first needs it. Planning raises CostError if the function can't be compiled, raises an error or
    sets an invalid cost.

    Args:
        function: A Python function with two arguments.

    Raises:
        CostError: The argument is not such a function.
    """
    return ShardCost(function)


def plan_objective(function: Callable[[Any, Any], None]) -> PlanObjective:
    """Turns `function(ranks, out)` into an objective, which sets `out.rating` (lower is better).

    `ranks` is an array with a record of each rank: costs, memory and host. The function is compiled
    with numba when a plan first needs it. Planning raises CostError if the function can't be
    compiled, raises an error or sets an invalid rating.

    Args:
        function: A Python function with two arguments.

    Raises:
        CostError: The argument is not such a function.
    """
    return PlanObjective(function)


def custom_parts(request: Request, search: Search) -> list[list[Any]]:
    """Returns the fingerprints of a request's custom functions.

    Raises:
        NoFingerprint: A function reads something that can't be fingerprinted.
    """
    parts: list[list[Any]] = []
    pricing = request.pricing
    if pricing is not None:
        # Custom functions can read the batch size; the rest of the key has it only in products.
        function = pricing.function
        parts.append(["shard_cost", function.name, function.fingerprint(), pricing.batch_size])
    if search.objective is not None:
        parts.append(["objective", search.objective.name, search.objective.fingerprint()])
    return parts


F = TypeVar("F", bound=CustomFunction)


def find_cost(name: str) -> ShardCost:
    """Imports a cost by its name.

    Raises:
        CostError: The name can't be found, or is not a cost.
    """
    return _find(name, ShardCost, "shard_cost")


def find_objective(name: str) -> PlanObjective:
    """Imports an objective by its name.

    Raises:
        CostError: The name can't be found, or is not an objective.
    """
    return _find(name, PlanObjective, "plan_objective")


def _find(name: str, kind: type[F], decorator: str) -> F:
    try:
        found = find(name)
    except BadReference as error:
        raise CostError(str(error)) from error
    if not isinstance(found, kind):
        raise CostError(f"{name} is not a function with @fastplan.{decorator}")
    return found
