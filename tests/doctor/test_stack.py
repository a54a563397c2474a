"""torch, FBGEMM and TorchRec in good and bad company."""

import pytest

from fastplan.doctor import stack as stack_module
from fastplan.doctor.installed import Package, Requirement, Stack
from fastplan.doctor.probe import Outcome
from fastplan.doctor.stack import PLANNER, check_stack, modules_to_try

TORCH = Package("torch", "2.13.0+cpu", "cpu")
FBGEMM = Package("fbgemm-gpu-cpu", "1.8.0", "cpu")
TORCHREC = Package("torchrec", "1.8.0")
FINE = Outcome(version="1.0")
WORKING = dict.fromkeys(("torch", "fbgemm_gpu", "torchrec", PLANNER), FINE)


@pytest.fixture(autouse=True)
def no_requirements(monkeypatch):
    monkeypatch.setattr(stack_module, "requirements", lambda _: [])
    monkeypatch.setattr(stack_module, "module_folder", lambda _: None)


def findings(torch=TORCH, fbgemm=(FBGEMM,), torchrec=TORCHREC, outcomes=WORKING, **facts):
    """By subject, the last of each."""
    stack = Stack(torch, fbgemm, torchrec, **facts)
    return {found.subject: found for found in check_stack(stack, outcomes)}


def levels(**arguments):
    return {name: found.level for name, found in findings(**arguments).items()}


def failed(module, *errors, missing=None):
    """Everything up to the module works."""
    names = list(WORKING)
    outcomes = dict.fromkeys(names[: names.index(module)], FINE)
    return {**outcomes, module: Outcome(errors=errors or ("OSError: x",), missing=missing)}


def test_a_stack_that_belongs_together_is_fine():
    assert set(levels().values()) == {"ok"}
    assert findings()["planner"].text == "fastplan.EmbeddingShardingPlanner can be used"


@pytest.mark.parametrize(
    ("torch", "fbgemm", "torchrec"),
    [
        ("2.14.0+cpu", "1.9.0", "1.9.2"),
        ("2.13.1+cpu", "1.8.2", "1.8.0"),
        ("2.13.0+cpu", "1.8.0", "1.8.0+cpu"),
    ],
)
def test_so_are_other_releases_of_them(torch, fbgemm, torchrec):
    found = levels(
        torch=Package("torch", torch, "cpu"),
        fbgemm=(Package("fbgemm-gpu-cpu", fbgemm, "cpu"),),
        torchrec=Package("torchrec", torchrec),
    )
    assert set(found.values()) == {"ok"}


def test_cuda_builds_of_one_release_are_fine():
    for torch, fbgemm in (("cu130", "cuda"), ("cu126", "cu126"), (None, "cuda")):
        found = levels(
            torch=Package("torch", "2.13.0", torch),
            fbgemm=(Package("fbgemm-gpu", "1.8.0", fbgemm),),
        )
        assert set(found.values()) == {"ok"}


def test_without_torch_and_torchrec_there_is_just_a_note():
    found = findings(torch=None, fbgemm=(), torchrec=None, outcomes={})
    assert [(name, finding.level) for name, finding in found.items()] == [("torchrec", "note")]
    assert "not installed" in found["torchrec"].text
    assert "torchrec==1.8.0" in found["torchrec"].fix


def test_torch_without_torchrec_is_fine_but_for_a_note():
    found = levels(fbgemm=(), torchrec=None, outcomes={"torch": FINE})
    assert found == {"torchrec": "note", "torch": "ok"}


@pytest.mark.parametrize(
    ("stack", "modules"),
    [
        (Stack(None, (), None), ()),
        (Stack(TORCH, (FBGEMM,), None), ("torch",)),
        (Stack(None, (), TORCHREC), ("torch", "fbgemm_gpu", "torchrec", PLANNER)),
    ],
)
def test_only_what_is_needed_is_imported(stack, modules):
    assert modules_to_try(stack) == modules


def test_modules_without_metadata_are_imported_as_well(monkeypatch):
    monkeypatch.setattr(stack_module, "module_folder", lambda _: "somewhere")
    assert "torchrec" in modules_to_try(Stack(None, (), None))
    outcomes = {
        **dict.fromkeys(("torch", "fbgemm_gpu"), FINE),
        "torchrec": Outcome(version="1.8.0"),
        PLANNER: FINE,
    }
    found = findings(torch=None, fbgemm=(), torchrec=None, outcomes=outcomes)
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["torch"].text == "1.0, installed without metadata"


def test_torchrec_without_torch_is_a_problem():
    outcomes = failed("torch", "ModuleNotFoundError: torch", missing="torch")
    found = findings(torch=None, outcomes=outcomes)
    assert found["torch"].level == "problem"
    assert "torch==2.13.*" in found["torch"].fix


def test_torchrec_without_fbgemm_is_a_problem_even_if_torch_is_broken_too():
    for outcomes in (failed("torch"), failed("fbgemm_gpu", "x", missing="fbgemm_gpu")):
        found = findings(fbgemm=(), outcomes=outcomes)
        assert found["fbgemm"].level == "problem"
        assert found["fbgemm"].fix.endswith("pip install 'fbgemm-gpu-cpu==1.8.*'")


def test_two_fbgemms_are_a_problem():
    both = (Package("fbgemm-gpu", "1.8.0", "cuda"), FBGEMM)
    found = findings(fbgemm=both)["fbgemm"]
    assert found.level == "problem"
    assert "overwrite each other's files" in found.text
    assert "uninstall -y fbgemm-gpu fbgemm-gpu-cpu && " in found.fix


