"""The folders of cpp/: an order in which they include each other, and a line for every file."""

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cpp"
_INCLUDE = re.compile(r'^#include "([^"]+)"$', re.M)
_CODE = re.compile(r"`([^`\n]+)`")


def sources():
    return sorted(path.relative_to(CORE) for path in CORE.rglob("*.*"))


def table():
    """The table of docs/architecture.md: patterns of file names by folder, in its order."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    text = text.split("## The core (`cpp/`)\n")[1].split("\n## ")[0]
    found, folder = {}, ""
    for line in text.splitlines():
        if not line.startswith(("| `", "| |")):
            continue
        _, name, files, *_ = line.split("|")
        folder = name.strip(" `/") or folder
        found.setdefault(folder, []).extend(_CODE.findall(files))
    return found


def test_every_file_of_the_core_is_in_the_table():
    named = table()
    assert sorted(named) == sorted(path.name for path in CORE.iterdir())
    for folder, patterns in named.items():
        stems = {path.stem for path in sources() if path.parts[0] == folder}
        assert [stem for stem in stems if not any(fnmatch(stem, each) for each in patterns)] == []
        assert [each for each in patterns if not any(fnmatch(stem, each) for stem in stems)] == []


def test_folders_include_only_what_stands_above_them():
    order = list(table())
    includes = 0
    for path in sources():
        for name in _INCLUDE.findall((CORE / path).read_text()):
            assert (CORE / name).exists(), f"{path} includes {name}, which is not a path below cpp/"
            above = order[: order.index(path.parts[0]) + 1]
            assert name.split("/")[0] in above, f"{path} includes {name}"
            includes += 1
    assert includes > 100


def test_only_one_folder_knows_python():
    knows = re.compile(r"pybind11|Python\.h|\bpy::|\bPy[A-Z]\w+_")
    found = {path.parts[0] for path in sources() if knows.search((CORE / path).read_text())}
    assert found == {"python"}


def test_files_are_of_a_size_to_read():
    assert [path for path in sources() if len((CORE / path).read_text().splitlines()) > 400] == []
