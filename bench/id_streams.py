"""Models of a real size with id streams: Zipf mixtures, drifting hot sets, features like Criteo's.

A stream follows a random sample of a table's rows, as SHARDS does: with a sample of a share R, a
cache of R x its rows misses R x its misses. So tables of any size replay in bounded memory. The job
has run for some thousand steps when the stream begins, so that caches are warm.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.cache_simulator import Stream

KINDS = ("zipf", "drifting", "multi-hot")
BATCH = 4096  # of one rank
_TRAIN, _REPLAY = 40, 30
# The steps before the stream, as windows of 2048, 1024, ... 1 steps: what an LRU cache holds
# depends on the window of a row's last use, and hardly on the step inside of it.
_HISTORY = tuple(2**k for k in reversed(range(12)))
_FOLLOWED = 100_000  # rows of a table, at most
_SUMMED = 10_000  # terms of a harmonic sum that are added one by one

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamModel:
    """Tables, their streams, and the job that they belong to."""

    name: str
    ranks: int
    batch: int  # of one rank
    rows: tuple[int, ...]
    dims: tuple[int, ...]
    poolings: tuple[int, ...]
    streams: tuple[Stream, ...]


def draw_model(seed: int) -> StreamModel:
    """A model; the kind of its streams follows from the seed."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    ranks = int(rng.choice((8, 16)))
    count = 20 if kind == "multi-hot" else int(rng.integers(8, 16))
    rows = tuple(int(n) for n in 10 ** rng.uniform(5.0, 7.7, count))
    dims = tuple(int(d) for d in rng.choice((64, 128, 256), count))
    choices = (1, 2, 5, 10, 20, 50) if kind == "multi-hot" else (5, 10, 20)
    poolings = tuple(int(p) for p in rng.choice(choices, count))
    streams = tuple(
        _stream(rng, kind, n, ranks * BATCH * p) for n, p in zip(rows, poolings, strict=True)
    )
    return StreamModel(
        name=f"{kind} {seed}",
        ranks=ranks,
        batch=BATCH,
        rows=rows,
        dims=dims,
        poolings=poolings,
        streams=streams,
    )


def _stream(rng: np.random.Generator, kind: str, rows: int, ids: int) -> Stream:
    drift, spread = 0, 0.0
    if kind == "multi-hot":
        # Criteo's features: few that nearly all rows share, and long tails.
        exponent = rng.uniform(0.9, 1.3)
    else:
        # Most ids are skewed, the others are spread over all rows.
        exponent, spread = rng.uniform(0.5, 1.3), rng.uniform(0.0, 0.3)
    if kind == "drifting":
        # Each step, the hot set moves on by a part of the rows.
        drift = max(1, int(rows * rng.uniform(0, 2e-4)))
    return draw_stream(rng, rows, ids, exponent=exponent, spread=spread, drift=drift)


def draw_stream(
    rng: np.random.Generator,
    rows: int,
    ids: int,
    *,
    exponent: float,
    spread: float = 0.0,
    drift: int = 0,
    followed: int = _FOLLOWED,
) -> Stream:
    """A stream of independent ids: the row of popularity k has the share ~ k^-exponent.

    A row with the share p is among the n ids of a step with the probability 1 - exp(-n p).

    Args:
        rng: where the draws come from.
        rows: of the table.
        ids: of one step, with repeated ones.
        exponent: of Zipf's law.
        spread: the share of ids that are uniform over all rows.
        drift: by how many places the popularity of each row changes in a step.
        followed: the most rows to follow.
    """
    count = min(rows, followed)
    place = rng.permutation(rows) if rows == count else rng.choice(rows, count, replace=False)
    total = _harmonic(rows, exponent)

    def used(first: int, steps: int) -> NDArray[np.bool_]:
        """Which rows are used in steps from `first` on."""
        middle = first + (steps - 1) / 2
        popularity = (place + int(drift * middle)) % rows + 1.0
        share: Floats = (1 - spread) / total * popularity**-exponent + spread / rows
        found: NDArray[np.bool_] = rng.random(count) < -np.expm1(-ids * steps * share)
        return found

    windows = []
    for length in _HISTORY:
        windows.append(used(1 - 2 * length, length))
    windows += [used(step, 1) for step in range(_TRAIN + _REPLAY)]
    steps = [rng.permutation(np.flatnonzero(each)).astype(np.int32) for each in windows]
    return Stream(
        ids=np.concatenate(steps),
        begin=np.cumsum([0, *map(len, steps)]),
        per_step=ids,
        rows=rows,
        followed=count,
        warm=len(_HISTORY),
        train=len(_HISTORY) + _TRAIN,
    )


def _harmonic(rows: int, exponent: float) -> float:
    """The sum of k^-exponent for k up to `rows`; large k by their integral."""
    exact = min(rows, _SUMMED)
    found = float((np.arange(1.0, exact + 1) ** -exponent).sum())
    if rows == exact:
        return found
    a, b = exact + 0.5, rows + 0.5
    if abs(exponent - 1) < 1e-9:
        return found + float(np.log(b / a))
    return found + (b ** (1 - exponent) - a ** (1 - exponent)) / (1 - exponent)
