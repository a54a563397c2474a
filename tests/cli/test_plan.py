"""`fastplan plan`, `export`, `inspect`, `compare` and `skus`, as a user runs them."""

import json
import subprocess
import sys

import pytest

from fastplan.cli.main import main

SPEC = """
model: dlrm
batch_size: 4096
tables:
  - {name: t0, rows: 40M, dim: 128, pooling: 3}
  - {name: t1, rows: 4M, dim: 64, pooling: 30}
"""


def plan(spec, *words):
    return main(("plan", spec, "--sku", "h100", *words))


def printed_error(capsys):
    return capsys.readouterr().err


def test_plans_are_shown_and_written(spec, tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("plan.json", "plan.html")]
    assert plan(spec, "--world-size", "16", "-o", files[0], "--html", files[1]) == 0
    out = capsys.readouterr().out
    assert "2 tables, 20.0 GiB of weights, 16 ranks (2 hosts x 8), h100" in out
    assert f"written: {files[0]}, {files[1]}" in out
    assert main(("inspect", files[0])) == 0
    # The same page, but for where it says what was written.
    assert capsys.readouterr().out == out.partition("\nwritten")[0]
    with open(files[1]) as stream:
        assert stream.read().startswith("<!doctype html>")


def test_a_cache_is_filled_and_hit(spec, tmp_path, capsys):
    words = ("--world-size", "8", "--cache", str(tmp_path / "plans"), "--json")
    found = []
    for _ in range(2):
        assert plan(spec, *words) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [each["notes"]["cache"] for each in found] == ["miss", "hit"]
    assert found[0]["rating"] == found[1]["rating"]


def test_a_broken_cache_costs_a_warning(spec, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert plan(spec, "--world-size", "8", "--cache", str(tmp_path / "file"), "--quiet") == 0
    assert "warning: the cache failed" in printed_error(capsys)


def test_too_large_a_model(tmp_path, capsys):
    file = tmp_path / "big.json"
    table = {"name": "t", "rows": "2B", "dim": 128, "compute_kernels": "fused"}
    file.write_text(json.dumps({"model": "big", "tables": [table]}))
    words = ("plan", str(file), "--sku", "h100", "--world-size", "8")
    assert main(words) == 2
    out = capsys.readouterr().out
    assert "no plan of 1 table fits on 8 ranks: about" in out and "more HBM on every rank" in out
    assert "of table t" in out
    assert main((*words, "--json")) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is False
    assert (found["tier"], found["headroom_bytes"] < 0) == ("hbm", True)
    assert main((*words[:-1], "32")) == 0


@pytest.mark.parametrize(
    ("memory", "field"),
    [
        ({"ssd": 1 << 60}, "topology.ssd"),
        ({"ddr": (1 << 63) - 1}, "topology.ddr"),
        ({"rank_hbm": [1 << 61] + [1 << 30] * 7}, "topology.rank_hbm"),
    ],
)
def test_memory_beyond_what_can_be_added_up(tmp_path, capsys, memory, field):
    file = tmp_path / "spec.json"
    topology = {"world_size": 8, "local_world_size": 8, "hbm": "80GiB", **memory}
    tables = [{"name": "t", "rows": 1000, "dim": 64}]
    file.write_text(json.dumps({"model": "m", "tables": tables, "topology": topology}))
    assert main(("plan", str(file))) == 1
    error = printed_error(capsys)
    assert f"`{field}`" in error and "less than 256 PiB" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["float16", "half", "torch.float16", "fp16"])
