"""`fastplan bundle`: what it writes, shows and unpacks."""

import json
import subprocess
import sys

import pytest

from fastplan.bundle import compiled
from fastplan.bundle.bundle import open_bundle
from fastplan.bundle.compiled import environment_facts
from fastplan.bundle.format import Blob, Content, write_content
from fastplan.bundle.gathering import stored_plans
from fastplan.cache.stores import DirectoryStore
from tests.bundle.samples import FACTS, KERNEL, artifacts, content, kernel, plans, torch_bytes
from tests.cache.planned import keep
from tests.cli.command import ROOT, call, environment


@pytest.fixture
def facts(monkeypatch):
    """This installation on a machine without GPUs."""
    monkeypatch.setattr("fastplan.bundle.compiled.driver_device", lambda: "cpu")
    return environment_facts("cpu")


@pytest.fixture
def path(tmp_path, facts):
    write_content(content(facts=facts), tmp_path / "start.bundle")
    return tmp_path / "start.bundle"


@pytest.fixture
def torch(monkeypatch, tmp_path):
    """A torch that notes what it is given."""
    given = []
    monkeypatch.setattr(compiled, "device_name", lambda slot: "cpu")
    monkeypatch.setattr(compiled, "load", lambda data: given.append(data) or 3)
    monkeypatch.setattr(compiled, "place_kernel", lambda path, data: given.append(path))
    monkeypatch.setattr(compiled, "compile_cache", lambda: "/compiled")
    return given


def test_save_takes_a_cache_and_artifacts(capsys, tmp_path, facts):
    keep(DirectoryStore(tmp_path / "plans"))
    code_of = [torch_bytes(b"of rank 0"), torch_bytes(b"of rank 1")]
    for rank, data in enumerate(code_of):
        (tmp_path / f"{rank}.bin").write_bytes(data)
    target = tmp_path / "start.bundle"
    words = ["-o", str(target), "--plans", str(tmp_path / "plans"), "--model", "ranker"]
    words += ["--artifacts", str(tmp_path / "0.bin"), str(tmp_path / "1.bin")]
    code, out, err = call(capsys, "bundle", "save", *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"written: {target}, 1 plan, 42 B of compile artifacts, ")
    found = open_bundle(target)
    assert (found.header.model, found.header.facts, found.find_damage()) == ("ranker", facts, [])
    assert {(part.key, part.name) for part in found.header.plans} == set(plans())
    assert [part.slots for part in found.header.artifacts] == [(0,), (1,)]
    assert [part.blob.read() for part in found.content().artifacts] == code_of


def test_save_refuses_what_torch_never_wrote(capsys, path, tmp_path):
    good = torch_bytes(b"code")
    for bad in (b"hello", good[:-1], good + b"x", b"\0" * 20):
        (tmp_path / "0.bin").write_bytes(bad)
        words = ["-o", str(tmp_path / "b"), "--plans", str(path), "--artifacts"]
        code, _, err = call(capsys, "bundle", "save", *words, str(tmp_path / "0.bin"))
        assert code == 1
        assert f"{tmp_path / '0.bin'}: has no compile artifacts of torch" in err


def test_save_keeps_the_model_of_a_bundle(capsys, path, tmp_path):
    target, other = tmp_path / "made.bundle", tmp_path / "other.bundle"
    write_content(content(model="other"), other)
    for more, model in (([], "ranker"), (["--model", "mine"], "mine"), ([str(other)], None)):
        words = ["bundle", "save", "-o", str(target), "--plans", str(path), *more]
        assert call(capsys, *words)[0] == 0
        assert open_bundle(target).header.model == model


