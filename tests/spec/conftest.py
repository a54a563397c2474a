import pytest


@pytest.fixture(autouse=True)
def no_user_files(monkeypatch):
    """SKUs of the user's own would be found beside the shipped ones."""
    monkeypatch.delenv("FASTPLAN_SKUS", raising=False)