def test_precisions_have_the_names_of_pytorch_too(spec, capsys, name):
    assert plan(spec, "--world-size", "8", "--precision", name, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert plan(spec, "--world-size", "8", "--precision", "fp16", "--json") == 0
    assert found["fingerprint"] == json.loads(capsys.readouterr().out)["fingerprint"]


def test_a_batch_that_leaves_no_memory(spec, capsys):
    assert plan(spec, "--world-size", "8", "--batch-size", "100000000") == 2
    assert "the reservation leaves -" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--world-size", "0"), "--world-size must be from 1 to 1048576, not 0"),
        (("--world-size", "100000000"), "--world-size must be from 1 to 1048576, not 100000000"),
        (("--local-world-size", "1048577"), "--local-world-size must be from 1 to 1048576"),
        (("--batch-size", "1099511627777"), "--batch-size must be from 1 to 1099511627776"),
        ((), "the number of ranks is missing: give `--world-size` on a command line"),
        ((), "`world_size` in Python, or `topology.world_size` in the spec"),
        (
            ("--world-size", "8", "--local-world-size", "3"),
            "--local-world-size 3: 8 ranks do not fill hosts of 3; --world-size must be a multiple "
            "of it, such as 6",
        ),
        (("--world-size", "2", "--local-world-size", "8"), "2 ranks do not fill hosts of 8"),
        (("--world-size", "12"), "do not fill hosts of 8"),
        (("--world-size", "12"), "the ranks per host: `--local-world-size` on a command line"),
        (("--world-size", "8", "--torchrec", "1.7"), "must be one of 1.8.0, 1.9.2"),
        (("--world-size", "8", "--sku", "h1000"), "h100"),
    ],
)
def test_clusters_that_make_no_sense(spec, capsys, words, message):
    assert plan(spec, *words) == 1
    assert message in printed_error(capsys)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_package:build", "no_such_package can't be imported"),
        ("tests.cli.models:nowhere", "has no 'nowhere'"),
        ("tests.cli.models:raises", "tests.cli.models:raises() raised RuntimeError: no data here"),
        ("tests.cli.models:nothing", "returned NoneType; it must return the module"),
        ("tests.cli.models:too_much", "returned tuple"),
        ("tests.cli.models:not_a_function", "is a int, not a function"),
        ("missing.yaml", "missing.yaml: can't be read"),
    ],
)
@pytest.mark.needs("torchrec")
def test_models_that_are_none(capsys, target, message):
    assert main(("plan", target, "--world-size", "8")) == 1
    error = printed_error(capsys)
    assert message in error
    assert "Traceback" not in error


@pytest.mark.needs("torchrec")
def test_a_real_model_and_its_export_plan_alike(tmp_path, capsys):
    target = "tests.cli.models:with_constraints"
    file = str(tmp_path / "model.yaml")
    assert main(("export", target, "--batch-size", "2048", "-o", file)) == 0
    assert "4 tables" in capsys.readouterr().out
    results = []
    for model in (target, file):
        words = ("--sku", "a100-80", "--world-size", "16", "--batch-size", "2048", "--json")
        assert main(("plan", model, *words)) == 0
        results.append(json.loads(capsys.readouterr().out))
    first, second = results
    assert first["fingerprint"] == second["fingerprint"]
    assert first["rating"] == second["rating"]
    assert first["tables"] == second["tables"]
    by_name = {table["name"]: table for table in first["tables"]}
    assert by_name["t0"]["sharding_type"] == "row_wise"


NOISY = """
import fastplan
from tests.cli.models import EmbeddingBagCollectionSharder, module
print("imported")

class Sharder(EmbeddingBagCollectionSharder):
    def sharding_types(self, kind):
        print("asked")
        return super().sharding_types(kind)

def build():
    print("called")
    return module(), [Sharder()]

@fastplan.shard_cost
def cost(shard, out):
    out.fwd_compute = shard.stock.fwd_compute
"""


