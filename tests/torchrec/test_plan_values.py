"""Every setting of a table survives a plan file; what can't is named."""

import dataclasses
import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from fbgemm_gpu.tbe.monitoring import TBEStatsReporterConfig
from torchrec.distributed.types import (
    CacheParams,
    CacheStatistics,
    KeyValueParams,
    KVZCHTBEConfig,
    ParameterSharding,
)

from fastplan.torchrec.plan_files import PlanFileError, load_plan, save_plan
from fastplan.torchrec.plan_values import field_types

from .plans import assert_equal_plans, every_setting, one_table, statistics


class Guess(CacheStatistics):
    """Statistics of a class that TorchRec does not have."""

    expected_lookups = 1.0
    cacheability = 0.5

    def expected_miss_rate(self, clf: float) -> float:
        return 1.0 - clf


@dataclasses.dataclass(frozen=True)
class OwnReporter(TBEStatsReporterConfig):
    """A reporter of a class that fbgemm does not have."""


class Mode(enum.IntEnum):
    FATAL = 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def again(file: Path, **settings: Any) -> Any:
    """The table's settings after a file, which must be equal to those before."""
    plan = one_table(**settings)
    save_plan(plan, file)
    loaded = load_plan(file)
    assert_equal_plans(plan, loaded)
    return loaded.plan["sparse"]["t"]


def leaves(value: Any, place: str = "") -> Any:
    """Places and values of all fields, inner ones too."""
    for name in field_types(type(value)):
        item = getattr(value, name)
        yield f"{place}.{name}", item
        if dataclasses.is_dataclass(item) or hasattr(item, "_fields"):
            yield from leaves(item, f"{place}.{name}")


def test_every_setting_has_a_value_to_try() -> None:
    tried = every_setting()
    fixed = {"sharding_type", "compute_kernel", "ranks", "sharding_spec"}
    assert {*tried} == {*field_types(ParameterSharding)} - fixed
    unset = [
        place
        for name, value in tried.items()
        if dataclasses.is_dataclass(value)
        for place, item in leaves(value, name)
        if item is None
    ]
    # The only one whose default is not None.
    assert unset == ["key_value_params.kvzch_tbe_config.threshold_calculation_bucket_num"]


def test_every_setting_comes_back(file: Path) -> None:
    again(file, **every_setting())


@pytest.mark.parametrize("name", every_setting())
def test_a_single_setting_comes_back(name: str, file: Path) -> None:
    again(file, **{name: every_setting()[name]})


@pytest.mark.parametrize("params", [CacheParams(), KeyValueParams()], ids=["cache", "key_value"])
def test_default_parameters_are_not_no_parameters(params: Any, file: Path) -> None:
    name = "cache_params" if isinstance(params, CacheParams) else "key_value_params"
    assert getattr(again(file, **{name: params}), name) is not None


@pytest.mark.parametrize("factor", [0, 1, 0.1, 5e-324, 1e308, math.nan, math.inf, -math.inf, -0.0])
def test_numbers_come_back_to_the_bit(factor: float, file: Path) -> None:
    again(file, cache_params=CacheParams(load_factor=factor))


def test_numbers_that_are_not_json_are_refused(file: Path) -> None:
    save_plan(one_table(cache_params=CacheParams(load_factor=0.25)), file)
    file.write_text(file.read_text().replace("0.25", "NaN"))
    with pytest.raises(PlanFileError, match="is not JSON: NaN must be written as a string"):
        load_plan(file)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_histograms_keep_their_type(dtype: torch.dtype, file: Path) -> None:
    table = again(file, cache_params=CacheParams(stats=statistics(dtype)))
    assert table.cache_params.stats.hist.dtype == dtype


def test_statistics_work_after_loading(file: Path) -> None:
    loaded = again(file, cache_params=CacheParams(stats=statistics())).cache_params.stats
    assert loaded.expected_miss_rate(0.4) == statistics().expected_miss_rate(0.4)


@pytest.mark.parametrize("number", ["1.5", "1e3", "9223372036854775808", '"nan"'])
def test_numbers_must_suit_the_histograms_type(number: str, file: Path) -> None:
    save_plan(one_table(cache_params=CacheParams(stats=statistics(torch.int64))), file)
    file.write_text(file.read_text().replace("[3, 0, 0]", f"[3, {number}, 0]"))
    with pytest.raises(PlanFileError, match="int64") as caught:
        load_plan(file)
    assert caught.value.place.startswith("modules.sparse.t.cache_params.stats.hist.values")


def test_sets_are_written_in_order(file: Path) -> None:
    states = frozenset((name, 1) for name in "fedcba")
    config = KVZCHTBEConfig(optimizer_state_dtypes_for_st=states)
    again(file, key_value_params=KeyValueParams(kvzch_tbe_config=config))
    table = json.loads(file.read_text())["modules"]["sparse"]["t"]
    written = table["key_value_params"]["kvzch_tbe_config"]["optimizer_state_dtypes_for_st"]
    assert written == [[name, 1] for name in "abcdef"]


def test_own_statistics_are_refused_or_left_out(file: Path) -> None:
    plan = one_table(cache_params=CacheParams(load_factor=0.5, stats=Guess()))
    with pytest.raises(PlanFileError, match=r"type Guess .* drop_statistics=True") as caught:
        save_plan(plan, file)
    assert caught.value.place == "modules.sparse.t.cache_params.stats"
    save_plan(plan, file, drop_statistics=True)
    assert_equal_plans(one_table(cache_params=CacheParams(load_factor=0.5)), load_plan(file))
    assert type(plan.plan["sparse"]["t"].cache_params.stats) is Guess


def test_changed_statistics_are_refused(file: Path) -> None:
    stats = statistics()
    stats.bins = stats.bins + 1
    with pytest.raises(PlanFileError, match="unusual histogram"):
        save_plan(one_table(cache_params=CacheParams(stats=stats)), file)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"cache_params": object()}, "cache_params"),
        ({"cache_params": CacheParams(load_factor="0.5")}, "cache_params.load_factor"),
        ({"cache_params": CacheParams(prefetch_pipeline=1)}, "cache_params.prefetch_pipeline"),
        (
            {"key_value_params": KeyValueParams(stats_reporter_config=OwnReporter())},
            "key_value_params.stats_reporter_config",
        ),
        (
            {"key_value_params": KeyValueParams(kvzch_tbe_config=(1, 2))},
            "key_value_params.kvzch_tbe_config",
        ),
        (
            {"key_value_params": KeyValueParams(ps_hosts=[("::1", 1)])},
            "key_value_params.ps_hosts",
        ),
        (
            {"key_value_params": KeyValueParams(ps_hosts=(("::1", "1"),))},
            "key_value_params.ps_hosts[0][1]",
        ),
        ({"bounds_check_mode": Mode.FATAL}, "bounds_check_mode"),
        ({"output_dtype": torch.float16}, "output_dtype"),
        ({"enforce_hbm": 0}, "enforce_hbm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_of_other_types_are_named(settings: Any, place: str, file: Path) -> None:
    with pytest.raises(PlanFileError) as caught:
        save_plan(one_table(**settings), file)
    assert caught.value.place == f"modules.sparse.t.{place}"
