"""Mutants of checkpoints; see mutant_list."""

from tests.mutant import Mutant

CHECKPOINT = (
    Mutant(
        name="checkpoint-nested-weights-are-states",
        file="fastplan/checkpoint/sources.py",
        old="            if entry.key in weights:\n                continue\n",
        new="",
        tests=("tests/checkpoint/test_sources.py",),
    ),
    Mutant(
        name="checkpoint-saves-without-the-optimizer",
        file="fastplan/checkpoint/saving.py",
        old="    if states:\n        _check_optimizer(tables, optimizer)\n",
        new="",
        tests=("tests/torchrec/test_checkpoint.py",),
    ),
    Mutant(
        name="checkpoint-sums-are-momenta",
        file="fastplan/checkpoint/loading.py",
        old="    if state.name == MOMENTUM_BUFFER and not table.is_fused:\n",
        new="    if False:\n",
        tests=("tests/torchrec/test_checkpoint.py",),
    ),
    Mutant(
        name="checkpoint-metadata-admits-other-names",
        file="fastplan/checkpoint/metadata.py",
        old="        if full in _RECORDS:\n",
        new="        if full in _RECORDS or full.startswith('pathlib.'):\n",
        tests=("tests/checkpoint/test_metadata.py",),
    ),
    Mutant(
        name="checkpoint-reads-files-of-others",
        file="fastplan/checkpoint/metadata.py",
        old='if not file or "/" in file or',
        new="if not file or",
        tests=("tests/checkpoint/test_metadata.py",),
    ),
    Mutant(
        name="checkpoint-merges-without-a-look",
        file="fastplan/checkpoint/copying.py",
        old="                first = row if first is None else min(first, row)\n",
        new="                first = None\n",
        tests=("tests/checkpoint/test_convert.py",),
    ),
    Mutant(
        name="checkpoint-stacks-rows-first",
        file="fastplan/checkpoint/sources.py",
        old="key=lambda region: (region.column, region.row)",
        new="key=lambda region: (region.row, region.column)",
        tests=("tests/checkpoint/test_sources.py",),
    ),
    Mutant(
        name="checkpoint-convert-leaves-a-part",
        file="fastplan/checkpoint/converting.py",
        old="            shutil.rmtree(folder, ignore_errors=True)\n",
        new="",
        tests=("tests/checkpoint/test_convert.py",),
    ),
)
