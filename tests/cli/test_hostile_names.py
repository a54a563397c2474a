"""Names from files and models reach a terminal as text that can't move its cursor or hide."""

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import DirectoryStore
from fastplan.cli.main import main
from fastplan.cli.output import report_interrupt
from fastplan.plans.file import write_plan
from fastplan.profile import run as profiling
from fastplan.sweep import run
from tests.ett.runs import Rank
from tests.measure import samples

EVIL = "t\x1b]0;owned\x07\x1b[2J\x1b[8m\r\u202e\x9b1m\x7f"
# What a terminal obeys, or what turns text around.
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
SPEC = {
    "model": f"model {EVIL}",
    "batch_size": 512,
    "tables": [
        {"name": f"{EVIL}{i}", "rows": 200_000 * (i + 1), "dim": 64, "pooling": 20}
        for i in range(6)
    ],
}


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(SPEC))
    return str(path)


@pytest.fixture
def say(capsys):
    """Runs a command; its output must have the name, and nothing that a terminal obeys."""

    def run(*words, code=0, named=True):
        assert main(words) == code, capsys.readouterr().err
        out, err = capsys.readouterr()
        for text in (out, err):
            assert not OBEYED.search(text), ascii(OBEYED.search(text)[0])
        assert ("owned" in out + err) == named
        return out, err

    return run


def made(spec, *words):
    return ("plan", spec, "--sku", "h100", *words)


def test_a_plan_that_fits_and_one_that_does_not(spec, say, tmp_path):
    say(*made(spec, "--world-size", "8"))
    big = json.loads(Path(spec).read_text())
    for table in big["tables"]:
        table["rows"] *= 100_000
    (tmp_path / "big.json").write_text(json.dumps(big))
    out, _ = say(*made(str(tmp_path / "big.json"), "--world-size", "8"), code=2)
    assert "fits" in out


def test_a_plan_that_follows_another(spec, say, tmp_path):
    old = str(tmp_path / "old.json")
    say(*made(spec, "--world-size", "8", "-o", old, "--quiet"), named=False)
    grown = json.loads(Path(spec).read_text())
    grown["tables"] = [*grown["tables"][1:], {**grown["tables"][0], "name": f"new {EVIL}"}]
    grown["tables"][0]["rows"] *= 3
    (tmp_path / "grown.json").write_text(json.dumps(grown))
    out, _ = say(*made(str(tmp_path / "grown.json"), "--world-size", "16", "--previous", old))
    assert "since the previous plan" in out


def test_plans_that_are_looked_at(spec, say, tmp_path):
    files = [str(tmp_path / f"{ranks}.json") for ranks in (8, 16)]
    for ranks, file in zip((8, 16), files, strict=True):
        say(*made(spec, "--world-size", str(ranks), "-o", file, "--quiet"), named=False)
    say("inspect", files[0], "--tables")
    say("compare", *files, "--tables", "--force", code=2)
    say("compare", *files, "--json", "--force", code=2)


def test_a_cache_that_is_looked_at(spec, say, tmp_path):
    cache = tmp_path / "plans"
    say(*made(spec, "--world-size", "8", "--cache", str(cache)))
    out, _ = say("cache", "ls", "--cache", str(cache), "--json")
    (key,) = {entry["key"] for entry in json.loads(out)["entries"]}
    say("cache", "ls", "--cache", str(cache))
    say("cache", "show", key, "--cache", str(cache))
    out, _ = say("cache", "show", key, "--cache", str(cache), "--request")
    assert json.loads(out)
    say(*made(spec, "--world-size", "16", "--cache", str(cache)))
    say("cache", "why-miss", key, "--cache", str(cache), named=False)


def test_a_request_that_is_not_what_fastplan_writes(spec, say, tmp_path):
    store = DirectoryStore(tmp_path / "plans")
    say(*made(spec, "--world-size", "8", "--cache", str(tmp_path / "plans")))
    (stored,) = store.entries()
    ((name, data),) = store.read(stored.key)
    entry = decode(data)
    hostile = f'{{"ranks": "{EVIL}"}}'.encode()
    store.write(stored.key, name, encode(replace(entry, request=zlib.compress(hostile))))
    say("cache", "show", stored.key, "--cache", str(tmp_path / "plans"), "--request")


def test_a_cache_in_a_directory_with_a_hostile_name(spec, say, tmp_path):
    cache = str(tmp_path / f"plans {EVIL}")
    say("cache", "ls", "--cache", cache, code=1)
    say(*made(spec, "--world-size", "8", "--cache", cache))
    (tmp_path / f"plans {EVIL}" / "ab" / ("ab" * 20)).mkdir(parents=True)
    planted = tmp_path / f"plans {EVIL}" / "ab" / ("ab" * 20) / "a.plan"
    planted.write_bytes(b"garbage")
    for words in (
        *(("ls",), ("ls", "--json"), ("prune", "--all", "--dry-run"), ("prune", "--all")),
        ("ls",),
    ):
        say("cache", *words, "--cache", cache)
    say("cache", "show", "ab", "--cache", cache, code=1)


