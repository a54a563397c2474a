"""The rows that TorchRec's statistics have for the tables of a plan, written column by column."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.types import Storage

from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec.write.stats_options import Planned

_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
_CUT_BY_COLUMNS = frozenset({"column_wise", "table_column_wise", "grid_shard"})
_GIB = 1024 * 1024 * 1024
_FEW_DIGITS = 1e11  # below, a double is written with the three decimals it was rounded to


def parameter_columns(planned: Planned, sharder_data: dict[str, Any]) -> list[list[str]]:
    """What TorchRec tells of each option, by the columns of its table."""
    options, poolings = planned.options, planned.poolings
    origins = [planned.origins[table] for table in planned.tables]
    facts = [planned.facts[table] for table in planned.tables]
    data = [sharder_data.get(origin.holder.key) for origin in origins]
    shapes = [option.tensor.shape[:2] for option in options]
    first_cols = planned.placed.first_cols().tolist()
    short = {kind: torchrec_stats._get_sharding_type_abbr(kind) for kind in SHARDING_TYPES}
    lengths = [option.input_lengths for option in options]
    lookups = [
        sum([x * y for x, y in zip(*each, strict=False)])
        for each in zip(lengths, poolings, strict=True)
    ]
    return [
        [option.fqn for option in options],
        [short[option.sharding_type] for option in options],
        [option.compute_kernel for option in options],
        _perf_texts([each.tolist() for each in planned.placed.perf_of_options()]),
        _storage_texts([option.total_storage for option in options]),
        [
            _load_factor(origin.constraint, known) if option.compute_kernel == _CACHED else "None"
            for option, origin, known in zip(options, origins, data, strict=True)
        ],
        _rounded([sum(each) for each in lengths]),
        _rounded([sum(each) for each in poolings]),
        _rounded(lookups),
        ["pooled" if table.pooled else "sequence" for table in facts],
        ["weighted" if table.weighted else "unweighted" for table in facts],
        [
            f"{type(origin.module).__name__}Sharder" if known else "NoneType"
            for origin, known in zip(origins, data, strict=True)
        ],
        [str(len(each)) for each in lengths],
        [
            f"{shape[1]} ({cols})" if option.sharding_type in _CUT_BY_COLUMNS else str(shape[1])
            for option, shape, cols in zip(options, shapes, first_cols, strict=True)
        ],
        [str(shape[0]) for shape in shapes],
        _rank_texts(planned),
    ]


def _load_factor(rule: Any, data: Any) -> str:
    cache = rule.cache_params if rule else None
    if cache is not None and cache.load_factor is not None:
        return str(cache.load_factor)
    return str(data.fused_params.get("cache_load_factor") if data else None)


def _perf_texts(perf: list[list[float]]) -> list[str]:
    """TorchRec's _format_perf_breakdown, of the fields of Perfs."""
    fwd, comms, bwd, bwd_comms, _, prefetch = perf
    totals = [
        a + b + c + d + e
        for a, b, c, d, e in zip(fwd, bwd, comms, bwd_comms, prefetch, strict=True)
    ]
    # TorchRec rounds small numbers to one digit, too, but reads and writes them once more.
    parts = [
        [f"{part:.1g}" if 0 <= part < 1 else _large_part(part) for part in field]
        for field in (fwd, comms, bwd, bwd_comms, prefetch)
    ]
    return [
        f"{total} ({','.join(each)})"
        for total, each in zip(_rounded(totals), zip(*parts, strict=True), strict=True)
    ]


def _large_part(number: float) -> str:
    return str(round(number)) if number >= 1 else torchrec_stats.round_to_one_sigfig(number)


def _storage_texts(storages: list[Storage]) -> list[str]:
    """TorchRec's _format_storage_breakdown."""
    gigabytes = (
        _rounded([size / _GIB for size in sizes])
        for sizes in zip(*((each.hbm, each.ddr, each.ssd) for each in storages), strict=True)
    )
    return [f"({hbm} GB, {ddr} GB, {ssd} GB)" for hbm, ddr, ssd in zip(*gigabytes, strict=True)]


def _rounded(numbers: list[float]) -> list[str]:
    """`str(round(number, 3))` of each, which takes twice as long."""
    if {*map(type, numbers)} != {float} or not 0 <= min(numbers) <= max(numbers) < _FEW_DIGITS:
        return [str(round(number, 3)) for number in numbers]
    known: dict[float, str] = {0.0: "0.0", 1.0: "1.0"}
    texts = []
    for number in numbers:
        text = known.get(number)
        if text is None:
            text = f"{number:.3f}".rstrip("0")
            text = known[number] = f"{text}0" if text[-1] == "." else text
        texts.append(text)
    return texts


def _rank_texts(planned: Planned) -> list[str]:
    placed = planned.placed
    ranks = placed.rank.tolist()
    texts = []
    for option, (begin, end) in zip(
        planned.options, pairwise([*placed.first_shard.tolist(), len(ranks)]), strict=True
    ):
        if end - begin == 1:
            texts.append(str(ranks[begin]))
        elif option.sharding_type in UNIFORM_TYPES:
            texts.append(f"0-{end - begin - 1}")
        else:
            own = sorted(ranks[begin:end])
            texts.append(",".join(torchrec_stats._collapse_consecutive_ranks(own)))
    return texts


def aligned(columns: list[list[str]]) -> list[str]:
    """TorchRec's _format_table, of texts by column."""
    row = "".join(f"{{:>{max(map(len, column)) + 3}}}" for column in columns)
    return [*map(row.format, *columns)]
