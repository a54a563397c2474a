"""Reads bundles and checks what can be used on this installation."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastplan.bundle import compiled
from fastplan.bundle.compiled import CODE, KERNELS, differences, environment_facts
from fastplan.bundle.format import (
    ArtifactPart,
    Artifacts,
    Blob,
    BundleError,
    Content,
    Header,
    Kernel,
    KernelPart,
    PlanPart,
    read_header,
    read_part,
)
from fastplan.cache.entry import BadEntry, Entry, decode
from fastplan.cache.plan_cache import open_cache
from fastplan.files.storage import Read, Span, reader


class BundleMismatch(Exception):
    """The bundle is for another model or installation; `differences` lists the differences."""

    def __init__(self, found: list[str]) -> None:
        super().__init__("; ".join(found))
        self.differences = tuple(found)


class UntrustedCode(Exception):
    """Compiled code was requested without `trust=True`, or other users can write to its file."""


class StoredPlan(NamedTuple):
    """A plan of a bundle; `data` is the entry as bytes."""

    part: PlanPart
    entry: Entry
    data: bytes


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """The compiled code that was loaded.

    Attributes:
        artifacts: The number of compile artifacts.
        kernels: The number of CPU kernels.
        skipped: Why CPU kernels were skipped.
    """

    artifacts: int
    kernels: int
    skipped: tuple[str, ...] = ()


class Bundle:
    """A bundle with a valid header. Parts are read and checked on demand.

    Attributes:
        name: The file's name, for messages.
        header: The metadata.
        untrusted_because: Why its code can't be trusted: other users can have written it. None if
            only this user and root can.
    """

    def __init__(
        self, name: str, header: Header, read: Read, untrusted_because: str | None = None
    ) -> None:
        self.name = name
        self.header = header
        self.untrusted_because = untrusted_because
        self._read = read

    @property
    def has_code(self) -> bool:
        """Whether it contains compiled code."""
        return bool(self.header.artifacts or self.header.kernels)

    def plans(self) -> list[StoredPlan]:
        """Returns the plans, which are only data.

        Raises:
            BundleError: A plan is damaged.
        """
        return [self.plan(part) for part in self.header.plans]

    def plan(self, part: PlanPart) -> StoredPlan:
        """Returns one of the plans.

        Raises:
            BundleError: The plan is damaged, or from a version that can't be read.
        """
        data = self._part(part.span, f"plan {part.key}")
        try:
            entry = decode(data)
        except BadEntry as problem:
            raise BundleError(f"plan {part.key}: {problem}", self.name) from None
        if entry.key != part.key:
            raise BundleError(f"plan {part.key}: it belongs to the key {entry.key}", self.name)
        return StoredPlan(part, entry, data)

    def copy_to_cache(self, cache: Any) -> int:
        """Copies the plans into a plan cache.

        Args:
            cache: A Cache, or a value for a planner's `cache` argument.

        Returns:
            The number of plans.

        Raises:
            BundleError: A plan is damaged.
            StoreError: The cache failed.
            ValueError: There is no cache.
        """
        plans = open_cache(cache, timeout=60.0)
        if plans is None:
            raise ValueError("no cache is configured")
        found = self.plans()
        for plan in found:
            plans.store.write(plan.part.key, plan.part.name, plan.data)
        return len(found)

    def mismatches(self, facts: dict[str, str], model: str | None = None) -> list[str]:
        """Returns the differences between the compiled code and an installation.

        Args:
            facts: The installation's versions and device, as `header.facts` has those of the code.
            model: The model's name, which is compared if both are known.
        """
        other = []
        if None not in (model, self.header.model) and model != self.header.model:
            other = [f"model: made for {self.header.model}, this is {model}"]
        return other + differences(self.header.facts, facts, CODE)

    def kernel_mismatches(self, facts: dict[str, str]) -> list[str]:
        """Returns the differences between the CPU kernels and an installation."""
        return differences(self.header.facts, facts, KERNELS) if self.header.kernels else []

    def load_artifacts(
        self, *, trust: bool = False, model: str | None = None, slot: int = 0
    ) -> LoadedCode:
        """Loads the compiled code into this process's torch.

        Loading runs code from the file. The file must belong to this user or root, and no other
        user may be able to write to it. A bundle without code loads nothing.

        Args:
            trust: Allows it.
            model: The model's name, which must be the bundle's if both are known.
            slot: The local rank: code for GPUs belongs to one of a host's devices.

        Raises:
            UntrustedCode: `trust` is not True, or other users can write to the file.
            BundleMismatch: The code is for another model or installation.
            BundleError: The bundle is damaged.
            Exception: torch may raise other errors.
        """
        if not self.has_code:
            return LoadedCode(0, 0)
        if trust is not True:
            raise UntrustedCode(f"{self.name} contains compiled code: pass `trust=True` to load it")
        if self.untrusted_because is not None:
            raise UntrustedCode(f"{self.name} contains compiled code, but {self.untrusted_because}")
        facts = environment_facts(compiled.device_name(slot))
        if found := self.mismatches(facts, model):
            raise BundleMismatch(found)
        skipped = self.kernel_mismatches(facts)
        kernels = () if skipped else self.header.kernels
        # Everything is read first: a damaged bundle must not be loaded in part.
        artifacts = [self._part(part.span, "artifacts") for part in self._artifacts(slot)]
        libraries = {part.path: self._part(part.span, part.path) for part in kernels}
        for path, data in libraries.items():
            compiled.place_kernel(path, data)
        try:
            count = sum(map(compiled.load, artifacts))
        except ValueError as error:
            raise BundleError(str(error), self.name) from error
        return LoadedCode(count, len(libraries), tuple(skipped))

    def find_damage(self) -> list[str]:
        """Reads the whole bundle and lists the parts that don't match the header."""
        problems = []
        spans = [(part.span, "artifacts") for part in self.header.artifacts]
        spans += [(part.span, part.path) for part in self.header.kernels]
        for plan in self.header.plans:
            try:
                self.plan(plan)
            except BundleError as problem:
                problems.append(problem.reason)
        for span, what in spans:
            try:
                self._part(span, what)
            except BundleError as problem:
                problems.append(problem.reason)
        return problems

    def content(self) -> Content:
        """Returns the content for a new bundle, without plans that can't be read.

        Reading a damaged blob raises BundleError.
        """
        header = self.header
        return Content(
            model=header.model,
            facts=header.facts,
            plans={
                (part.key, part.name): self._blob(part)
                for part in header.plans
                if self._is_readable(part)
            },
            artifacts=tuple(
                Artifacts(frozenset(part.slots), part.names, self._blob(part))
                for part in header.artifacts
            ),
            kernels={
                part.path: Kernel(frozenset(part.slots), self._blob(part))
                for part in header.kernels
            },
        )

    def _is_readable(self, part: PlanPart) -> bool:
        try:
            self.plan(part)
        except BundleError:
            return False
        return True

    def _artifacts(self, slot: int) -> list[ArtifactPart]:
        """Returns the artifacts of a local rank, or the first ones if it has none."""
        own = [part for part in self.header.artifacts if slot in part.slots]
        return own or list(self.header.artifacts[:1])

    def _blob(self, part: PlanPart | ArtifactPart | KernelPart) -> Blob:
        span = part.span
        return Blob(span.size, span.checksum, lambda: self._part(span, "a part"))

    def _part(self, span: Span, what: str) -> bytes:
        try:
            return read_part(self._read, span, what)
        except BundleError as problem:
            raise BundleError(problem.reason, self.name) from None
        except OSError as error:
            reason = f"{what}: can't be read: {error.strerror or error}"
            raise BundleError(reason, self.name) from error


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Opens the bundle in a file. This runs none of its code.

    Args:
        path: The file.

    Raises:
        BundleError: The file is not a bundle, or damaged.
        OSError: The file can't be opened.
    """
    name = os.fspath(path)

    def read(at: int, length: int) -> bytes:
        with open(name, "rb", opener=_open_nonblocking) as stream:
            stream.seek(at)
            return stream.read(length)

    if os.path.isdir(name):
        raise BundleError("not a file", name)
    # The owner and the header come from one open file, and parts must have the checksums of that
    # header.
    with open(name, "rb", opener=_open_nonblocking) as stream:
        info = os.fstat(stream.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise BundleError("not a file", name)

        def read_now(at: int, length: int) -> bytes:
            stream.seek(at)
            return stream.read(length)

        try:
            header = read_header(read_now, info.st_size)
        except BundleError as problem:
            raise BundleError(problem.reason, name) from None
    return Bundle(name, header, read, _why_not_private(info))


def _open_nonblocking(path: str, flags: int) -> int:
    """Opens a file without blocking on a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _why_not_private(info: os.stat_result) -> str | None:
    """Returns why other users than this one and root can write to a file; None if they can't."""
    if not hasattr(os, "geteuid"):
        return None
    if info.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {info.st_uid}; change its owner (`chown`) to trust it"
    if info.st_mode & 0o022:
        return f"other users can write to it (mode {stat.S_IMODE(info.st_mode):o}); `chmod go-w` it"
    return None


def parse_bundle(data: bytes, name: str = "bundle") -> Bundle:
    """Reads the bundle in bytes.

    Args:
        data: The content of a bundle's file.
        name: The bundle's name in messages.

    Raises:
        BundleError: The bytes are not a bundle.
    """
    read = reader(data)
    return Bundle(name, read_header(read, len(data)), read)
