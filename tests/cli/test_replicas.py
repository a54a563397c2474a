"""`fastplan plan --replica-groups` and `fastplan inspect --replica-groups`, as a user runs them."""

import json

import pytest

from tests.cli.command import call

SPEC = """
model: dlrm
batch_size: 2048
tables:
  - {name: t0, rows: 40M, dim: 128, pooling: 3, optimizer: rowwise_adagrad}
  - {name: t1, rows: 4M, dim: 64, pooling: 30, optimizer: rowwise_adagrad}
"""


def plan(capsys, spec, *words, world_size=64):
    fixed = ("--sku", "h100", "--world-size", str(world_size), "--no-cache")
    return call(capsys, "plan", spec, *fixed, *words)


def test_a_number_of_groups_is_planned_and_shown(spec, capsys):
    code, out, _ = plan(capsys, spec, "--replica-groups", "4")
    assert code == 0
    assert "16 ranks (8 hosts x 2)" in out
    assert "4 copies, each on 16 ranks" in out
    assert "group 1  ranks 1, 5, 9, 13, ..., 61" in out
    assert "replicas ranks 0, 1, 2, 3" in out
    assert "sharding_group_size=16, node_group_size=2" in out
    assert "chosen" not in out


def test_consecutive_ranks_form_groups_if_asked(spec, capsys):
    code, out, _ = plan(capsys, spec, "--replica-groups", "4", "--inter-host-allreduce")
    assert code == 0
    assert "16 ranks (2 hosts x 8)" in out
    assert "group 1  ranks 16-31" in out
    assert "replicas ranks 0, 16, 32, 48" in out
    assert "use_inter_host_allreduce=True" in " ".join(out.split())


def test_auto_shows_all_candidates_and_takes_one(spec, capsys):
    code, out, _ = plan(capsys, spec, "--replica-groups", "auto")
    assert code == 0
    head, *rows = out.partition("on a host  fits")[2].splitlines()
    assert "step" in head
    assert [row.split()[0] for row in rows if row] == ["1", "2", "4", "8", "16", "32", "64"]
    assert sum("chosen" in row for row in rows) == 1


def test_json_has_the_same(spec, capsys):
    words = ("--replica-groups", "auto", "--sync-interval", "10", "--json")
    code, out, _ = plan(capsys, spec, *words)
    assert code == 0
    found = json.loads(out)
    replication = found["replication"]
    assert replication["arguments"]["world_size"] == 64
    assert replication["arguments"]["sharding_group_size"] == found["ranks"]
    assert len(replication["sync"]["weights"]) == found["ranks"]
    best = min(replication["candidates"], key=lambda each: each["step_ms"] or 1e300)
    assert (best["groups"], best["step_ms"]) == (replication["groups"], replication["step_ms"])
    assert best["step_ms"] == best["rating"] + best["sync_ms"] / 10
    assert best["rating"] == found["rating"]
    assert best["memory"]["hbm"]["used"] == max(found["memory"]["hbm"]["used"])


def test_plans_without_groups_say_nothing_of_them(spec, capsys):
    assert "replication" not in json.loads(plan(capsys, spec, "--json")[1])


def test_nothing_fits_on_any_group(spec, tmp_path, capsys):
    big = tmp_path / "big.json"
    table = {"name": "t", "rows": "2B", "dim": 128, "compute_kernels": "fused"}
    big.write_text(json.dumps({"model": "big", "tables": [table]}))
    code, out, _ = plan(capsys, str(big), "--replica-groups", "auto", world_size=8)
    assert (code, "no plan of 1 table fits on 8 ranks" in out) == (2, True)
    code, out, _ = plan(capsys, str(big), "--replica-groups", "auto", "--json", world_size=8)
    candidates = json.loads(out)["replication"]["candidates"]
    assert (code, [each["fits"] for each in candidates]) == (2, [False] * 4)
    assert all(each["reason"] for each in candidates)


def test_tables_that_sync_leaves_out_are_a_warning(tmp_path, capsys):
    file = tmp_path / "adam.yaml"
    file.write_text("model: m\ntables:\n  - {name: t, rows: 40M, dim: 128, optimizer: adam}\n")
    code, _, told = plan(capsys, str(file), "--replica-groups", "2")
    assert code == 0
    assert "warning: table t: DMPCollection reads the optimizer state `sum`" in told


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--sync-interval", "2"), "--sync-interval is for --replica-groups"),
        (("--inter-host-allreduce",), "--inter-host-allreduce is for --replica-groups"),
        (("--replica-groups", "x"), "must be a whole number from 1, or auto, not 'x'"),
        (("--replica-groups", "3"), "64 ranks can't form 3 replica groups of the same size"),
        (
            ("--replica-groups", "2", "--sync-interval", "0"),
            "--sync-interval must be a whole number from 1, not 0",
        ),
    ],
)
def test_mistakes_say_what_to_do(spec, capsys, words, problem):
    code, out, told = plan(capsys, spec, *words)
    assert (code, out) == (1, "")
    assert problem in told


def test_the_way_out_names_the_option(spec, capsys):
    _, _, told = plan(capsys, spec, "--replica-groups", "3", world_size=24)
    assert "or use --inter-host-allreduce" in told


@pytest.fixture
def written(spec, tmp_path, capsys):
    file = tmp_path / "plan.json"
    assert plan(capsys, spec, "--replica-groups", "4", "-o", str(file), "--quiet")[0] == 0
    return file


def test_plan_files_are_checked_for_their_groups(written, capsys):
    assert call(capsys, "inspect", str(written))[0] == 0
    for words in ((), ("--world-size", "64"), ("--inter-host-allreduce",)):
        assert call(capsys, "inspect", str(written), "--replica-groups", "4", *words)[0] == 0


def test_a_plan_for_too_many_ranks_is_refused_by_table_and_rank(written, capsys):
    words = ("inspect", str(written), "--replica-groups", "8", "--world-size", "64")
    code, _, told = call(capsys, *words)
    assert code == 1
    assert "the plan is for 16 ranks, and 64 ranks in 8 replica groups are 8 in each" in told
    content = json.loads(written.read_text())
    del content["basis"]  # leaves a layout, which other planners' plans are
    content["modules"]["ebc"]["t0"] = {
        "sharding_type": "table_wise",
        "compute_kernel": "fused",
        "shape": [40_000_000, 128],
        "ranks": [9],
    }
    written.write_text(json.dumps(content))
    code, _, told = call(capsys, *words)
    assert code == 1
    assert "table ebc.t0: a shard is on rank 9" in told
    assert "and a replica group has ranks 0 to 7: plan for 8 ranks" in told


def test_notes_are_checked_too(written, capsys):
    content = json.loads(written.read_text())
    content["notes"]["world_size"] = "32"
    written.write_text(json.dumps(content))
    code, _, told = call(capsys, "inspect", str(written))
    assert code == 1
    assert "the plan is for 16 ranks, and 32 ranks in 4 replica groups are 8 in each" in told


def test_the_size_of_the_job_needs_groups(written, capsys):
    told = call(capsys, "inspect", str(written), "--world-size", "64")[2]
    assert "--world-size is for --replica-groups" in told
