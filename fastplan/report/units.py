"""Formats figures for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Defined next to `format_size`, because packages below this one need it.
from fastplan.model.units import format_count as format_count

ALL_RANKS = "all ranks"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: float) -> str:
    """Returns bytes with a binary unit, such as `12.3 GiB`."""
    size, unit = float(abs(count)), 0
    while size >= 1024 and unit < len(_BYTE_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    sign = "-" if count < 0 else ""
    if unit == 0:
        return f"{sign}{int(size)} B"
    return f"{sign}{size:.{1 if size < 1000 else 0}f} {_BYTE_UNITS[unit]}"


def format_milliseconds(value: float) -> str:
    """Returns milliseconds with about four digits, such as `0.651 ms`; extremes in us or s."""
    if value >= 10_000:
        return f"{_digits(value / 1000)} s"
    if 0 < value < 0.01:
        return f"{_digits(value * 1000)} us"
    return f"{_digits(value)} ms"


def format_seconds(value: float) -> str:
    """Returns seconds in a suitable unit, such as `3.2 h`, `12.0 min`, `4.3 s` or `498 ms`."""
    if value < 0:
        return f"-{format_seconds(-value)}"
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    if value >= 120:
        return f"{value / 60:.1f} min"
    return format_milliseconds(value * 1000) if value < 1 else f"{value:.1f} s"


def _digits(value: float) -> str:
    """About four digits, without an exponent."""
    for limit, decimals in ((9.9995, 3), (99.995, 2), (999.95, 1)):
        if abs(value) < limit:
            return f"{value:.{decimals}f}"
    return f"{value:,.0f}"


def format_percent(fraction: float) -> str:
    """Returns a fraction as percent, such as `12.9 %`."""
    percent = 100 * fraction
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %"


def format_change(before: float, after: float) -> str:
    """Returns a relative change, such as `-18.6 %`; `0 %` is no change at all."""
    if before == after:
        return "0 %"
    if before == 0:
        return "new"
    percent = 100 * (after / before - 1)
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 else f"{percent:+.1g} %"


def rank_words(ranks: Sequence[int], world: int) -> str:
    """Returns ranks for a sentence: `rank 3`, `ranks 1 and 5`, `8 ranks (r0-7)` or `every rank`.

    Args:
        ranks: Ranks in order, at least one.
        world: The number of ranks of the cluster.
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) == world:
        return "every rank"
    if len(ranks) == 2:
        return f"ranks {ranks[0]} and {ranks[1]}"
    listed = format_ranks(ranks)
    return f"{len(ranks):,} ranks ({listed})" if len(listed) <= 16 else f"{len(ranks):,} ranks"


def format_ranks(ranks: Iterable[int], world: int | None = None) -> str:
    """Returns ranks as ranges, such as `r0-7,12`.

    Args:
        ranks: Ranks in order.
        world: The number of ranks of the cluster: all of them are `all ranks`.
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank in (runs[-1][1], runs[-1][1] + 1):
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    if not runs:
        return "-"
    if world is not None and world > 1 and runs == [[0, world - 1]]:
        return ALL_RANKS
    parts = [str(a) if a == b else f"{a}{',' if b == a + 1 else '-'}{b}" for a, b in runs]
    return "r" + ",".join(parts)
