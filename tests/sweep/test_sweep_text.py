"""A sweep's result as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json

from fastplan.report.terminal import Style, display_width
from fastplan.sweep.queries import cheapest, smallest_cluster
from fastplan.sweep.rows import Row, SweepResult
from fastplan.sweep.sweep import cells
from fastplan.sweep.text import (
    cell_lines,
    cheapest_lines,
    smallest_lines,
    summary,
    to_csv,
    to_json,
)
from tests.sweep.samples import failure, row, sweep, unfit

NASTY = "<script>alert(1)</script>\x1b[31m\u202e\n" + "m" * 200
ROWS = (
    row(world_size=8, cache="hit", ddr_bytes=3 << 30),
    row(world_size=16, precision="fp16", hbm_bytes=2 << 30, rating=5.0),
    unfit(world_size=4),
    unfit(world_size=2, headroom_bytes=None, headroom=None, shortage="hopeless"),
    failure(world_size=1, error="table t: no way out"),
    row(batch=1024, batch_size=1024, world_size=8),
)


def result(*rows: Row, **fields: object) -> SweepResult:
    return SweepResult(rows=rows, seconds=1.5, **fields)  # type: ignore[arg-type]


def text(found: SweepResult) -> str:
    return "\n".join(summary(found))


def test_colours_are_for_terminals_only() -> None:
    assert "\x1b" not in text(result(*ROWS))
    assert "\x1b[1m" in "\n".join(summary(result(*ROWS), Style(colour=True)))


def test_counts_come_first() -> None:
    first = text(result(*ROWS, known=2)).splitlines()[0]
    assert first == (
        "6 cells: 3 fit, 2 do not, 1 failed, 1 were cached, 2 are stored now, 2 were known; 1.5 s"
    )


def test_rows_are_grouped_by_model_and_batch() -> None:
    shown = text(result(*ROWS))
    lines = shown.splitlines()
    assert lines.index("m, batch 512 of a rank") < lines.index("m, batch 1,024 of a rank")
    assert "of all ranks" in text(result(*ROWS, global_batch=True))


def test_a_row_says_whether_it_fits_and_how_well() -> None:
    shown = text(result(*ROWS)).splitlines()
    [fits] = [line for line in shown if " hit " in line]
    assert fits.split()[:12] == [
        *("h100", "fp32", "8", "1", "yes", "10.00", "ms", "1.0", "GiB", "50.0", "%", "hit")
    ]
    assert fits.endswith("3.0 GiB in DDR")
    assert any(line.split()[4:] == ["no", "-", "-1.0", "GiB", "-25.0", "%", "-"] for line in shown)
    assert any(line.endswith("hopeless") for line in shown)


def test_failures_are_told_with_their_reason() -> None:
    shown = text(result(*ROWS))
    assert "1 cell failed\n  m on 1 x h100, batch 512, fp32:\n    table t: no way out" in shown
    many = text(result(*(failure(world_size=n) for n in range(1, 31))))
    assert "and 20 more" in many


def test_precisions_are_compared_when_there_are_several() -> None:
    both = result(row(), row(precision="fp16", hbm_bytes=4 << 30, rating=5.0))
    lines = text(both).splitlines()
    at = lines.index("Precision, compared with fp32")
    assert lines[at + 3].split()[3:] == [
        *(
            "fp16",
            "8",
            "ranks",
            "8",
            "ranks",
            "4.0",
            "GiB",
            "-50.0",
            "%",
            "5.000",
            "ms",
            "-50.0",
            "%",
        )
    ]
    assert "Precision" not in text(result(row()))


def test_lines_are_never_too_wide_and_names_are_harmless() -> None:
    rows = [
        make(model=NASTY, sku=NASTY, precision=precision, error=error)
        for make, error in ((row, None), (unfit, None), (failure, NASTY))
        for precision in ("fp32", "fp16")
    ]
    found = result(*rows)
    lines = [
        *summary(found),
        *smallest_lines(smallest_cluster(found)),
        *cheapest_lines(cheapest(found, rating=99.0, prices={NASTY: 1.0}), 99.0),
    ]
    for line in lines:
        assert not {"\x1b", "\u202e", "\n"} & set(line)
        assert display_width(line) <= 100


def test_answers_to_the_smallest_cluster() -> None:
    found = result(
        unfit(world_size=8),
        row(world_size=16),
        unfit(world_size=8, sku="a100"),
        failure(world_size=4, sku="a100"),
    )
    lines = list(smallest_lines(smallest_cluster(found)))
    assert lines[0] == "Smallest cluster that fits"
    assert lines[2].split()[:5] == ["m", "h100", "512", "fp32", "16"]
    assert lines[3].endswith("8 ranks lack 1.0 GiB HBM each; 4 failed")


def test_answers_to_the_cheapest_cluster() -> None:
    found = result(row(), unfit(model="n"), prices={"h100": 2.5})
    lines = list(cheapest_lines(cheapest(found, rating=20.0), 20.0))
    assert lines[0] == "Cheapest cluster with a rating of at most 20.00 ms"
    assert lines[2].split() == [
        *("m", "512", "fp32", "h100", "8", "10.00", "ms", "20.00", "2.5", "per", "rank")
    ]
    assert lines[3].endswith("nothing fits")
    lines = list(cheapest_lines(cheapest(found, rating=1.0), 1.0))
    assert lines[2].endswith("best is 10.00 ms on 8 x h100")


def test_json_has_every_row_and_saving() -> None:
    found = result(*ROWS, known=1)
    content = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert (content["cells"], content["fit"], content["failed"]) == (6, 3, 1)
    assert [each["world_size"] for each in content["rows"]] == [8, 16, 4, 2, 1, 8]
    assert content["savings"][0]["against"] == "fp32"


def test_csv_has_a_line_for_each_row() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(result(*ROWS, failure(model="a,b\n\x1b"))))))
    assert len(lines) == 7
    assert (lines[0]["rating"], lines[0]["fits"]) == ("10.0", "True")
    assert lines[2]["rating"] == ""
    assert lines[6]["model"] == "a,b\\x0a\\x1b"


def test_cells_are_listed_without_planning() -> None:
    lines = list(cell_lines(cells(sweep())))
    assert lines[1].split()[:7] == ["small", "h100", "fp32", "1024", "1024", "2", "1"]
    assert lines[-1] == "\n2 cells"


def test_an_empty_sweep_is_shown() -> None:
    assert text(result()) == "0 cells: 0 fit, 0 do not; 1.5 s"


def test_steps_have_a_column_if_there_are_any() -> None:
    assert "step" not in list(summary(result(row())))[3].split()
    titles, line = list(summary(result(row(step=3.0))))[3:5]
    assert titles.split()[5:7] == ["rating", "step"]
    assert line.split()[5:9] == ["10.00", "ms", "3.000", "ms"]
