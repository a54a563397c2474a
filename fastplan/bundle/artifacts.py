"""What bytes of torch's compile artifacts look like from outside: nothing in them is read."""

from __future__ import annotations

from zlib import crc32

_VERSION = (1).to_bytes(8, "big")
_CHECKSUM = 4


def are_artifacts(data: bytes) -> bool:
    """Whether torch could have written them, and nothing changed them since.

    They begin with a version, before which newer releases of torch put the rest's checksum.
    """
    if data.startswith(_VERSION):
        return True
    rest = memoryview(data)[_CHECKSUM:]
    return rest[: len(_VERSION)] == _VERSION and data[:_CHECKSUM] == crc32(rest).to_bytes(4, "big")
