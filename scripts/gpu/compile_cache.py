# SPDX-License-Identifier: Apache-2.0
"""What PyTorch has compiled, in an archive beside the history: the next machine
with such a GPU compiles less. The archive may be deleted at any time."""
import gzip
import os
import pathlib
import shutil
import tarfile
import tempfile
import zlib

MOST_BYTES = 20 << 20  # of the archive
# What the headers of an archive and the buffers of its compression may add.
MARGIN = 1 << 20


def environment(folder):
    """The variables that let PyTorch and Triton keep all of it in `folder`."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}


class CompileCache:
    """`archive`: None for none."""

    def __init__(self, folder, archive, most=MOST_BYTES):
        self._folder, self._archive = pathlib.Path(folder).absolute(), archive
        self._most, self._packed = most, None

    def environment(self):
        return environment(self._folder)

    def unpack(self):
        """Returns what was wrong with the archive, or ''."""
        if not self._archive or not self._archive.exists():
            return ""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder.parent) as draft:
            draft = pathlib.Path(draft)
            try:
                refused = _extract(self._archive, draft)
                shutil.copytree(draft, self._folder, dirs_exist_ok=True)
            except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
                return f"{self._archive.name} is ignored: {error}"
        self._packed = self._state()
        if refused:
            return f"{self._archive.name}: refused {', '.join(refused)}"
        return ""

    def pack(self):
        """Writes the archive if there is anything new. Returns what it says for
        a report, or ''."""
        state = self._state()
        if not self._archive or not state or state == self._packed:
            return ""
        self._archive.parent.mkdir(parents=True, exist_ok=True)
        draft = self._archive.with_suffix(".new")
        left_out = _write(draft, self._folder, state, self._most)
        os.replace(draft, self._archive)
        self._packed = state
        text = (f"{self._archive.name}: {len(state) - left_out} files, "
                f"{self._archive.stat().st_size / 2**20:.1f} MiB.")
        if left_out:
            text += (f" {left_out} older or larger files are left out, because "
                     f"an archive has at most {self._most / 2**20:g} MiB.")
        return text

    def _state(self):
        """[(time, size, name)] of all files, the newest first."""
        found = []
        for path in self._folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                about = path.stat()
                found.append((about.st_mtime, about.st_size,
                              str(path.relative_to(self._folder))))
        return sorted(found, reverse=True)


def _write(draft, folder, state, most):
    """Returns the number of files that might not fit."""
    left_out = 0
    with open(draft, "wb") as raw:
        with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6) as archive:
            for _, size, name in state:
                if raw.tell() + size + MARGIN > most:
                    left_out += 1
                else:
                    archive.add(folder / name, arcname=name)
    return left_out


def _extract(archive, folder):
    """Returns the names that don't lie in the folder or are no files."""
    refused = []
    with gzip.open(archive) as stream, \
            tarfile.open(fileobj=stream, mode="r:") as members:
        for member in members:
            path = pathlib.PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not (
                    member.isfile() or member.isdir()):
                refused.append(member.name)
            elif member.isfile():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with members.extractfile(member) as source, \
                        open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink)
                os.utime(target, (member.mtime, member.mtime))
        while stream.read(1 << 20):  # its checksum comes last
            pass
    return refused
