"""An installation to fill."""

import pytest

from tests.doctor.sites import Site


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")
