import pytest
import yaml


@pytest.fixture(params=["libyaml", "python"])
def loader(request, monkeypatch):
    """Either of PyYAML's parsers."""
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML without libyaml")
