"""`fastplan precompute`."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from fastplan.cache.plan_cache import Cache
from fastplan.cli.main import main
from fastplan.sweep import pool as sweep_pool
from fastplan.sweep import run as sweep_run
from fastplan.sweep.rows import ResultsFile
from tests.cli.command import ClosedPipe
from tests.sweep import workers
from tests.sweep.samples import Inline, write_files

ROOT = Path(__file__).resolve().parents[2]
SWEEP = "models: [small.yaml]\nskus: [h100]\nworld_sizes: [2, 4]\n"
SKUS = """
skus:
  tight: {like: h100, hbm: 8GiB, host_ddr: 0, host_ssd: 0, price: 2}
  odd: {like: tight, ranks_per_host: 3}
"""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FASTPLAN_CACHE", "FASTPLAN_SKUS", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    # It is set for workers.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is done in this process: the tests of `run_sweep` start others."""
    monkeypatch.setattr(sweep_run, "ProcessPool", lambda count: sweep_pool.GivenExecutor(Inline()))


class Command:
    """The command in this process, on a sweep file with a small model beside it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, text: str, *words: str, **rows: int) -> tuple[int, str, str]:
        (self.folder / "my.yaml").write_text(SKUS)
        file = write_files(self.folder, text, **(rows or {"small": 1_000_000}))
        code = main(["precompute", str(file), *words])
        out, err = self._capsys.readouterr()
        told = [line for line in err.splitlines() if not line.startswith("planning ")]
        return code, out, "\n".join(told)


@pytest.fixture
def precompute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def test_a_sweep_is_planned_kept_and_shown(precompute: Command, tmp_path: Path) -> None:
    where = str(tmp_path / "plans")
    code, out, err = precompute(SWEEP, "--cache", where, "--jobs", "2")
    assert (code, err) == (0, "")
    assert out.startswith("2 cells: 2 fit, 0 do not, 2 are stored now")
    assert "small, batch 1,024 of a rank" in out
    assert len(list(Cache(where).store.keys())) == 2
    code, out, _ = precompute(SWEEP, "--cache", where)
    assert "2 were cached" in out


@pytest.mark.usefixtures("inline")
def test_the_cache_may_come_from_the_environment(
    precompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTPLAN_CACHE", str(tmp_path / "plans"))
    precompute(SWEEP, "--no-cache")
    assert not (tmp_path / "plans").exists()
    precompute(SWEEP)
    assert (tmp_path / "plans").exists()


@pytest.mark.usefixtures("inline")
def test_what_does_not_fit_is_an_answer(precompute: Command) -> None:
    text = "models: [huge.yaml]\nskus: ['my.yaml:tight']\nworld_sizes: [2, 64]\n"
    code, out, err = precompute(text, "--smallest", huge=400_000_000)
    assert (code, err) == (0, "")
    assert out.startswith("2 cells: 1 fit, 1 do not;")
    assert any(line.split()[4:6] == ["no", "-"] for line in out.splitlines())
    assert out.splitlines()[-1].split()[:5] == ["huge", "tight", "1024", "fp32", "64"]


@pytest.mark.usefixtures("inline")
def test_a_failing_cell_is_told_and_the_rest_is_done(precompute: Command) -> None:
    text = "models: [small.yaml]\nskus: ['my.yaml:odd', h100]\nworld_sizes: [4, 8]\n"
    code, out, err = precompute(text)
    assert (code, err) == (1, "")
    assert out.startswith("4 cells: 2 fit, 0 do not, 2 failed;")
    assert "4 ranks do not fill hosts of 3 (odd)" in out


def test_a_killed_worker_is_told(precompute: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_pool, "work", workers.deadly)
    code, out, _ = precompute(SWEEP + "batch_sizes: [12, 13]\n", "--jobs", "1")
    assert code == 1
    assert out.startswith("4 cells: 2 fit, 0 do not, 2 failed;")
    assert "its worker process died" in out


@pytest.mark.usefixtures("inline")
def test_a_cache_that_fails_is_an_error_and_results_are_shown(
    precompute: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = precompute(SWEEP, "--cache", str(tmp_path / "file"))
    assert code == 1
    assert "2 cells: 2 fit" in out
    assert err.startswith("fastplan: error: the cache failed for 2 of 2 cells: ")
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("inline")
def test_results_are_kept_and_taken_over(precompute: Command, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    precompute(SWEEP, "--results", str(file))
    assert len(ResultsFile(file).read()) == 2
    code, out, _ = precompute(SWEEP, "--results", str(file))
    assert (code, "2 were known" in out) == (0, True)


@pytest.mark.usefixtures("inline")
def test_shards_are_parts(precompute: Command, tmp_path: Path) -> None:
    file = str(tmp_path / "r.jsonl")
    for shard in ("0/2", "1/2"):
        _, out, _ = precompute(SWEEP, "--shard", shard, "--results", file)
        assert out.startswith("1 cell: 1 fit")
    assert len(ResultsFile(file).read()) == 2
    code, out, _ = precompute(SWEEP, "--shard", "7/8")
    assert (code, out.startswith("0 cells")) == (0, True)


@pytest.mark.usefixtures("inline")
def test_a_dry_run_lists_cells_and_plans_nothing(precompute: Command, tmp_path: Path) -> None:
    code, out, _ = precompute(SWEEP, "--dry-run", "--cache", str(tmp_path / "plans"))
    assert (code, out.splitlines()[-1]) == (0, "2 cells")
    assert not (tmp_path / "plans").exists()
    code, out, _ = precompute(SWEEP, "--dry-run", "--json")
    assert [cell["world_size"] for cell in json.loads(out)] == [2, 4]
    code, out, _ = precompute(SWEEP, "--dry-run", "--csv")
    assert [cell["world_size"] for cell in csv.DictReader(io.StringIO(out))] == ["2", "4"]


@pytest.mark.usefixtures("inline")
def test_json_has_everything(precompute: Command) -> None:
    text = SWEEP.replace("h100", "'my.yaml:tight'") + "precisions: [fp32, bf16]\n"
    code, out, _ = precompute(text, "--json", "--smallest", "--cheapest", "50")
    content = json.loads(out)
    assert code == 0
    assert (content["cells"], content["fit"], len(content["rows"])) == (4, 4, 4)
    assert [each["row"]["world_size"] for each in content["smallest"]] == [2, 2]
    assert {each["cost"] for each in content["cheapest"]} == {4.0}
    assert [each["precision"] for each in content["savings"]] == ["fp32", "bf16"]
    assert content["savings"][1]["memory_ratio"] < 0.6


@pytest.mark.usefixtures("inline")
def test_csv_has_a_line_for_each_cell(precompute: Command) -> None:
    code, out, _ = precompute(SWEEP, "--csv")
    assert code == 0
    assert [row["world_size"] for row in csv.DictReader(io.StringIO(out))] == ["2", "4"]


@pytest.mark.usefixtures("inline")
def test_the_page_and_its_plans_are_written(precompute: Command, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = precompute(SWEEP, "--html", str(page), "--price", "h100=2.5")
    assert (code, err) == (0, "")
    assert out.endswith(f"\nwritten: {page}, {tmp_path / 'page_plans'}\n")
    assert '"per_hour":10.0' in page.read_text()
    assert len(list((tmp_path / "page_plans").glob("*.json"))) == 2
    code, out, _ = precompute(SWEEP, "--html", str(page), "--csv")
    assert (code, len(out.splitlines())) == (0, 3)


@pytest.mark.usefixtures("inline")
def test_prices_may_use_any_name_of_a_sku(precompute: Command) -> None:
    words = ("--cheapest", "100", "--price")
    for name in ("h100", "H-100"):
        code, out, _ = precompute(SWEEP, *words, f"{name}=2.5")
        assert code == 0
        assert out.splitlines()[-1].split()[-4:] == ["5.00", "2.5", "per", "rank"]
    code, _, err = precompute(SWEEP, *words, "a100-80=1")
    assert (code, "the sweep has no such SKU, but h100" in err) == (1, True)
    code, _, err = precompute(SWEEP, *words, "none=1")
    assert (code, "--price none: the sweep has no such SKU" in err) == (1, True)


@pytest.mark.usefixtures("inline")
def test_without_a_price_nothing_is_planned_for_the_cheapest(
    precompute: Command, tmp_path: Path
) -> None:
    results = tmp_path / "r.jsonl"
    text = SWEEP.replace("h100", "h100, 'my.yaml:tight', a100-80")
    words = ("--cheapest", "100", "--results", str(results))
    code, _, err = precompute(text, *words)
    assert code == 1
    assert err.startswith("fastplan: error: the price of a100-80 and h100 is not known: pass the")
    assert not results.exists()
    code, _, err = precompute(text, *words, "--price", "l4=1")
    assert err.endswith("the sweep has no such SKU, but a100-80, h100, tight")


@pytest.mark.usefixtures("inline")
def test_the_models_own_hardware_has_a_price_too(precompute: Command) -> None:
    text = "models: [small.yaml]\nworld_sizes: [2, 4]\n"
    code, _, err = precompute(text, "--cheapest", "100")
    assert (code, "the price of torchrec is not known" in err) == (1, True)
    code, out, _ = precompute(text, "--cheapest", "100", "--price", "torchrec=2")
    assert (code, out.splitlines()[-1].split()[-4:]) == (0, ["4.00", "2", "per", "rank"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shard", "2/2"], "'2/2' must be I/N with I from 0 to N-1"),
        (["--shard", "1"], "must be I/N"),
        (["--shard", "-1/2"], "--shard"),
        (["--shard", "/"], "must be I/N"),
        (["--jobs", "0"], "must be a whole number of at least 1"),
        (["--jobs", "two"], "must be a whole number of at least 1"),
        (["--cheapest", "fast"], "must be a positive number of milliseconds"),
        (["--cheapest", "nan"], "must be a positive number of milliseconds"),
        (["--cheapest", "9", "--price", "h100"], "must be SKU=PRICE"),
        (["--cheapest", "9", "--price", "h100=-1"], "must be SKU=PRICE"),
        (["--price", "h100=1"], "--price is for --cheapest RATING and --html FILE"),
        (["--html", "none/page.html"], "there is no directory none; create it first"),
        (["--csv", "--smallest"], "--csv lists cells only"),
        (["--csv", "--json"], "not allowed with"),
    ],
)
@pytest.mark.usefixtures("inline")
def test_bad_command_lines_are_refused(precompute: Command, words: list[str], message: str) -> None:
    code, out, err = precompute(SWEEP, *words)
    assert (code, out) == (1, "")
    assert err.startswith("fastplan: error: ")
    assert message in err


@pytest.mark.usefixtures("inline")
def test_bad_sweeps_are_told_in_one_line(precompute: Command, tmp_path: Path) -> None:
    for text in (
        "models: [",
        "models: [none.yaml]",
        "model: small.yaml",
        "models: [no_such_package:build]",
    ):
        code, out, err = precompute(text)
        assert (code, out) == (1, "")
        assert err.startswith("fastplan: error: ")
        assert len(err.splitlines()) == 1
    code = main(["precompute", str(tmp_path / "none.yaml")])
    assert code == 1


@pytest.mark.usefixtures("inline")
def test_names_cannot_write_to_the_terminal(precompute: Command) -> None:
    text = 'models: [{spec: small.yaml, name: "\\e[31m<b>\\u202e\\n"}]\nskus: [h100]\nhosts: 1\n'
    code, out, _ = precompute(text)
    assert code == 0
    assert not {"\x1b", "\u202e"} & set(out)
    assert "\\x1b[31m<b>\\u202e\\x0a, batch" in out


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.usefixtures("inline")
def test_a_real_model_is_exported_once(
    precompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchrec")
    (tmp_path / "sweep_models.py").write_text(
        "import torch\n"
        "from torchrec import EmbeddingBagCollection, EmbeddingBagConfig\n"
        "def build():\n"
        "    return EmbeddingBagCollection(device=torch.device('meta'), tables=[\n"
        "        EmbeddingBagConfig(name='t', num_embeddings=1000, embedding_dim=16,\n"
        "                           feature_names=['f'])])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "models: ['sweep_models:build']\nskus: [h100]\nworld_sizes: [2, 16]\n"
    code, out, _ = precompute(text, "--trust-code")
    assert (code, out.startswith("2 cells: 2 fit")) == (0, True)


def test_planning_spec_files_loads_no_torch_and_the_command_no_numpy(tmp_path: Path) -> None:
    file = write_files(tmp_path, SWEEP)
    code = (
        "import sys\n"
        "from fastplan.cli.main import main\n"
        f"assert main(['precompute', {str(file)!r}, '--jobs', '1']) == 0\n"
        "assert not {'torch', 'torchrec', 'numba', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


class Gated:
    """The command in a process group of its own, with workers that wait at a gate."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "r.jsonl"
        self._folder = folder
        for name in ("begun", "go"):
            os.mkfifo(folder / name)
        file = write_files(folder, SWEEP + "batch_sizes: [1, 2, 3, 4]\n")
        words = [str(file), "--jobs", "1", "--results", str(self.results)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.gated", *words],
            cwd=ROOT,
            env={**os.environ, workers.GATES: str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def worker(self) -> IO[bytes]:
        """Waits for the first worker to come to the gate. The stream ends when it dies."""
        stream = open(self._folder / "begun", "rb", buffering=0)  # noqa: SIM115
        assert stream.read(1) == b"."
        return stream

    def wait_for_tasks(self, count: int) -> None:
        """Lets all of the first tasks go but the last of them."""
        gate = os.open(self._folder / "begun", os.O_RDWR)
        for i in range(count):
            if i:
                self.let_go()
            assert os.read(gate, 1) == b"."
        os.close(gate)

    def let_go(self) -> None:
        (self._folder / "go").write_bytes(b".")

    def let_all_go(self) -> None:
        (self._folder / "open").touch()
        self.let_go()

    def interrupt(self) -> None:
        """As a terminal does; returns when the command has noticed."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.stderr is not None
        assert any("again to stop at once" in line for line in self.process.stderr)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[Gated]:
    command = Gated(tmp_path)
    yield command
    if command.process.poll() is None:
        os.killpg(command.process.pid, signal.SIGKILL)
    command.process.communicate()


def test_an_interrupt_keeps_what_is_under_way_and_says_how_to_go_on(gated: Gated) -> None:
    gated.wait_for_tasks(2)
    gated.interrupt()
    gated.let_all_go()
    out, err = gated.process.communicate(timeout=60)
    assert (gated.process.returncode, out) == (130, "")
    kept = len(ResultsFile(gated.results).read())
    assert 2 <= kept < 8
    assert f"interrupted after {kept} of 8 cells. They are in {gated.results}" in err
    assert "run the same command again" in err
    assert "Traceback" not in err


def test_a_second_interrupt_waits_for_nobody(gated: Gated) -> None:
    with gated.worker() as worker:
        gated.interrupt()
        os.killpg(gated.process.pid, signal.SIGINT)
        assert worker.read(1) == b""  # it is gone
    _, err = gated.process.communicate(timeout=60)
    assert gated.process.returncode == 130
    assert "interrupted after 0 of 8 cells" in err


def test_workers_end_when_the_command_is_killed(gated: Gated) -> None:
    with gated.worker() as worker:
        gated.process.kill()
        assert worker.read(1) == b""


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("shown", [(), ("--csv",), ("--json",)], ids=" ".join)
def test_a_page_is_written_although_nobody_reads_the_answer(
    precompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: tuple[str, ...]
) -> None:
    page = tmp_path / "page.html"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", ClosedPipe())
        code, _, err = precompute(SWEEP, "--html", str(page), *shown)
    assert (code, err) == (141, "")
    assert page.read_text().startswith("<!doctype html>")
    assert precompute(SWEEP, "--html", str(page))[0] == 0  # and is replaced
