import pytest
import yaml


@pytest.fixture(params=["libyaml", "python"])
def loader(request, monkeypatch):
    """Either of PyYAML's parsers."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")


@pytest.fixture(autouse=True)
def no_user_files(monkeypatch):
    """SKUs of the user's own would be found beside the shipped ones."""
    monkeypatch.delenv("FASTPLAN_SKUS", raising=False)
