"""Writes TorchRec's table of statistics without an object for each shard.

TorchRec's own functions write it, except for those that visit all shards of a plan in Python: the
plan's columns give their results, to the last digit.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FunctionType, SimpleNamespace
from typing import Any

from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import Storage, Topology

from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec.read.space import ChosenOptions, EstimatedSpace
from fastplan.torchrec.support import support
from fastplan.torchrec.support.watch import ESTIMATES, STATISTICS
from fastplan.torchrec.write import hooks
from fastplan.torchrec.write.stats_options import Planned

_STOCK_LOG = EmbeddingStats.log
_OWN_ATTRIBUTES = {"_width", "_stats_table"}
# TorchRec checks whether a plan has tables, and adds up their sizes one by one.
_NO_TABLES = SimpleNamespace(plan={"": {}})


def can_write(stats: Any, best_plan: Any, known: dict[str, Any]) -> bool:
    """Whether the table of these statistics can be written from columns.

    This needs TorchRec's own statistics with all their functions, and a plan of options that no
    other code has read yet.
    """
    if not isinstance(best_plan, ChosenOptions) or not isinstance(best_plan.space, EstimatedSpace):
        return False
    estimators = best_plan.space.extraction.estimators
    return (
        type(stats) is EmbeddingStats
        and set(vars(stats)) == _OWN_ATTRIBUTES
        and EmbeddingStats.log is _STOCK_LOG
        and not support.why_not(STATISTICS, ESTIMATES)
        and type(known["topology"]) is Topology
        and bool(known["sharding_plan"].plan)
        and estimators.has_perf
        and estimators.has_storage
    )


def write(stats: Any, best_plan: ChosenOptions, arguments: dict[str, Any]) -> None:
    """Logs the statistics of the options of `best_plan`."""
    writer: Any = _Writer.__new__(_Writer)
    writer.__dict__ = stats.__dict__  # width and table belong to the stock object
    writer.planned = Planned(best_plan, arguments)
    arguments = {**arguments, "sharding_plan": _NO_TABLES, "best_plan": writer.planned.options}
    writer.with_columns(_STOCK_LOG)(**arguments)


class _Writer(EmbeddingStats):
    """TorchRec's statistics, with functions on columns in place of loops over all shards."""

    __slots__ = ("planned",)

    planned: Planned

    def with_columns(self, function: Any) -> Callable[..., Any]:
        """Returns a method of TorchRec that calls functions on columns; its module is unchanged."""
        planned = self.planned
        known: dict[str, Any] = {
            "_compute_mem_usage_and_perf": planned.usage,
            "_calculate_critical_path": planned.critical_path,
            "_find_imbalance_tables": planned.imbalanced,
        }
        logger = torchrec_stats.logger
        if _is_standard_logger(logger):
            known["logger"] = _RowLogger(logger)
        if not hooks.logs_events():
            known["_observability_log_storage_and_perf"] = _no_log
        code, names = function.__code__, {**function.__globals__, **known}
        made = FunctionType(code, names, None, function.__defaults__, function.__closure__)
        return partial(made, self)

    def _log_max_perf_and_max_hbm(self, *args: Any, **kwargs: Any) -> None:
        self.with_columns(EmbeddingStats._log_max_perf_and_max_hbm)(*args, **kwargs)

    def _log_imbalance_tables(self, *args: Any, **kwargs: Any) -> None:
        self.with_columns(EmbeddingStats._log_imbalance_tables)(*args, **kwargs)

    def _log_rank_mem_usage_and_perf(self, **kwargs: Any) -> list[str]:
        stats, used = kwargs["stats"], kwargs["used_sharding_types"]
        for name, counts in self.planned.shard_counts():
            used.add(name)
            for rank, count in enumerate(counts):
                stats[rank]["type"][name] = count
        for name, sizes in zip(
            ("input_sizes", "output_sizes"), self.planned.io_megabytes(), strict=True
        ):
            for rank, size in enumerate(sizes.tolist()):
                stats[rank][name] = size
        lines: list[str] = super()._log_rank_mem_usage_and_perf(**kwargs)
        return lines

    def _log_sharding_plan(
        self,
        best_plan: Any,
        sharding_plan: Any,
        constraints: Any = None,
        sharder_data_map: Any = None,
    ) -> list[str]:
        # The columns are three blanks apart.
        head, rule = (
            re.split(" {3,}", line.strip())
            for line in super()._log_sharding_plan([], sharding_plan, constraints, sharder_data_map)
        )
        columns = parameter_columns(self.planned, sharder_data_map or {})
        batches = self.planned.batch_sizes
        if any(batches):
            head.append("Batch Sizes")
            rule.append("-------------")
            text = torchrec_stats._reduce_int_list
            columns.append([text(sizes) if sizes else "n/a" for sizes in batches])
        lines = aligned([[*top, *column] for *top, column in zip(head, rule, columns, strict=True)])
        own: dict[str, Any] = self.__dict__
        own["_width"] = max(own["_width"], len(lines[0]) + 6)
        return lines