@pytest.fixture
def noisy(tmp_path, monkeypatch):
    (tmp_path / "noisy_model.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "noisy_model"
    sys.modules.pop("noisy_model", None)


@pytest.mark.needs("torchrec")
def test_what_a_users_module_prints_is_kept_out_of_the_output(noisy, spec, tmp_path, capsys):
    words = ("--sku", "h100", "--world-size", "8")
    assert main(("plan", f"{noisy}:build", *words, "--json")) == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["fits"] is True
    assert {"imported", "called", "asked"} <= set(error.splitlines())
    assert main(("export", f"{noisy}:build")) == 0
    (tmp_path / "exported.yaml").write_text(capsys.readouterr().out)
    assert main(("plan", str(tmp_path / "exported.yaml"), *words)) == 0


@pytest.mark.needs("numba")
def test_what_the_module_of_a_cost_prints_is_kept_out_too(noisy, spec, capsys):
    words = ("--sku", "h100", "--world-size", "8", "--cost", f"{noisy}:cost", "--json")
    assert main(("plan", spec, *words)) == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["fits"] is True
    assert error == "imported\n"


@pytest.mark.needs("torchrec")
def test_an_export_is_a_spec_that_can_be_planned(tmp_path, capsys):
    target, file = "tests.cli.models:module", str(tmp_path / "model.yaml")
    assert main(("export", target, "--world-size", "12", "-o", file)) == 1
    assert "12 ranks do not fill hosts of 8" in printed_error(capsys)
    assert not (tmp_path / "model.yaml").exists()
    words = ("--world-size", "12", "--local-world-size", "4", "-o", file)
    assert main(("export", target, *words)) == 0
    assert main(("plan", file, "--quiet")) == 0


def test_exports_are_of_functions(capsys):
    assert main(("export", "model.yaml")) == 1
    assert "not package.module:function" in printed_error(capsys)


@pytest.mark.needs("torchrec")
def test_an_export_to_the_screen_is_a_spec(capsys):
    assert main(("export", "tests.cli.models:module")) == 0
    assert capsys.readouterr().out.startswith("model: ")


def test_comparing(spec, tmp_path, capsys):
    files = {}
    for batch, ranks in ((4096, 8), (4096, 16), (16384, 8)):
        files[batch, ranks] = str(tmp_path / f"{batch}-{ranks}.json")
        words = ("--world-size", str(ranks), "--batch-size", str(batch), "--quiet")
        assert plan(spec, *words, "-o", files[batch, ranks]) == 0
    first, other_ranks, other_batch = files.values()
    assert main(("compare", first, first)) == 0
    assert main(("compare", first, other_ranks)) == 1
    assert "different models or clusters" in printed_error(capsys)
    page = str(tmp_path / "page.html")
    assert main(("compare", first, other_ranks, "--force", "--html", page)) == 2
    out = capsys.readouterr().out
    assert "re-sharded" in out and f"written: {page}" in out
    assert main(("compare", first, other_ranks, other_batch, "--force", "--json")) == 2
    assert json.loads(capsys.readouterr().out)
    assert main(("compare", first)) == 1
    assert "two plans or more" in printed_error(capsys)


def test_inspecting_writes_a_page_and_prints_the_plan(spec, tmp_path, capsys):
    file, page = str(tmp_path / "plan.json"), tmp_path / "page.html"
    assert plan(spec, "--world-size", "8", "--quiet", "-o", file) == 0
    assert main(("inspect", file, "--json", "--html", str(page))) == 0
    assert json.loads(capsys.readouterr().out)["tables"]
    assert page.read_text().startswith("<!doctype html>")
    assert main(("inspect", file, "--html", str(page))) == 0
    out = capsys.readouterr().out
    assert "2 tables" in out and out.endswith(f"\nwritten: {page}\n")


@pytest.mark.needs("torchrec")
def test_converting(spec, tmp_path, capsys):
    first = str(tmp_path / "plan.json")
    assert plan(spec, "--world-size", "8", "--quiet", "-o", first) == 0
    for format, trust in (("torcheasyrec", ()), ("pickle", ("--trust-pickle",))):
        other, back = str(tmp_path / format), str(tmp_path / f"{format}.json")
        assert main(("convert", first, "-o", other, "--to", format)) == 0
        assert main(("convert", other, "-o", back, *trust)) == 0
        assert main(("inspect", back)) == 0
        assert main(("compare", back, other, *trust)) == 0
    assert main(("convert", str(tmp_path / "pickle"), "-o", back)) == 1
    assert "--trust-pickle" in printed_error(capsys)


def test_the_formats_are_those_that_can_be_written():
    from fastplan.cli.plans import FORMATS
    from fastplan.plans.foreign import WRITABLE

    assert FORMATS == WRITABLE


def test_files_that_are_no_plans(tmp_path, capsys):
    file = tmp_path / "plan.json"
    file.write_text("{}")
    assert main(("inspect", str(file))) == 1
    assert str(file) in printed_error(capsys)
    assert main(("inspect", str(tmp_path / "none.json"))) == 1
    assert "No such file" in printed_error(capsys)


def test_skus(capsys, tmp_path):
    assert main(("skus",)) == 0
    out = capsys.readouterr().out
    assert "h100" in out
    assert "More with `fastplan skus NAME`" in out
    assert main(("skus", "gb200", "--json")) == 0
    assert json.loads(capsys.readouterr().out)[0]["pod_size"] == 18
    assert main(("skus", "h100")) == 0
    out = capsys.readouterr().out
    assert "More with" not in out
    shown = {line.split()[0]: line.split()[1] for line in out.splitlines()[5:]}
    assert shown["ddr_mem_bw"] == "76.8"
    assert {"hbm_mem_bw", "ssd", "hbm_to_ddr_mem_bw", "price"} <= shown.keys()


def test_specs_and_plans_need_no_torch(spec, tmp_path):
    file = str(tmp_path / "plan.json")
    lines = [
        "import sys",
        "from fastplan.cli.main import main",
        f"main(('plan', {spec!r}, '--sku', 'h100', '--world-size', '8', '-o', {file!r}))",
        f"main(('inspect', {file!r}, '--html', {file + '.html'!r}))",
        f"main(('compare', {file!r}, {file!r}))",
        "print([name for name in ('torch', 'torchrec', 'numba') if name in sys.modules])",
    ]
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_previous_plan_is_followed_and_its_moves_are_shown(spec, tmp_path, capsys):
    file = str(tmp_path / "old.json")
    assert plan(spec, "--world-size", "16", "-o", file, "--quiet") == 0
    words = ("--world-size", "8", "--previous", file, "--max-moved", "50%", "--slack", "50%")
    assert plan(spec, *words) == 0
    out = capsys.readouterr().out
    assert "8 ranks lost" in out
    assert "plan: follows the previous plan" in out
    assert "moves: " in out
    assert "> " in out
    assert plan(spec, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)["replan"]
    assert found["moved"] == sum(move["bytes"] for move in found["moves"])


def test_a_better_plan_is_the_reference_of_one_that_follows(spec, tmp_path, capsys):
    file, better = str(tmp_path / "old.json"), str(tmp_path / "better.json")
    effort = ("--optimize", "--move-budget", "20000")
    assert plan(spec, "--world-size", "8", "-o", file, "--quiet") == 0
    assert plan(spec, "--world-size", "8", *effort, "-o", better, "--json") == 0
    reference = json.loads(capsys.readouterr().out)
    assert plan(spec, "--world-size", "8", "--previous", file, *effort, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["replan"]["scratch_rating"] == reference["rating"]
    assert found["lower_bound"] == reference["lower_bound"]
    assert found["fingerprint"] != reference["fingerprint"]


def test_a_plan_that_follows_is_kept_in_the_cache(spec, tmp_path, capsys):
    file, cache = str(tmp_path / "old.json"), ("--cache", str(tmp_path / "plans"))
    assert plan(spec, "--world-size", "16", "-o", file, "--quiet") == 0
    words = ("--world-size", "8", *cache, "--json")
    followed = ("--previous", file, "--max-moved", "50%", "--slack", "50%")
    found = []
    for more in (followed, (), ("--previous", file, "--max-moved", "0", "--slack", "0")):
        assert plan(spec, *words, *more) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [each["notes"]["cache"] for each in found] == ["miss", "miss", "miss"]
    assert main(("cache", "ls", *cache, "--json")) == 0
    kept = {entry["key"] for entry in json.loads(capsys.readouterr().out)["entries"]}
    assert kept == {each["fingerprint"] for each in found}


def test_options_of_a_previous_plan_are_refused_without_one_before_anything_is_read(capsys):
    for option in ("--max-moved", "--slack"):
        assert plan("absent.yaml", option, "1%") == 1
        assert f"{option} is for --previous FILE" in printed_error(capsys)
    assert plan("absent.yaml", "--previous", "absent.json", "--slack", "much") == 1
    assert "--slack" in printed_error(capsys)


def test_a_cache_and_none_are_refused_together(capsys):
    for words in (("plan", "absent.yaml"), ("precompute", "absent.yaml")):
        assert main((*words, "--cache", "plans", "--no-cache")) == 1
        assert "--no-cache: not allowed with argument --cache" in printed_error(capsys)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--previous", "{file}", "--optimize", "--pin", "t0=1"), "pins"),
        (("--slack", "1%"), "--previous"),
        (("--previous", "{file}", "--max-moved", "much"), "--max-moved"),
        (("--previous", "{file}", "--max-moved", "5"), "write 5% or 0.05"),
        (("--previous", "{file}", "--max-moved", "101%"), "--max-moved must be between 0 and 1"),
    ],
)
def test_wrong_limits_of_a_previous_plan_are_refused(words, named, spec, tmp_path, capsys):
    file = str(tmp_path / "old.json")
    assert plan(spec, "--world-size", "8", "-o", file, "--quiet") == 0
    assert plan(spec, "--world-size", "8", *(word.format(file=file) for word in words)) != 0
    assert named in printed_error(capsys)


def test_the_plan_of_another_model_is_refused_as_previous(spec, tmp_path, capsys):
    file, other = str(tmp_path / "old.json"), tmp_path / "other.yaml"
    assert plan(spec, "--world-size", "8", "-o", file, "--quiet") == 0
    other.write_text(SPEC.replace("t0", "x0").replace("t1", "x1"))
    assert plan(str(other), "--world-size", "8", "--previous", file) != 0
    assert "x0" in printed_error(capsys)


def test_statistics_are_added_to_the_spec(spec, tmp_path, capsys):
    file = tmp_path / "ids.json"
    ids = {"ids": 9, "samples": 3, "unique": [[1, 1]], "misses": [[1, 1]]}
    content = {"format": "fastplan id statistics", "version": 1}
    file.write_text(json.dumps({**content, "tables": [{"name": "t0", **ids}]}))
    words = ("--world-size", "8", "--quiet", "--statistics", str(file))
    assert plan(spec, *words) == 0
    file.write_text(json.dumps({**content, "tables": [{"name": "other", **ids}]}))
    capsys.readouterr()
    assert plan(spec, *words) == 1
    assert f"{file}: no table of 'dlrm' has statistics; there are some of" in printed_error(capsys)