def test_load_names_the_bundle_whose_code_torch_can_not_read(capsys, path, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(compiled, "device_name", lambda slot: "cpu")
    monkeypatch.setattr(compiled, "place_kernel", lambda path, data: None)
    words = ["bundle", "load", str(path), "--cache", str(tmp_path / "plans"), "--trust-code"]
    code, _, err = call(capsys, *words)
    assert code == 1
    told = "its compile artifacts are not from torch, or were changed"
    assert err == f"fastplan: error: {path}: {told}\n"


def test_load_takes_local_ranks_only(capsys, path):
    code, _, err = call(capsys, "bundle", "load", str(path), "--local-rank", "-1")
    assert code == 1
    assert "--local-rank: must be a whole number of at least 0, not '-1'" in err


def test_save_chooses_by_key(capsys, tmp_path, facts):
    store = DirectoryStore(tmp_path / "plans")
    key = keep(store)
    keep(store, rows=20_000)
    words = ["-o", str(tmp_path / "b"), "--plans", str(tmp_path / "plans"), "--key", key[:12]]
    assert call(capsys, "bundle", "save", *words)[0] == 0
    assert [part.key for part in open_bundle(tmp_path / "b").header.plans] == [key]


def test_save_refuses_what_holds_no_plan(capsys, tmp_path, facts):
    target = tmp_path / "start.bundle"
    words = ["bundle", "save", "-o", str(target), "--plans"]
    code, out, err = call(capsys, *words, str(tmp_path / "nothing"))
    assert (code, out) == (1, "")
    gone = "no such file or directory"
    assert err == f"fastplan: error: {tmp_path / 'nothing'}: {gone}\n"
    (tmp_path / "nothing").mkdir()
    _, _, err = call(capsys, *words, str(tmp_path / "nothing"))
    assert err == f"fastplan: error: {tmp_path / 'nothing'}: it has no plans\n"
    (tmp_path / "tiny.yaml").write_text("model: tiny\n")
    _, _, err = call(capsys, *words, str(tmp_path / "tiny.yaml"))
    assert "tiny.yaml: is a spec file, not a plan; `fastplan plan` creates a plan" in err
    (tmp_path / "text").write_text("text")
    code, _, err = call(capsys, *words, str(tmp_path / "text"))
    assert code == 1
    assert str(tmp_path / "text") in err
    assert not target.exists()


def test_save_refuses_more_plans_than_a_bundle_takes(capsys, tmp_path, facts, monkeypatch):
    store = DirectoryStore(tmp_path / "plans")
    keep(store)
    keep(store, rows=20_000)
    monkeypatch.setattr("fastplan.bundle.format.MAX_PLANS", 1)
    words = ["-o", str(tmp_path / "b"), "--plans", str(tmp_path / "plans")]
    code, _, err = call(capsys, "bundle", "save", *words)
    assert code == 1
    assert "2 plans are more than the 1 of a bundle: choose some with --key" in err


def test_save_names_a_bundle_that_is_damaged(capsys, path, tmp_path):
    path.write_bytes(path.read_bytes()[:-1])
    code, _, err = call(capsys, "bundle", "save", "-o", str(tmp_path / "b"), "--plans", str(path))
    assert code == 1
    assert err.startswith(f"fastplan: error: {path}: truncated")


def test_show_tells_what_is_in_it(capsys, path, facts):
    code, out, err = call(capsys, "bundle", "show", str(path))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{path}: ")
    assert lines[0].endswith(", intact")
    assert lines[2] == "model      ranker"
    titles, first, second = lines[4:7]
    assert titles.split()[:4] == ["plan", "created", "tables", "ranks"]
    assert {first.split()[0], second.split()[0]} == {key[:12] for key, _ in plans(10_000, 20_000)}
    assert first.split()[2:4] == ["3", "8"]
    assert f"made with torch {facts['torch']}, python {facts['python']}, device cpu" in out
    assert "local ranks 0: 9 B, 1 aot_autograd, 2 inductor" in out
    assert f"1 CPU kernel, 7 B, for {facts['cpu']}" in out
    assert lines[-1].strip() == "for this installation; --trust-code loads it"


def test_show_tells_it_as_json(capsys, path, facts):
    code, out, _ = call(capsys, "bundle", "show", str(path), "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["model"], told["facts"], told["damage"]) == ("ranker", facts, [])
    assert told["size"] == path.stat().st_size
    assert {plan["key"] for plan in told["plans"]} == {key for key, _ in plans(10_000, 20_000)}
    assert told["plans"][0]["provenance"]["tables"] == 3
    assert told["artifacts"][0]["local_ranks"] == [0]
    assert told["kernels"] == [{"local_ranks": [0], "size": 7, "path": KERNEL}]
    assert told["suits"] == {"code": True, "kernels": True, "differences": []}


def test_show_names_what_differs(capsys, path, facts):
    write_content(content(facts={**facts, "torch": "1.0", "cpu": "other"}), path)
    code, out, _ = call(capsys, "bundle", "show", str(path))
    assert code == 2
    assert (
        f"not for this installation:\n             torch: made with 1.0, here is {facts['torch']}"
        in out
    )
    told = json.loads(call(capsys, "bundle", "show", str(path), "--json")[1])
    assert (told["suits"]["code"], len(told["suits"]["differences"])) == (False, 2)


def test_show_tells_kernels_for_another_processor_apart(capsys, path, facts):
    write_content(content(facts={**facts, "cpu": "other"}), path)
    code, out, _ = call(capsys, "bundle", "show", str(path))
    assert code == 0
    assert "but its CPU kernels are not:\n             cpu: made with other, here is" in out


def test_show_tells_of_damage(capsys, path):
    whole = bytearray(path.read_bytes())
    header = open_bundle(path).header
    for span in (header.plans[0].span, header.kernels[0].span):
        whole[span.at] ^= 1
    path.write_bytes(bytes(whole))
    code, out, _ = call(capsys, "bundle", "show", str(path))
    lines = out.splitlines()
    assert code == 2
    assert lines[0].endswith(", damaged")
    assert lines[1:3] == [
        f"  plan {header.plans[0].key}: the checksum does not match",
        f"  {KERNEL}: the checksum does not match",
    ]
    assert header.plans[1].key[:12] in out


def test_show_without_content(capsys, tmp_path, facts):
    write_content(Content(model=None, facts=FACTS), tmp_path / "empty")
    code, out, _ = call(capsys, "bundle", "show", str(tmp_path / "empty"))
    assert code == 0
    assert out.splitlines()[2:] == ["model      unknown", "", "no plans", "", "no compiled code"]


def test_names_cannot_move_the_cursor(capsys, tmp_path, facts):
    evil = "\x1b[2J<script>\n\u202e"
    made = content(
        model=evil,
        facts={**facts, "torch": evil},
        artifacts=(artifacts(names={evil: ("a",)}),),
        kernels={KERNEL: kernel()},
    )
    write_content(made, tmp_path / "evil")
    _, out, _ = call(capsys, "bundle", "show", str(tmp_path / "evil"))
    assert not {"\x1b", "\u202e"} & set(out)
    assert out.count("\\x1b[2J<script>\\x0a\\u202e") == 4


@pytest.mark.parametrize("action", ["show", "load"])
def test_what_is_no_bundle_is_an_error(capsys, tmp_path, action):
    (tmp_path / "text").write_text("text")
    code, out, err = call(capsys, "bundle", action, str(tmp_path / "text"))
    assert (code, out) == (1, "")
    assert err == f"fastplan: error: {tmp_path / 'text'}: not a start bundle\n"
    code, _, err = call(capsys, "bundle", action, str(tmp_path / "missing"))
    assert code == 1
    assert err == f"fastplan: error: {tmp_path / 'missing'}: No such file or directory\n"


def test_load_fills_a_cache_and_leaves_code_alone(capsys, path, tmp_path, torch):
    where = tmp_path / "plans"
    code, out, err = call(capsys, "bundle", "load", str(path), "--cache", str(where))
    assert (code, err) == (0, "")
    assert out == (
        f"2 plans put into {where}\n"
        "compiled code was not loaded; --trust-code copies it to torch's compile cache\n"
    )
    assert stored_plans(DirectoryStore(where)) == plans(10_000, 20_000)
    assert torch == []


def test_load_takes_the_usual_cache(capsys, path, tmp_path, monkeypatch):
    monkeypatch.setenv("FASTPLAN_CACHE", str(tmp_path / "usual"))
    assert call(capsys, "bundle", "load", str(path))[0] == 0
    assert len(stored_plans(DirectoryStore(tmp_path / "usual"))) == 2


def test_load_gives_trusted_code_to_torch(capsys, path, tmp_path, torch):
    words = ["bundle", "load", str(path), "--cache", str(tmp_path / "plans"), "--trust-code"]
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert out.splitlines()[1] == (
        "3 compile artifacts, 1 kernel put into torch's compile cache /compiled"
    )
    assert torch == [KERNEL, b"artifacts"]


def test_load_refuses_code_for_other_versions(capsys, path, tmp_path, torch, facts):
    write_content(content(facts={**facts, "triton": "3.9"}), path)
    words = ["bundle", "load", str(path), "--cache", str(tmp_path / "plans"), "--trust-code"]
    code, out, _ = call(capsys, *words)
    assert code == 2
    assert out.splitlines()[0].startswith("2 plans put into ")
    assert out.splitlines()[1:] == [
        "compiled code is not for this installation:",
        f"  triton: made with 3.9, here is {facts.get('triton', 'none')}",
    ]
    assert torch == []


def test_load_tells_which_kernels_it_left_out(capsys, path, tmp_path, torch, facts):
    write_content(content(facts={**facts, "libc": "musl"}), path)
    words = ["bundle", "load", str(path), "--cache", str(tmp_path / "plans"), "--trust-code"]
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert "CPU kernels were skipped: libc: made with musl" in out
    assert torch == [b"artifacts"]


def test_load_refuses_a_damaged_plan(capsys, path, tmp_path):
    write_content(content(plans={("0" * 16, "a"): Blob.of(b"x")}), path)
    code, _, err = call(capsys, "bundle", "load", str(path), "--cache", str(tmp_path / "plans"))
    assert code == 1
    assert err == f"fastplan: error: {path}: plan 0000000000000000: not an entry\n"


def test_plans_and_show_need_no_torch(path, tmp_path):
    code = f"""
import sys
from fastplan.bundle import open_bundle
from fastplan.cli.main import main

assert open_bundle({str(path)!r}).copy_to_cache({str(tmp_path / "a")!r}) == 2
assert main(["bundle", "show", {str(path)!r}]) in (0, 2)
assert main(["bundle", "load", {str(path)!r}, "--cache", {str(tmp_path / "b")!r}]) == 0
assert main(["bundle", "save", "-o", {str(tmp_path / "c")!r}, "--plans", {str(path)!r}]) == 0
print([name for name in ("torch", "torchrec", "triton", "numba") if name in sys.modules])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"


def test_code_that_others_may_have_written_is_shown_as_such_and_not_loaded(
    capsys, path, tmp_path, torch
):
    path.chmod(0o666)
    code, out, _ = call(capsys, "bundle", "show", str(path))
    assert "never loaded: other users can write to it (mode 666); `chmod go-w` it" in out
    words = ["bundle", "load", str(path), "--cache", str(tmp_path / "plans"), "--trust-code"]
    code, _, error = call(capsys, *words)
    assert code == 1
    assert "other users can write to it" in error
