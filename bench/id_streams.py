"""Models with id streams: Zipf mixtures, drifting hot sets, multi-hot features like Criteo's."""

from dataclasses import dataclass

import numpy as np

from bench.cache_simulator import Ids, Stream

KINDS = ("zipf", "drifting", "multi-hot")
_TRAIN, _REPLAY = 40, 30


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
    ranks, batch = int(rng.choice((4, 8))), 128
    count = 20 if kind == "multi-hot" else int(rng.integers(8, 16))
    rows = tuple(int(n) for n in 10 ** rng.uniform(4.0, 5.5, count))
    dims = tuple(int(d) for d in rng.choice((32, 64, 128), count))
    choices = (1, 2, 5, 10, 20) if kind == "multi-hot" else (5, 10, 20)
    poolings = tuple(int(p) for p in rng.choice(choices, count))
    streams = tuple(
        _stream(rng, kind, n, ranks * batch * p) for n, p in zip(rows, poolings, strict=True)
    )
    return StreamModel(
        name=f"{kind} {seed}",
        ranks=ranks,
        batch=batch,
        rows=rows,
        dims=dims,
        poolings=poolings,
        streams=streams,
    )


def _stream(rng: np.random.Generator, kind: str, rows: int, per_step: int) -> Stream:
    steps = _TRAIN + _REPLAY
    if kind == "multi-hot":
        # Criteo's features: few that nearly all rows share, and long tails.
        ids = _zipf(rng, rows, rng.uniform(0.9, 1.3), steps * per_step)
    else:
        # Most ids are skewed, the others are spread over all rows.
        ids = _zipf(rng, rows, rng.uniform(0.5, 1.3), steps * per_step)
        other = rng.random(len(ids)) < rng.uniform(0.0, 0.3)
        ids[other] = rng.integers(0, rows, int(other.sum()), dtype=np.int32)
    if kind == "drifting":
        # Each step, the hot set moves on by a part of the rows.
        moved = np.repeat(np.arange(steps), per_step) * max(1, int(rows * rng.uniform(0, 2e-4)))
        ids = ((ids + moved) % rows).astype(np.int32)
    # Hot rows lie anywhere in the table.
    ids = rng.permutation(rows).astype(np.int32)[ids]
    return Stream(ids=ids, per_step=per_step, rows=rows, train=_TRAIN)


def _zipf(rng: np.random.Generator, rows: int, exponent: float, count: int) -> Ids:
    share = np.cumsum(1.0 / np.arange(1, rows + 1) ** exponent)
    found: Ids = np.searchsorted(share, rng.random(count) * share[-1]).astype(np.int32)
    return np.minimum(found, rows - 1)
