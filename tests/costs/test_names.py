"""Names that compiled functions compare with are those of the core."""

from fastplan.costs.names import Kernel, ShardingType
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES


def test_numbers_are_those_of_the_vocabulary():
    for names, kind in ((KERNELS, Kernel), (SHARDING_TYPES, ShardingType)):
        assert [member.name.lower() for member in kind] == list(names)
        assert [member.value for member in kind] == list(range(len(names)))