def _no_log(**event: Any) -> None:
    pass


_LOGGING = ("info", "_log", "findCaller", "isEnabledFor")
_STOCK_LOGGING = [getattr(logging.Logger, name) for name in _LOGGING]


def _is_standard_logger(logger: Any) -> bool:
    """Whether a logger is standard, and records the line of the caller."""
    return (
        type(logger) is logging.Logger
        and not vars(logger).keys() & {*_LOGGING}
        and [getattr(logging.Logger, name) for name in _LOGGING] == _STOCK_LOGGING
        and bool(getattr(logging, "_srcfile", None))
    )


class _RowLogger:
    """Logs many rows from one line of code.

    A logger looks up the line of the caller for each row, which takes most of the time: the
    line is a late one of a long function.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._line = (-1, -1)  # the last instruction that logged, with its line

    def info(self, row: str) -> None:
        logger = self._logger
        if not logger.isEnabledFor(logging.INFO):
            return
        frame = sys._getframe(1)
        if self._line[0] != frame.f_lasti:
            self._line = frame.f_lasti, frame.f_lineno
        code = frame.f_code
        record = logger.makeRecord(
            logger.name, logging.INFO, code.co_filename, self._line[1], row, (), None, code.co_name
        )
        logger.handle(record)


_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
_CUT_BY_COLUMNS = frozenset({"column_wise", "table_column_wise", "grid_shard"})
_GIB = 1024 * 1024 * 1024
_FEW_DIGITS = 1e11  # below this, a double is printed with the three decimals that it was rounded to


def parameter_columns(planned: Planned, sharder_data: dict[str, Any]) -> list[list[str]]:
    """Returns the columns of TorchRec's table of options."""
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
    """Replaces TorchRec's _format_perf_breakdown, for the fields of Perfs."""
    fwd, comms, bwd, bwd_comms, _, prefetch = perf
    totals = [
        a + b + c + d + e
        for a, b, c, d, e in zip(fwd, bwd, comms, bwd_comms, prefetch, strict=True)
    ]
    # TorchRec also rounds small numbers to one digit, but parses and prints them again.
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
    """Replaces TorchRec's _format_storage_breakdown."""
    gigabytes = (
        _rounded([size / _GIB for size in sizes])
        for sizes in zip(*((each.hbm, each.ddr, each.ssd) for each in storages), strict=True)
    )
    return [f"({hbm} GB, {ddr} GB, {ssd} GB)" for hbm, ddr, ssd in zip(*gigabytes, strict=True)]


def _rounded(numbers: list[float]) -> list[str]:
    """Returns `str(round(number, 3))` of each number, in half the time."""
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
    """Replaces TorchRec's _format_table, for strings by column."""
    row = "".join(f"{{:>{max(map(len, column)) + 3}}}" for column in columns)
    return [*map(row.format, *columns)]
