"""Opens folders one level at a time, so that no link inside the root is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

# The most names that are listed of a folder: another user may have written any number of them.
MOST_LISTED = 1 << 16
# Without descriptors of folders (Windows), paths are used, and every step checks for links.
_DESCRIPTORS = {os.open, os.mkdir, os.stat, os.unlink, os.rmdir, os.rename} <= os.supports_dir_fd
_MARKS_LINKS = os.utime in os.supports_follow_symlinks
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | getattr(os, "O_BINARY", 0)


class Folder:
    """An open folder, for a `with` statement. Methods take names in the folder, not paths, and
    raise OSError."""

    def __init__(self, path: str) -> None:
        """Opens the root, the only folder that may be reached through links."""
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY) if _DESCRIPTORS else None
        if self._fd is None and not stat.S_ISDIR(os.stat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def enter(self, name: str) -> Folder:
        """Opens a folder; raises NotADirectoryError if it is a link or a file."""
        inner = object.__new__(Folder)
        inner._path = os.path.join(self._path, name)
        inner._fd = None
        if self._fd is None:
            if not stat.S_ISDIR(self.stat(name).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "link or file instead of a folder", name)
            return inner
        try:
            inner._fd = os.open(name, _READ | os.O_DIRECTORY, dir_fd=self._fd)
        except OSError as error:
            # Systems use different error codes for links.
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
                raise NotADirectoryError(
                    errno.ENOTDIR, "link or file instead of a folder", name
                ) from None
            raise
        return inner

    def make(self, name: str) -> None:
        """Creates a folder unless the name exists."""
        with suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self._fd)

    def files(self) -> list[os.DirEntry[str]]:
        """Returns the regular files; their details can be read while the folder is open."""
        with os.scandir(self._path if self._fd is None else self._fd) as found:
            listed = islice(found, MOST_LISTED)
            return [entry for entry in listed if entry.is_file(follow_symlinks=False)]

    def folders(self) -> list[str]:
        """Returns the names of the folders, sorted."""
        with os.scandir(self._path if self._fd is None else self._fd) as found:
            listed = islice(found, MOST_LISTED)
            return sorted(entry.name for entry in listed if entry.is_dir(follow_symlinks=False))

    def details(self) -> os.stat_result:
        """Returns the details of this folder."""
        return os.stat(self._path if self._fd is None else self._fd)

    def stat(self, name: str) -> os.stat_result:
        """Returns the details of a file or folder without following links; a junction is a link."""
        info = os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
        if getattr(info, "st_file_attributes", 0) & stat.FILE_ATTRIBUTE_REPARSE_POINT:
            raise NotADirectoryError(errno.ENOTDIR, "link instead of a file or folder", name)
        return info

    def read(self, name: str, limit: int) -> bytes | None:
        """Returns the content of a file; None if it is not regular or longer than `limit`."""
        if self._fd is None and not stat.S_ISREG(self.stat(name).st_mode):
            return None
        try:
            fd = os.open(self._at(name), _READ, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):
                return None
            raise
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > limit:
                return None
            return os.read(fd, info.st_size)  # it may be growing
        finally:
            os.close(fd)

    def create(self, name: str) -> int:
        """Creates a file and returns its descriptor for writing."""
        return os.open(self._at(name), _CREATE, 0o666, dir_fd=self._fd)

    def replace(self, old: str, new: str) -> None:
        """Renames a file and replaces the file with the new name."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Removes a file."""
        os.unlink(self._at(name), dir_fd=self._fd)

    def remove_folder(self, name: str) -> None:
        """Removes an empty folder."""
        os.rmdir(self._at(name), dir_fd=self._fd)

    def mark(self, name: str) -> None:
        """Sets the time of a file to now, by the clock of the file system."""
        if _MARKS_LINKS:
            os.utime(self._at(name), dir_fd=self._fd, follow_symlinks=False)
        elif stat.S_ISREG(self.stat(name).st_mode):
            os.utime(self._at(name))

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name) if self._fd is None else name


class Way:
    """The open folders from a root down, for a `with` statement.

    Args:
        root: The path of the root.
        names: The folder in the root, the folder in that one, and so on.
        make: Whether to create folders that are missing.
    """

    def __init__(self, root: str, names: Iterable[str], *, make: bool) -> None:
        self._root = root
        self._names = names
        self._make = make
        self._folders: list[Folder] = []

    def __enter__(self) -> list[Folder]:
        try:
            self._folders.append(Folder(self._root))
            for name in self._names:
                if self._make:
                    self._folders[-1].make(name)
                self._folders.append(self._folders[-1].enter(name))
        except BaseException:
            self.__exit__()
            raise
        return self._folders

    def __exit__(self, *_: object) -> None:
        for folder in reversed(self._folders):
            folder.__exit__()
