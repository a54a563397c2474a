"""Small files with ids, and a function that yields batches."""

import numpy as np

FEATURES = {"user": ("user",), "item": ("clicks", "views")}


def columns(seed, count=400):
    random = np.random.default_rng(seed)
    lengths = {name: random.integers(0, 4, count) for name in ("clicks", "views")}
    found = {"user": (random.zipf(1.5, count) % 1000, np.ones(count, np.int64))}
    found |= {name: (random.integers(0, 500, own.sum()), own) for name, own in lengths.items()}
    return found


def write_npz(path, seed):
    found = columns(seed)
    arrays = {"user": found["user"][0]}
    for name in ("clicks", "views"):
        arrays |= {name: found[name][0], f"{name}_lengths": found[name][1]}
    np.savez(path, **arrays)
    return str(path)


def write_parquet(path, seed, row_group_size=100):
    import pyarrow as pa
    from pyarrow import parquet

    found = columns(seed)
    table = {"user": found["user"][0], "other": np.zeros(400)}
    for name in ("clicks", "views"):
        ids, lengths = found[name]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        table[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    parquet.write_table(pa.table(table), path, row_group_size=row_group_size)
    return str(path)


class Tensor:
    """What a profile needs of a torch tensor."""

    def __init__(self, values):
        self._values = values

    def cpu(self):
        return self

    def numpy(self):
        return self._values


class Jagged:
    """What a profile needs of a KeyedJaggedTensor."""

    def __init__(self, found):
        self._found = found

    def keys(self):
        return list(self._found)

    def lengths(self):
        return Tensor(np.concatenate([lengths for _, lengths in self._found.values()]))

    def values(self):
        return Tensor(np.concatenate([ids for ids, _ in self._found.values()]))


def batches(rank, ranks):
    for seed in range(rank, 4, ranks):
        yield Jagged(columns(seed))


def by_module(rank, ranks):
    for batch in batches(rank, ranks):
        yield {"ebc": batch}


def nothing_useful(rank, ranks):
    yield [1, 2, 3]
