"""What is compared, and how differences are told."""

import platform
import sys

import pytest

from fastplan.bundle import compiled
from fastplan.bundle.compiled import CODE, differences, environment_facts


def test_the_facts_of_this_installation():
    found = environment_facts("cpu")
    assert found["device"] == "cpu"
    assert found["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert found["machine"] == platform.machine()
    assert "features " in found["cpu"]
    assert all(found.values())
    assert environment_facts("cpu") == found


def test_what_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(compiled, "version_of", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not {"torch", "triton"} & set(environment_facts("cpu"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n", "12.6"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482'\n", "ROCm 6.4.43482"),
        ("cuda: Optional[str] = None\n", None),
        ("", None),
    ],
)
def test_cuda_is_told_by_torch_s_version_file(monkeypatch, tmp_path, text, expected):
    (tmp_path / "version.py").write_text(text)
    monkeypatch.setattr(compiled, "module_folder", lambda name: tmp_path)
    assert environment_facts("cpu").get("cuda") == expected


def test_triton_goes_by_several_names(monkeypatch):
    monkeypatch.setattr(compiled, "version_of", {"pytorch-triton": "3.4.0+git"}.get)
    assert environment_facts("cpu")["triton"] == "3.4.0+git"


def test_differences_are_told_in_words():
    made, here = {"torch": "2.7", "triton": "3.3"}, {"torch": "2.8", "cpu": "x"}
    assert differences(made, here, CODE) == [
        "torch: made with 2.7, here is 2.8",
        "triton: made with 3.3, here is none",
    ]
    assert differences(made, made, CODE) == []
