"""The notebooks in examples/: how to run them, and what of their outputs can be compared.

`python -m tests.examples.notebooks` runs them and writes their outputs into their files.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.command import ROOT, environment

EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
_SECONDS = 300
# Times that differ between runs.
_VARYING = re.compile(r"(?<=planned in )[\d.]+ m?s")


def read(name: str) -> Any:
    """Returns a notebook as it is in its file."""
    import nbformat

    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def run(name: str, folder: Path) -> Any:
    """Runs a notebook in an empty folder and returns it with its new outputs.

    Raises:
        CellExecutionError: a cell fails.
    """
    from nbclient import NotebookClient

    notebook = read(name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
    )
    # Cells call `fastplan` by its name: it is beside this interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client.execute(env=environment(PATH=path, NO_COLOR="1", IPYTHONDIR=str(folder / ".ipython")))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def texts(notebook: Any) -> Iterator[tuple[int, str]]:
    """Yields what cells show as text, with the number of the cell. Pictures are left out."""
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            shown = output.get("text") or data.get("text/markdown")
            if shown is None and "image/png" not in data:
                shown = data.get("text/plain")
            if shown is not None:
                yield number, _VARYING.sub("#", shown)


def pictures(notebook: Any) -> list[int]:
    """Returns the number of pictures of each cell."""
    return [
        sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
        for cell in notebook.cells
    ]


def main() -> None:
    """Runs all notebooks and writes their files."""
    import nbformat

    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(name, Path(folder)), EXAMPLES / f"{name}.ipynb")


if __name__ == "__main__":
    main()
