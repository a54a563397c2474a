"""The page of a sweep: its data, and the plans next to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastplan.plans.file import read_plan
from fastplan.sweep.html import page_data, sweep_page, write_page
from fastplan.sweep.plan_files import folder_beside
from fastplan.sweep.rows import ResultsFile, SweepResult
from fastplan.sweep.run import run_sweep
from fastplan.sweep.text import summary
from tests.report.pages import Page
from tests.sweep.samples import Inline, failure, model, row, sweep, tight, unfit

NASTY = "</script><b>\u202ex"


def planned(folder: Path, **axes: object) -> tuple[SweepResult, str]:
    plans = folder_beside(str(folder / "page.html"))
    return run_sweep(sweep(**axes), executor=Inline(), plans=plans), plans


def test_each_cell_that_fits_has_a_plan_file_and_a_page(tmp_path: Path) -> None:
    big = model("big", rows=400_000_000)
    result, plans = planned(tmp_path, models=(model(), big), skus=(tight(),))
    fitting = {row.id: row for row in result.rows if row.fits}
    assert 0 < len(fitting) < len(result.rows)
    for kind in ("json", "html"):
        assert {path.stem for path in Path(plans).glob(f"*.{kind}")} == set(fitting)
    for name, cell in fitting.items():
        plan = read_plan(f"{plans}/{name}.json")
        assert (plan.fingerprint, plan.ranks) == (cell.key, cell.world_size)
        assert plan.notes["sku"] == "tight"


def test_the_page_shows_the_plan_of_each_cell_and_links_to_its_files(tmp_path: Path) -> None:
    result, plans = planned(tmp_path)
    data = page_data(result, {"h100": 2.5}, plans, str(tmp_path / "page.html"))
    for cell, each in zip(data["cells"], result.rows, strict=True):
        assert cell["rating"] == each.rating
        assert cell["per_hour"] == 2.5 * each.world_size
        assert {table["name"] for table in cell["plan"]["tables"]} == {"users", "items"}
        assert max(cell["plan"]["loads"]) == pytest.approx(each.rating, rel=1e-5)
        for link in (cell["file"], cell["page"]):
            assert link.startswith("page_plans/")
            assert (tmp_path / link).exists()


def test_of_very_many_cells_only_the_first_plans_are_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, plans = planned(tmp_path)
    monkeypatch.setattr("fastplan.sweep.html._MOST_DETAILS", 1)
    first, second = page_data(result, None, plans, str(tmp_path / "page.html"))["cells"]
    assert first["plan"] is not None
    assert "plan" not in second
    assert second["page"]


def test_many_ranks_share_a_bar_that_shows_the_worst_of_them(tmp_path: Path) -> None:
    result, plans = planned(tmp_path, world_sizes=(256,))
    [cell] = page_data(result, None, plans)["cells"]
    assert len(cell["plan"]["loads"]) == 64
    assert max(cell["plan"]["loads"]) == pytest.approx(cell["rating"], rel=1e-5)


def test_known_rows_are_planned_again_only_if_their_plan_is_not_there(tmp_path: Path) -> None:
    results, plans = tmp_path / "r.jsonl", tmp_path / "plans"
    run_sweep(sweep(), executor=Inline(), results=results)
    again = run_sweep(sweep(), executor=Inline(), results=results, plans=plans)
    assert again.known == 0
    assert len(ResultsFile(results).read()) == 2
    third = run_sweep(sweep(), executor=Inline(), results=results, plans=plans)
    assert third.known == 2
    next(plans.glob("*.json")).unlink()
    assert run_sweep(sweep(), executor=Inline(), results=results, plans=plans).known == 1


def test_a_full_disk_does_not_fail_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fastplan.sweep.plan_files.write_files", full)
    result, plans = planned(tmp_path)
    assert [each.fits for each in result.rows] == [True, True]
    assert all("plan" not in cell for cell in page_data(result, None, plans)["cells"])


def test_a_damaged_plan_file_leaves_a_cell_without_tables(tmp_path: Path) -> None:
    result, plans = planned(tmp_path)
    for path in Path(plans).glob("*.json"):
        path.write_text("{")
    assert [cell["plan"] for cell in page_data(result, None, plans)["cells"]] == [None, None]


def test_names_cannot_end_the_script_or_turn_the_text(tmp_path: Path) -> None:
    page = sweep_page(SweepResult(rows=(row(model=NASTY, sku=NASTY), failure(error=NASTY))))
    assert "<b>" not in page
    assert "\u202e" not in page
    assert page.count("</script>") == 2


def test_a_reader_without_scripts_gets_the_text_line_by_line() -> None:
    result = SweepResult(rows=(row(model=f"a\n{NASTY}"), failure(error=NASTY)))
    assert Page(sweep_page(result)).text_of("pre") == "\n".join(summary(result))


def test_cells_without_a_plan_say_why() -> None:
    rows = (unfit(), failure(id="2" * 20))
    data = page_data(SweepResult(rows=rows))
    assert [cell["fits"] for cell in data["cells"]] == [False, None]
    assert "more HBM" in data["cells"][0]["shortage"]
    assert data["cells"][1]["error"] == "it went wrong"
    assert "No cell has a plan" in sweep_page(SweepResult(rows=rows))


def test_the_sentence_names_the_smallest_and_the_fastest_cluster() -> None:
    rows = (
        row(id="1" * 20, world_size=8, rating=4.0),
        row(id="2" * 20, world_size=16, rating=2.0),
        row(id="3" * 20, world_size=32, rating=2.0),
    )
    page = sweep_page(SweepResult(rows=rows))
    assert "The smallest cluster that fits is 8 x h100 in fp32, with 4.000 ms." in page
    assert "The fastest is 16 x h100 in fp32, with 2.000 ms (2 clusters tie)." in page


def test_predicted_steps_are_shown_instead_of_ratings() -> None:
    data = page_data(SweepResult(rows=(row(step=3.0, rating=10.0),)))
    assert (data["measure"], data["cells"][0]["time"]) == ("step", 3.0)


def test_a_page_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    counted: list[int] = []
    result = SweepResult(rows=(row(), unfit(id="2" * 20)))
    write_page(result, str(path), progress=lambda: counted.append(1))
    assert len(counted) == 2
    text = path.read_text()
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    data = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
    assert len(data["cells"]) == 2
