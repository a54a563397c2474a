"""Installations to look at: folders with packages that do what a test says."""

import json
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIP = f"{sys.executable} -m pip"


class Site:
    """A folder of packages. Nothing else but Python's own library is seen by what `doctor` runs."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def package(self, name, version, code="", *, module=None, requires=(), metadata=True):
        """A package whose module runs `code` when it is imported."""
        module = module or name.replace("-", "_")
        (self.path / module).mkdir(parents=True, exist_ok=True)
        (self.path / module / "__init__.py").write_text(
            f"__version__ = {version.partition('+')[0]!r}\n{code}"
        )
        if metadata:
            folder = self.path / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
            lines += [f"Requires-Dist: {line}" for line in requires]
            (folder / "METADATA").write_text("\n".join(lines) + "\n")
        return self

    def file(self, path, text):
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(text)
        return self

    def required(self):
        """The real packages that fastplan requires for planning spec files."""
        for name in ("numpy", "platformdirs"):
            (found,) = PathFinder.find_spec(name).submodule_search_locations
            for source in (Path(found), Path(found + ".libs"), Path(distribution(name)._path)):
                if source.exists():
                    (self.path / source.name).symlink_to(source)
        return self

    def torch(self, version="2.13.0+cpu", cuda=None, code=""):
        text = f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
        more = "\nclass cuda:\n    is_available = staticmethod(lambda: False)\n"
        return self.package("torch", version, code + more).file("torch/version.py", text)

    def fbgemm(self, version="1.8.0", code="", name="fbgemm-gpu-cpu"):
        return self.package(name, version, code, module="fbgemm_gpu")

    def torchrec(self, version="1.8.0", code="", requires=("fbgemm-gpu",)):
        return self.package("torchrec", version, code, requires=requires)

    def doctor(self, *words, **variables):
        """The ended process of `fastplan doctor` in an environment of just this site."""
        kept = {"PATH": "", "HOME": str(self.path), "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
        path = os.pathsep.join((str(self.path), str(ROOT)))
        return subprocess.run(
            [sys.executable, "-S", "-m", "fastplan", "doctor", *words],
            capture_output=True,
            text=True,
            env={**kept, "PYTHONPATH": path, **variables},
            timeout=120,
        )

    def findings(self, **variables):
        """Exit code, and the findings by subject as (level, text, fix)."""
        ended = self.doctor("--json", **variables)
        assert ended.stderr == ""
        found = {}
        for finding in json.loads(ended.stdout)["findings"]:
            told = (finding["level"], finding["text"], finding["fix"])
            found.setdefault(finding["subject"], []).append(told)
        return ended.returncode, found
