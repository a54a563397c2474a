"""Bundles as they are read: what is in one, and what of it can be used here."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastplan.bundle.content import Artifacts, Blob, Content, Kernel
from fastplan.bundle.facts import CODE, KERNELS, differences, installed_facts
from fastplan.bundle.format import (
    ArtifactPart,
    BadBundle,
    Header,
    KernelPart,
    PlanPart,
    Read,
    Span,
    read_header,
    read_part,
)
from fastplan.cache.entry import BadEntry, Entry, decode
from fastplan.cache.plan_cache import open_cache


class BundleMismatch(Exception):
    """The bundle was made for something else; `differences` names what differs."""

    def __init__(self, found: list[str]) -> None:
        super().__init__("; ".join(found))
        self.differences = tuple(found)


class NotTrusted(Exception):
    """Compiled code was asked for without saying that it is trusted, or others may have written
    it."""


class StoredPlan(NamedTuple):
    """A plan of a bundle; `data` is the entry as a plan cache keeps it."""

    part: PlanPart
    entry: Entry
    data: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """How much compiled code torch got: artifacts, and CPU kernels or why these were left out."""

    artifacts: int
    kernels: int
    skipped: tuple[str, ...] = ()


class Bundle:
    """A bundle whose header is right. Parts are read, and checked, when they are asked for.

    `other_writers` tells who else may have written its code: None for nobody but this user, or
    root.
    """

    def __init__(
        self, name: str, header: Header, read: Read, other_writers: str | None = None
    ) -> None:
        self.name = name
        self.header = header
        self.other_writers = other_writers
        self._read = read

    @property
    def has_code(self) -> bool:
        """Whether it holds compiled code beside plans."""
        return bool(self.header.artifacts or self.header.kernels)

    def plans(self) -> list[StoredPlan]:
        """The plans, which are data only. Raises BadBundle."""
        return [self.plan(part) for part in self.header.plans]

    def plan(self, part: PlanPart) -> StoredPlan:
        """One of the plans. Raises BadBundle."""
        data = self._part(part.span, f"plan {part.key}")
        try:
            entry = decode(data)
        except BadEntry as problem:
            raise BadBundle(f"plan {part.key}: {problem}", self.name) from None
        if entry.key != part.key:
            raise BadBundle(f"plan {part.key}: it belongs to the key {entry.key}", self.name)
        return StoredPlan(part, entry, data)

    def fill(self, cache: Any) -> int:
        """Puts the plans into a plan cache, or where a planner's `cache` argument says; returns how
        many. Raises BadBundle, and StoreError as the cache does."""
        plans = open_cache(cache, capacity_tolerance=0.01, timeout=60.0)
        if plans is None:
            raise ValueError("there is no cache to fill")
        found = self.plans()
        for plan in found:
            plans.store.write(plan.part.key, plan.part.name, plan.data)
        return len(found)

    def mismatches(self, facts: dict[str, str], model: str | None = None) -> list[str]:
        """Why the compiled code is not for such an installation; nothing when it is."""
        other = []
        if None not in (model, self.header.model) and model != self.header.model:
            other = [f"model: made for {self.header.model}, this is {model}"]
        return other + differences(self.header.facts, facts, CODE)

    def kernel_mismatches(self, facts: dict[str, str]) -> list[str]:
        """Why its CPU kernels are not for this processor; nothing when they are."""
        return differences(self.header.facts, facts, KERNELS) if self.header.kernels else []

    def load_artifacts(
        self, *, trust: bool = False, model: str | None = None, slot: int = 0
    ) -> Loaded:
        """Gives the compiled code to this process's torch.

        It is code: whoever wrote the file can make this process do anything. `trust` says that
        this is all right, and the file must belong to this user or root, with nobody else able to
        write to it. `model` is compared with the bundle's; `slot` is the local rank, since code for
        GPUs is made for one of a host's devices. A bundle without code has nothing to trust, and
        gives nothing.

        Raises NotTrusted, BundleMismatch when it was made with something else than there is here,
        BadBundle when it is damaged, and whatever torch raises.
        """
        if not self.has_code:
            return Loaded(0, 0)
        if trust is not True:
            raise NotTrusted(f"{self.name} holds compiled code: only `trust=True` loads it")
        if self.other_writers is not None:
            raise NotTrusted(f"{self.name} holds compiled code, and {self.other_writers}")
        from fastplan.bundle import compiled

        facts = installed_facts(compiled.device_name(slot))
        if found := self.mismatches(facts, model):
            raise BundleMismatch(found)
        skipped = self.kernel_mismatches(facts)
        kernels = () if skipped else self.header.kernels
        # All is read before torch gets anything: a damaged bundle leaves nothing behind.
        artifacts = [self._part(part.span, "artifacts") for part in self._artifacts(slot)]
        libraries = {part.path: self._part(part.span, part.path) for part in kernels}
        for path, data in libraries.items():
            compiled.place_kernel(path, data)
        try:
            count = sum(map(compiled.load, artifacts))
        except ValueError as error:
            raise BadBundle(str(error), self.name) from error
        return Loaded(count, len(libraries), tuple(skipped))

    def damage(self) -> list[str]:
        """Reads everything; tells what is not as the header says."""
        problems = []
        spans = [(part.span, "artifacts") for part in self.header.artifacts]
        spans += [(part.span, part.path) for part in self.header.kernels]
        for plan in self.header.plans:
            try:
                self.plan(plan)
            except BadBundle as problem:
                problems.append(problem.reason)
        for span, what in spans:
            try:
                self._part(span, what)
            except BadBundle as problem:
                problems.append(problem.reason)
        return problems

    def content(self) -> Content:
        """The bundle as it could be written again; reading a damaged blob raises BadBundle."""
        header = self.header
        return Content(
            model=header.model,
            facts=header.facts,
            plans={(part.key, part.name): self._blob(part) for part in header.plans},
            artifacts=tuple(
                Artifacts(frozenset(part.slots), part.names, self._blob(part))
                for part in header.artifacts
            ),
            kernels={
                part.path: Kernel(frozenset(part.slots), self._blob(part))
                for part in header.kernels
            },
        )

    def _artifacts(self, slot: int) -> list[ArtifactPart]:
        """Those of the local rank; the first ones where it has none of its own."""
        own = [part for part in self.header.artifacts if slot in part.slots]
        return own or list(self.header.artifacts[:1])

    def _blob(self, part: PlanPart | ArtifactPart | KernelPart) -> Blob:
        span = part.span
        return Blob(span.size, span.checksum, lambda: self._part(span, "a part"))

    def _part(self, span: Span, what: str) -> bytes:
        try:
            return read_part(self._read, span, what)
        except BadBundle as problem:
            raise BadBundle(problem.reason, self.name) from None
        except OSError as error:
            told = f"{what}: can't be read: {error.strerror or error}"
            raise BadBundle(told, self.name) from error


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """The bundle in a file. Nothing in it is run. Raises BadBundle, and OSError as open() does."""
    name = os.fspath(path)

    def read(at: int, length: int) -> bytes:
        with open(name, "rb", opener=_open_at_once) as stream:
            stream.seek(at)
            return stream.read(length)

    if os.path.isdir(name):
        raise BadBundle("not a file", name)
    # From one open file, so that what is known of its owner holds for this header; and parts must
    # have the checksums that the header tells.
    with open(name, "rb", opener=_open_at_once) as stream:
        told = os.fstat(stream.fileno())
        if not stat.S_ISREG(told.st_mode):
            raise BadBundle("not a file", name)

        def read_now(at: int, length: int) -> bytes:
            stream.seek(at)
            return stream.read(length)

        try:
            header = read_header(read_now, told.st_size)
        except BadBundle as problem:
            raise BadBundle(problem.reason, name) from None
    return Bundle(name, header, read, _other_writers(told))


def _open_at_once(path: str, flags: int) -> int:
    """Opens without waiting for somebody to write into a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _other_writers(told: os.stat_result) -> str | None:
    """Who may write to a file beside this user and root; None for nobody."""
    if not hasattr(os, "geteuid"):
        return None
    if told.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {told.st_uid}; `chown` it if it is to be trusted"
    if told.st_mode & 0o022:
        return f"others can write to it (mode {stat.S_IMODE(told.st_mode):o}); `chmod go-w` it"
    return None


def parse_bundle(data: bytes, name: str = "bundle") -> Bundle:
    """The bundle in bytes. Raises BadBundle."""

    def read(at: int, length: int) -> bytes:
        return data[at : at + length]

    return Bundle(name, read_header(read, len(data)), read)
