"""Only TorchRec versions whose plans are reproduced are accepted."""

import pytest

from fastplan.torchrec import compat


@pytest.mark.parametrize("version", ["1.8.0", "1.9.2"])
def test_supported_versions_pass(version):
    assert compat.check(version) == version


@pytest.mark.parametrize("version", ["1.7.0", "2.0.0", "unknown"])
def test_other_versions_are_an_error_that_names_the_supported_ones(version):
    with pytest.raises(ImportError, match=r"1\.8\.0 and 1\.9\.2") as error:
        compat.check(version)
    assert version in str(error.value)


def test_the_installed_version_is_a_supported_one():
    assert compat.installed() in compat.VERSIONS
