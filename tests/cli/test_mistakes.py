"""Mistakes that people make: each is told in one line, by the name of the thing, with a way out."""

import json
import re
import sys

import pytest

from tests.cli.command import call

SPEC = "model: dlrm\ntables:\n  - {name: users, rows: 4M, dim: 128}\n"
ON_H100 = ("--sku", "h100", "--world-size", "8")
ONE_RANK = {"sharding_types": "table_wise", "compute_kernels": "fused"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(SPEC)
    (tmp_path / "spec.json").write_text('{"model": "dlrm", "tables": []}')
    for suffix in ("", ".yaml"):
        (tmp_path / f"folder{suffix}").mkdir()
        (tmp_path / f"empty{suffix}").touch()
        (tmp_path / f"binary{suffix}").write_bytes(bytes(range(128, 256)))
    return tmp_path


@pytest.fixture
def plan(capsys):
    assert call(capsys, "plan", "model.yaml", *ON_H100, "--quiet", "-o", "plan.json")[0] == 0
    return "plan.json"


def refused(capsys, *words):
    code, out, error = call(capsys, *words)
    assert (code, out) == (1, "")
    assert error.startswith("fastplan: error: ") and error.count("\n") == 1
    return error.removeprefix("fastplan: error: ").rstrip("\n")


COMMANDS = {
    "spec": ("plan", "{}", *ON_H100),
    "previous": ("plan", "model.yaml", *ON_H100, "--previous", "{}"),
    "sku": ("plan", "model.yaml", "--sku", "{}.yaml:mine", "--world-size", "8"),
    "sweep": ("precompute", "{}", "--no-cache"),
    "plan": ("inspect", "{}"),
    "compared": ("compare", "{}", "{}"),
    "measured": ("compare", "{}", "{}", "--measured", "{}"),
    "converted": ("convert", "{}", "-o", "new"),
    "bundle": ("bundle", "show", "{}"),
    "bundled": ("bundle", "save", "-o", "new", "--plans", "{}"),
    "records": ("ett", "report", "{}"),
}


@pytest.mark.parametrize("name", ["missing", "empty", "binary", "folder"])
@pytest.mark.parametrize("what", COMMANDS)
def test_a_file_that_is_none_is_named(capsys, what, name):
    assert name in refused(capsys, *(word.format(name) for word in COMMANDS[what]))


@pytest.mark.parametrize("what", ["spec", "previous", "sweep", "plan", "compared"])
def test_an_empty_file_is_called_empty(capsys, what):
    told = refused(capsys, *(word.format("empty") for word in COMMANDS[what]))
    assert re.match("empty:(1:)? is empty", told)


def test_a_plan_is_no_spec(capsys, plan):
    told = refused(capsys, "plan", plan, *ON_H100)
    assert told == ("plan.json: is a plan file, not a spec; `fastplan inspect` shows plans")


@pytest.mark.parametrize("name", ["model.yaml", "spec.json"])
def test_a_spec_is_no_plan(capsys, name):
    told = refused(capsys, "inspect", name)
    assert told == f"{name}: is a spec file, not a plan; `fastplan plan` creates a plan from it"


def test_a_file_is_no_folder_of_measurements_or_records(capsys, plan):
    told = refused(capsys, "compare", plan, plan, "--measured", plan)
    assert told == "plan.json has no measurement; pass the folder that `fastplan measure -o` wrote"
    told = refused(capsys, "ett", "report", plan)
    assert told == "plan.json: a file; give the directory of all records, ."


def test_artifacts_without_anything_in_them_are_refused(capsys, plan):
    told = refused(capsys, "bundle", "save", "-o", "b", "--plans", plan, "--artifacts", "empty")
    assert told.startswith("empty: is empty;")


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(
    "words",
    [
        ("plan", "model.yaml", *ON_H100),
        ("precompute", "sweep.yaml"),
        ("cache", "prune", "--all"),
        ("cache", "ls"),
        ("bundle", "load", "start.bundle"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_empty_cache_is_not_the_usual_one(capsys, words, value):
    told = refused(capsys, *words, "--cache", value)
    assert told.startswith(
        "argument --cache: is empty; give a directory or URL, or omit the option for the "
        "default cache (see `fastplan "
    )


def test_options_that_do_not_exist_lead_to_those_that_do(capsys):
    told = refused(capsys, "plan", "model.yaml", "--worldsize", "8")
    assert told.startswith("unknown argument `--worldsize`; did you mean `--world-size`?")
    told = refused(capsys, "plan", "model.yaml", "--precision", "fp8")
    assert told.startswith("unknown --precision `fp8`: did you mean")


def test_a_table_that_is_not_there_leads_to_those_that_are(capsys):
    told = refused(capsys, "plan", "model.yaml", *ON_H100, "--optimize", "--pin", "items=0")
    assert told == "there is no table items; there are users"


def test_a_table_too_large_for_any_rank_is_named_with_the_way_out(capsys, folder):
    tables = [
        {"name": "big", "rows": "2B", "dim": 128, **ONE_RANK},
        {"name": "b", "rows": 9, "dim": 4},
    ]
    (folder / "big.json").write_text(json.dumps({"model": "m", "tables": tables}))
    code, out, _ = call(capsys, "plan", "big.json", *ON_H100)
    assert code == 2
    assert out.startswith("m: no plan of 2 tables fits on 8 ranks: about ")
    assert (
        "of table big in HBM, and a rank has 68.0 GiB there: allow that table sharding types that "
        "split it, or kernels in host memory.\n"
    ) in out


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ({}, " there.\n"),
        (ONE_RANK, " there: allow that table sharding types that split it, or kernels in host mem"),
        (
            {"sharding_types": "table_wise"},
            " there: allow that table sharding types that split it.\n",
        ),
    ],
    ids=["free", "one rank of HBM", "one rank"],
)
def test_only_what_is_forbidden_is_advised_to_be_allowed(capsys, folder, limits, advice):
    table = {"name": "big", "rows": "200B", "dim": 128, **limits}
    (folder / "big.json").write_text(json.dumps({"model": "m", "tables": [table]}))
    code, out, _ = call(capsys, "plan", "big.json", *ON_H100)
    assert code == 2
    assert re.search(r"of table big in (HBM|DDR), and a rank has \S+ GiB" + re.escape(advice), out)


@pytest.mark.parametrize("module", ["torch", "fbgemm_gpu", "torchrec"])
def test_ranks_are_not_started_without_what_they_need(capsys, monkeypatch, plan, module):
    monkeypatch.setitem(sys.modules, module, None)
    told = refused(capsys, "measure", "model.yaml", plan, "--nproc", "8", "-o", "runs")
    assert told == f"ranks need {module}, which is not installed; `fastplan doctor` shows how"


def test_a_module_without_a_function_leads_to_how_one_is_named(capsys):
    told = refused(capsys, "plan", "mypkg.models", *ON_H100)
    assert told.startswith("mypkg.models: no such file; ")
    assert told.endswith("package.module:function, such as mypkg.models:build")
    told = refused(capsys, "plan", "none.yaml", *ON_H100)
    assert told == "none.yaml: can't be read: No such file or directory"


def test_a_table_beyond_64_bits_is_named_with_its_line(capsys, folder):
    (folder / "huge.yaml").write_text(
        "model: m\ntables:\n  - {name: u, rows: 9000000000B, dim: 64}\n"
    )
    told = refused(capsys, "plan", "huge.yaml", *ON_H100)
    assert told.startswith("huge.yaml:3: tables[0].rows: table 'u' is too large: ")


def test_a_misspelt_sku_leads_to_the_one_that_it_begins_with(capsys):
    told = refused(capsys, "plan", "model.yaml", "--sku", "h1000", "--world-size", "8")
    assert "(did you mean h100?)" in told


def test_one_table_is_one(capsys, plan):
    assert call(capsys, "convert", plan, "-o", "other.json")[1] == "written: other.json (1 table)\n"


# A name with bytes that are not UTF-8, as Python reads it from the command line.
BYTES = "x\udcff\udcfe"
SWEEP = {"models": ["model.yaml"], "skus": ["h100"], "world_sizes": [8]}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("precompute", "sweep.json", "--no-cache", "--html", BYTES), "argument --html"),
        (("ett", "fleet", "runs", "--db", ":memory:", "--html", BYTES), "argument --html"),
        (("ett", "fleet", "runs", "--db", BYTES), "argument --db"),
        (("ett", "fleet", BYTES, "--db", ":memory:"), "argument PATH"),
        (("ett", "gate", BYTES, "runs", "--db", ":memory:"), "argument BEFORE"),
        (("ett", "gate", "runs", BYTES, "--db", ":memory:"), "argument AFTER"),
        (("ett", "fleet", "runs"), "FASTPLAN_FLEET"),
    ],
)
def test_a_name_that_is_not_utf8_is_refused_where_pages_or_databases_hold_it(
    capsys, monkeypatch, folder, words, named
):
    (folder / "sweep.json").write_text(json.dumps(SWEEP))
    monkeypatch.setenv("FASTPLAN_FLEET", BYTES)
    told = refused(capsys, *words)
    assert told.startswith(f"{named}: must be a name in UTF-8, not 'x\\udcff\\udcfe'; rename it")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such file names")
def test_a_name_that_is_not_utf8_works_for_all_else(capsys, folder):
    for words in (
        ("plan", "model.yaml", *ON_H100, "-o", BYTES, "--html", f"{BYTES}.html"),
        ("inspect", BYTES, "--html", f"{BYTES}.html"),
        ("compare", BYTES, BYTES, "--html", f"{BYTES}.html"),
        ("cache", "ls", "--cache", "."),
    ):
        assert call(capsys, *words)[0] == 0


def test_a_key_of_the_cache_may_have_any_bytes(capsys, monkeypatch, folder):
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", 8 * BYTES)
    words = ("plan", "model.yaml", *ON_H100, "--cache", "plans", "--quiet")
    assert call(capsys, *words) == (0, "", "")
    monkeypatch.setenv("FASTPLAN_CACHE_KEY", BYTES)
    told = refused(capsys, *words)
    assert told == "FASTPLAN_CACHE_KEY: `key` must have at least 16 bytes, not 3"
