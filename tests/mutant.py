"""A small wrong change of the code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old` stands once in `file` and becomes `new`; `tests` are pytest's paths or node ids."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def native(self) -> bool:
        """Whether the core must be built again."""
        return self.file.startswith("cpp/")
