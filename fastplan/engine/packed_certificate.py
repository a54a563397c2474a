"""Packs the proof of a bound for a cache, and verifies packed proofs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.certificate import MOST_ON_RANK, ROUNDING, Certificate, Slab, check_bound
from fastplan.engine.problem import Floats, Ints, Problem, SearchSpace
from fastplan.engine.rules import within_rules
from fastplan.model.objectives import Objectives

MAX_PACKED = 64 << 10
_MOST_BYTES = 8 << 20  # unpacked
_MOST_SLABS = 1024
_MOST_REWARDS = 64  # slabs with rewards, which take far longer to check than others
_MOST_FILLS = 200_000  # shards that a check may try to fill ranks with: about a second

_VERSION = 1
_HEAD = struct.Struct("<BIIdd")
_NUMBERS = 6 * 8  # bytes of a slab: low, high, memory, uniform


class BadCertificate(ValueError):
    """Bytes are not a packed certificate of this problem, or take too long to check."""


def pack_certificate(
    certificate: Certificate,
    given: Problem,
    objectives: Objectives,
    names: Sequence[tuple[str, str]],
) -> bytes:
    """Returns the certificate as bytes; empty if it is too large to be checked later.

    `given`, `objectives` and `names` are the arguments of optimize() that the bound is for.
    """
    slabs = certificate.slabs
    rows = [(slab.low, slab.high, *slab.memory, slab.uniform) for slab in slabs]
    rewards = [slab.reward for slab in slabs if slab.reward is not None]
    space = within_rules(given, objectives, names).space
    packed = b""
    if not _why_too_large(len(slabs), np.array(rewards), space):
        order = _canonical_order(space) if rewards else None
        body = b"".join(
            (
                np.array(rows, "<f8").tobytes(),
                bytes(slab.reward is not None for slab in slabs),
                *(reward[order].astype("<f8").tobytes() for reward in rewards),
            )
        )
        sizes = len(slabs), space.options if rewards else 0
        head = _HEAD.pack(_VERSION, *sizes, certificate.value, certificate.threshold)
        packed = head + zlib.compress(body, 9)
    return packed if len(packed) <= MAX_PACKED else b""


def unpack_certificate(packed: bytes, space: SearchSpace) -> Certificate:
    """Returns the certificate that was packed for this space. Raises BadCertificate.

    The content is not trusted; check_bound() verifies it.
    """
    if not _HEAD.size <= len(packed) <= MAX_PACKED:
        raise BadCertificate(f"{len(packed)} bytes are not a certificate")
    version, count, options, value, threshold = _HEAD.unpack_from(packed)
    if version != _VERSION:
        raise BadCertificate(f"certificate version {version} is not {_VERSION}")
    if count > _MOST_SLABS or options not in (0, space.options):
        raise BadCertificate(f"it has {count} slabs and {options} options")
    body = _inflated(packed[_HEAD.size :])
    numbers, flags, rest = np.split(
        np.frombuffer(body, np.uint8), [count * _NUMBERS, count * (_NUMBERS + 1)]
    )
    rewarded = np.flatnonzero(flags)
    if len(flags) != count or len(rest) != len(rewarded) * options * 8:
        raise BadCertificate("its size does not match its header")
    if (flags > 1).any() or bool(options) != bool(len(rewarded)):
        raise BadCertificate("it is malformed")
    rewards = rest.view("<f8").reshape(len(rewarded), options).astype(np.float64)
    if why := _why_too_large(count, rewards, space):
        raise BadCertificate(why)
    return Certificate(
        value=value,
        threshold=threshold,
        slabs=_slabs(numbers.view("<f8").reshape(count, 6), rewarded, rewards, space),
    )


def _slabs(
    numbers: Floats, rewarded: Ints, rewards: Floats, space: SearchSpace
) -> tuple[Slab, ...]:
    own: dict[int, Floats] = {}
    if len(rewarded):
        back = np.argsort(_canonical_order(space))
        own = {int(slab): reward[back] for slab, reward in zip(rewarded, rewards, strict=True)}
    return tuple(
        Slab(low=low, high=high, memory=(hbm, ddr, ssd), uniform=uniform, reward=own.get(i))
        for i, (low, high, hbm, ddr, ssd, uniform) in enumerate(numbers.tolist())
    )


def proven_bound(
    packed: bytes,
    rating: float,
    given: Problem,
    objectives: Objectives,
    names: Sequence[tuple[str, str]],
) -> float | None:
    """Returns the bound that a packed certificate proves; None without a proof.

    No number is trusted, and checking forged bytes takes seconds at most. `rating` is the rating
    of a plan, so no bound can be above it.
    """
    try:
        problem = within_rules(given, objectives, names)
        certificate = unpack_certificate(packed, problem.space)
        proven = check_bound(problem, certificate)
    except ValueError:
        return None
    if proven > rating * (1 + ROUNDING):
        return None
    # 0 is valid for every problem, so it says nothing.
    return proven if proven > 0 or certificate.value == 0 else None


def _why_too_large(count: int, rewards: NDArray[Any], space: SearchSpace) -> str:
    """Why the certificate is too large to check; empty if it is not."""
    if count > _MOST_SLABS or len(rewards) > _MOST_REWARDS:
        return f"{count} slabs, {len(rewards)} of them with rewards, are too many"
    if not len(rewards):
        return ""
    shards = np.add.reduceat(space.run_count, space.option_run_begin[:-1])
    fills = int(((rewards > 0) @ np.minimum(shards, MOST_ON_RANK)).sum())
    return f"{fills} shards to fill ranks with are too many" if fills > _MOST_FILLS else ""


def _canonical_order(space: SearchSpace) -> Ints:
    """Sorts options by table, kind and cost, because other writers may order them differently.

    Options that are equal in all of this are interchangeable in any proof.
    """
    first = space.option_run_begin[:-1]
    costs = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute")
    columns = [getattr(space, f"run_{name}") for name in (*costs, "hbm", "ddr", "ssd")]
    sums = [np.add.reduceat(column * space.run_count, first) for column in columns]
    tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
    return np.lexsort((*sums, space.option_kernel, space.option_type, tables))


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise BadCertificate(f"it can't be read: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise BadCertificate("its size does not match its header")
    return body