@pytest.mark.parametrize(
    ("fbgemm", "told"),
    [
        (Package("fbgemm-gpu-cpu", "1.7.0", "cpu"), "it was built for torch 2.12, 2.13.0+cpu"),
        (Package("fbgemm-gpu-cpu", "0.8.0", "cpu"), "its torch is unknown"),
        (Package("fbgemm-gpu", "1.8.0", "cuda"), "the cuda build with the CPU build of torch"),
        (Package("fbgemm-gpu-nightly-cpu", "2026.9.1", "cpu"), "a nightly build"),
    ],
)
def test_an_fbgemm_that_does_not_belong_here_but_can_be_imported_is_a_note(fbgemm, told):
    found = findings(fbgemm=(fbgemm,), driver=True)["fbgemm"]
    assert found.level == "note"
    assert told in found.text
    assert "fbgemm-gpu-cpu==1.8.*" in found.fix


def test_a_cpu_build_beside_a_cuda_torch_is_fine_without_a_driver():
    torch = Package("torch", "2.13.0", "cu130")
    assert findings(torch=torch)["fbgemm"].level == "ok"
    found = findings(torch=torch, driver=True)["fbgemm"]
    assert (found.level, "tables can't be trained on GPUs" in found.text) == ("note", True)
    assert "'fbgemm-gpu==1.8.*'" in found.fix


def test_builds_for_different_cuda_releases_are_a_note():
    found = findings(
        torch=Package("torch", "2.13.0+cu126", "cu126"),
        fbgemm=(Package("fbgemm-gpu", "1.8.0+cu130", "cu130"),),
    )["fbgemm"]
    assert (found.level, found.text) == (
        "note",
        "fbgemm-gpu 1.8.0+cu130: the cu130 build with the cu126 build of torch",
    )


@pytest.mark.parametrize("module", ["torch", "fbgemm_gpu", "torchrec", PLANNER])
def test_what_cannot_be_imported_is_a_problem(module):
    found = levels(outcomes=failed(module, "OSError: broken"))
    subject = {"fbgemm_gpu": "fbgemm", PLANNER: "planner"}.get(module, module)
    assert [name for name, level in found.items() if level == "problem"] == [subject]


@pytest.mark.parametrize("version", ["1.3.0", "2.0.0", "2026.9.1", "unknown"])
def test_a_torchrec_that_the_tests_do_not_know_is_a_note(version):
    found = findings(torchrec=Package("torchrec", version))
    assert (found["torchrec"].level, found["torchrec"].fix) == ("note", None)
    assert "1.8.0, 1.9.0, 1.9.1, 1.9.2" in found["torchrec"].text
    assert found["planner"].level == "ok"


@pytest.mark.parametrize("version", ["1.7.0", "2.0.0"])
def test_a_planner_that_fails_is_a_problem_with_any_torchrec(version):
    outcomes = {**WORKING, PLANNER: Outcome(errors=("ImportError: x",))}
    found = findings(torchrec=Package("torchrec", version), outcomes=outcomes)
    assert (found["planner"].level, found["planner"].text) == ("problem", "ImportError: x")


@pytest.mark.parametrize("python", [(3, 9), (3, 15)])
def test_where_torchrec_cannot_be_installed_the_reason_is_told(python):
    found = findings(torch=None, fbgemm=(), torchrec=None, outcomes={}, python=python)["torchrec"]
    assert (found.level, found.fix) == ("note", None)
    assert "FBGEMM has no builds for Python 3." in found.text


def test_a_torchrec_beside_another_torch_is_a_note():
    found = findings(torchrec=Package("torchrec", "1.9.2"))
    assert found["torchrec"].level == "note"
    assert "is for torch 2.14, not 2.13" in found["torchrec"].text
    assert found["planner"].level == "ok"


@pytest.fixture
def needs(monkeypatch):
    wanted = [Requirement("fbgemm-gpu", None), Requirement("tqdm", None)]
    wanted += [Requirement("torchmetrics", "1.0.3"), Requirement("pyre-extensions", None)]
    monkeypatch.setattr(stack_module, "requirements", lambda _: wanted)

    def present(**versions):
        monkeypatch.setattr(
            stack_module, "version_of", lambda name: versions.get(name.replace("-", "_"))
        )

    return present


def test_what_torchrec_needs_and_lacks_is_one_problem(needs):
    needs(tqdm="4.0")
    outcomes = failed("torchrec", "ModuleNotFoundError: x", missing="pyre_extensions")
    stack = Stack(TORCH, (FBGEMM,), TORCHREC)
    problems = [found for found in check_stack(stack, outcomes) if found.level == "problem"]
    assert len(problems) == 1
    assert problems[0].text == "needs torchmetrics==1.0.3, pyre-extensions, not installed"
    assert problems[0].fix.endswith("pip install torchmetrics==1.0.3 pyre-extensions")


def test_another_version_than_torchrec_asks_for_is_a_note(needs):
    needs(tqdm="4.0", torchmetrics="1.8.0", pyre_extensions="0.1")
    stack = Stack(TORCH, (FBGEMM,), TORCHREC)
    (note,) = [found for found in check_stack(stack, WORKING) if found.level != "ok"]
    assert (note.level, note.text) == ("note", "requires torchmetrics==1.0.3, not 1.8.0")
    assert note.fix.endswith("pip install torchmetrics==1.0.3")