def test_a_cache_that_fails(spec, say, tmp_path, caplog):
    (tmp_path / f"plans {EVIL}").write_text("in the way")
    _, err = say(*made(spec, "--world-size", "8", "--cache", str(tmp_path / f"plans {EVIL}")))
    assert "the cache failed" in err
    assert "the plan cache failed, planning continues" in caplog.text
    assert not OBEYED.search(caplog.text)


def test_an_interrupt(say, capsys):
    report_interrupt(f"; the state is in {EVIL}")
    _, err = capsys.readouterr()
    assert not OBEYED.search(err.replace("\n", ""))
    assert "owned" in err


def test_errors_and_where_they_come_from(spec, say, tmp_path):
    wrong = json.loads(Path(spec).read_text())
    wrong["tables"][0]["dim"] = EVIL
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    words = made(str(tmp_path / "wrong.json"), "--world-size", "8")
    say(*words, code=1)
    _, err = say(*words, "--debug", code=1)
    assert "Traceback" in err


def test_a_plan_file_that_is_refused(spec, say, tmp_path):
    file = tmp_path / "plan.json"
    say(*made(spec, "--world-size", "8", "-o", str(file), "--quiet"), named=False)
    content = json.loads(file.read_text())
    content["modules"][EVIL] = content["modules"].pop("ebc")
    file.write_text(json.dumps(content))
    say("inspect", str(file), code=1)


def test_a_sweep(spec, say, tmp_path):
    sweep = {"models": [spec], "skus": ["h100"], "world_sizes": [8, 16]}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    command = ("precompute", str(tmp_path / "sweep.json"), "--no-cache", "--jobs", "1")
    for words in ((), ("--json",), ("--csv",), ("--smallest",)):
        say(*command, *words)
    say(*command, "--dry-run", named=False)  # it is too long for the table


def test_a_record_of_a_job(say, tmp_path):
    rank = Rank(tmp_path / "runs")
    rank.do(EVIL, 5.0, engine=EVIL).do("plan", 3.0, engine=EVIL, cache=EVIL, parts={EVIL: 1.0})
    rank.steps(0, 5, 1.0).short(EVIL, 0.5).steps(6, 9, 1.0)
    rank.recorder.failure(EVIL)
    rank.recorder.stop()
    say("ett", "report", str(tmp_path / "runs"))
    say("ett", "report", str(tmp_path / "runs"), "--json")
    say("ett", "diff", str(tmp_path / "runs"), str(tmp_path / "runs"))


def test_a_fleet_with_bad_links(say, tmp_path):
    pytest.importorskip("duckdb")
    for side in ("before", "after"):
        for number in range(4):
            rank = Rank(tmp_path / side / f"{number} {EVIL}")
            rank.do(EVIL, 5.0).steps(0, 5, 1.0).recorder.failure(EVIL)
            rank.recorder.stop()
        (tmp_path / side / EVIL).symlink_to(EVIL)
    before, after, memory = str(tmp_path / "before"), str(tmp_path / "after"), ("--db", ":memory:")
    say("ett", "fleet", before, *memory, "--path-labels", "{team}", "--by", "team")
    say("ett", "fleet", before, *memory, "--where", EVIL, code=1)
    say("ett", "gate", before, after, *memory, "--phase", EVIL)


@pytest.mark.parametrize("given", ["--results", "--cache"])
def test_a_sweep_that_is_interrupted(spec, say, tmp_path, monkeypatch, given):
    sweep = {"models": [spec], "skus": ["h100"], "world_sizes": [8]}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    monkeypatch.setattr(run, "run_sweep", interrupted)
    say("precompute", str(tmp_path / "sweep.json"), given, str(tmp_path / EVIL), code=130)


def test_a_profile_that_is_interrupted(spec, say, tmp_path, monkeypatch):
    monkeypatch.setattr(profiling, "profile_files", interrupted)
    (tmp_path / "ids.npz").touch()
    state = ("--state", str(tmp_path / EVIL), "-o", str(tmp_path / "ids.json"))
    say("profile", spec, str(tmp_path / "ids.npz"), *state, code=130)


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_files_that_are_written(spec, say, tmp_path):
    plan = str(tmp_path / "plan.json")
    say(*made(spec, "--world-size", "8", "-o", plan, "--quiet"), named=False)
    out, _ = say("convert", plan, "-o", str(tmp_path / f"o {EVIL}"))
    assert "written: " in out
    say("bundle", "save", "-o", str(tmp_path / f"b {EVIL}"), "--plans", plan)
    say("inspect", plan, "--html", str(tmp_path / f"h {EVIL}"))


def test_measurements(say, tmp_path):
    given = samples.spec()
    plans = {kind: samples.planned(given, kind) for kind in ("table_wise", "row_wise")}
    seconds = {"table_wise": 0.01, "row_wise": 0.02}
    samples.write_runs(tmp_path / "runs", plans, seconds, model=EVIL, device=EVIL)
    for kind, plan in plans.items():
        write_plan(plan, tmp_path / f"{kind}.json")
    files = [str(tmp_path / f"{kind}.json") for kind in plans]
    say("compare", *files, "--measured", str(tmp_path / "runs"), code=2)
