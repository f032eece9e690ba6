# SPDX-License-Identifier: Apache-2.0
"""The copy of the tree in build/mutate: which mutants compile, and the build.

The copy stays, and equal files keep their time stamps: the next run builds only
what changed."""
import concurrent.futures
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .render import HEADER, rendered

# No warnings: a broken line may well compare what is never equal. -O1, for the
# build takes longer than the tests. Columns are counted as Python counts bytes.
FLAGS = "-w -fdiagnostics-column-unit=byte -include "
SWITCH = re.compile(rb"mutant\((\d+)\)")
ROUNDS = 8  # of a build that still finds mutants that do not compile


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, check=True,
                          capture_output=True, text=True).stdout


def files_of(root):
    """The names of the files that git does not ignore."""
    listed = git(root, "ls-files", "-z", "--cached", "--others",
                 "--exclude-standard").split("\0")
    return {f for f in listed if f and (root / f).is_file()}


def includes(path):
    """What a file of the tree includes, by names from the tree's root."""
    return re.findall(r'^#include "(.*)"', path.read_text(), re.M)


class Workspace:
    def __init__(self, root, sources, numbered, options, cuda):
        """`sources`: file → its Source; `numbered`: number → mutant."""
        self.root, self.sources = Path(root), sources
        self.mutants = dict(numbered)
        self.copy = self.root / "build/mutate"
        self.build = self.copy / "build" / ("cuda" if cuda else "plain")
        self.header = self.copy / "build/mutant.h"
        self.options = [o for o in options if cuda or "_CUD" not in o]

    def in_file(self, file):
        return [n for n, m in self.mutants.items() if m.file == file]

    def text(self, file, numbers):
        return rendered(self.sources[file],
                        [(n, self.mutants[n]) for n in numbers])

    # ---- files

    def files(self):
        """(name, path) of each file of the copy, without its builds."""
        for path in sorted(self.copy.rglob("*")):
            name = path.relative_to(self.copy).as_posix()
            if not name.startswith("build/") and path.is_file():
                yield name, path

    def write(self):
        """Brings the copy up to date."""
        wanted = files_of(self.root)
        for name, path in self.files():
            if name not in wanted:
                path.unlink()
        broken = {m.file for m in self.mutants.values()}
        for name in sorted(wanted):
            data = (self.root / name).read_bytes()
            if name in broken:
                data = self.text(name, self.in_file(name)).encode()
            self._write(self.copy / name, data)
            shutil.copymode(self.root / name, self.copy / name)
        self._write(self.header, HEADER.encode())

    def _write(self, path, data):
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def configure(self):
        done = subprocess.run(
            ["cmake", "--preset", "release", "-B", self.build, *self.options,
             "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
             "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
             f"-DCMAKE_CXX_FLAGS={FLAGS}{self.header}"],
            cwd=self.copy, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"mutate: configuring {self.copy} failed\n{done.stderr}")

    # ---- which mutants compile

    def drop_not_compilable(self):
        """Compiles each broken file, syntax only. Returns the mutants that it
        drops."""
        commands = self._commands()
        files = sorted({m.file for m in self.mutants.values()})
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            bad = [n for found in pool.map(
                lambda file: self._bad(file, commands), files) for n in found]
        return self.drop(bad)

    def drop(self, numbers):
        return [self.mutants.pop(n) for n in sorted(set(numbers))]

    def _commands(self):
        """File → its entry of compile_commands.json, also for a file that a
        unity build or a wrapper includes."""
        found = {}

        def add(path, entry):
            if self.build in path.parents and path.is_file():
                for name in includes(path):
                    add(self.copy / name, entry)
            elif self.copy in path.parents:
                found.setdefault(path.relative_to(self.copy).as_posix(), entry)

        path = self.build / "compile_commands.json"
        for entry in json.loads(path.read_text()):
            add(Path(entry["file"]), entry)
        return found

    def _reader(self, file, commands):
        """A file that is compiled and contains `file`, or None: the one of the
        same name, or one near in the tree of includes."""
        same = file.rsplit(".", 1)[0] + ".cc"
        if file.endswith(".h") and same in commands:
            return same
        seen, todo = {file}, [file]
        for other in todo:
            if other in commands:
                return other
            new = sorted(self._included_by.get(other, set()) - seen)
            seen.update(new)
            todo += new
        return None

    @functools.cached_property
    def _included_by(self):
        """File → the files that include it."""
        found = {}
        for name, path in self.files():
            if path.suffix in (".cc", ".h", ".cu"):
                for other in includes(path):
                    found.setdefault(other, set()).add(name)
        return found

    def _bad(self, file, commands):
        """The numbers of the mutants in a file that do not compile. A file that
        can't be compiled ahead of the build is left to the build."""
        reader = self._reader(file, commands)
        if reader is None:
            return []
        numbers = self.in_file(file)

        def errors(chosen):
            return self._errors(file, reader, commands[reader], chosen)

        words = errors(numbers)
        if not words or errors([]):
            return []
        text = self.text(file, numbers)
        suspects = suspected(words, file, text) & set(numbers) or set(numbers)
        kept = [n for n in numbers if n not in suspects]
        if len(suspects) < len(numbers) and errors(kept):
            suspects, kept = set(numbers), []
        bad = []
        for number in sorted(suspects):
            if len(suspects) == 1 or errors(kept + [number]):
                bad.append(number)
            else:
                kept.append(number)
        return bad

    def _errors(self, file, reader, entry, numbers):
        """The compiler's messages about a file with these mutants."""
        with tempfile.TemporaryDirectory() as folder:
            changed = Path(folder, file)
            changed.parent.mkdir(parents=True)
            changed.write_text(self.text(file, numbers), encoding="utf-8")
            stub = Path(folder, "stub_of_the_check.cc")
            stub.write_text(f'#include "{reader}"\n')
            words = shlex.split(entry["command"])
            words = words[:words.index("-o")]
            done = subprocess.run(
                [words[0], "-I", folder, *words[1:], "-fsyntax-only", stub],
                cwd=entry["directory"], capture_output=True, text=True,
                errors="replace")
            return "" if done.returncode == 0 else done.stderr or "error"

    # ---- the build

    def build_targets(self, targets):
        """Returns the mutants that the build still drops."""
        dropped = []
        for _ in range(ROUNDS):
            done = subprocess.run(
                ["cmake", "--build", self.build, "--parallel",
                 str(os.cpu_count()), "--target", *targets, "--", "-k", "0"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace")
            if done.returncode == 0:
                return dropped
            bad = set()
            for file in {m.file for m in self.mutants.values()}:
                bad |= suspected(done.stdout, file, (self.copy / file)
                                 .read_text(encoding="utf-8"))
            bad &= set(self.mutants)
            if not bad:
                break
            dropped += self.drop(bad)
            self.write()
        sys.exit("mutate: the copy does not build, or this machine misses a "
                 f"tool\n{done.stdout[-8000:]}")


def suspected(words, file, text):
    """The numbers of the mutants that the compiler's errors point at: the last
    switch ahead of the place."""
    lines = text.encode().split(b"\n")
    places = re.findall(
        rf"^(?:In file included from )?\S*/{re.escape(file)}:(\d+):(\d+): +"
        r"(?:(?:fatal )?error:|required from)", words, re.M)
    found = set()
    for line, column in places:
        if int(line) <= len(lines):
            before = SWITCH.findall(lines[int(line) - 1][:int(column)])
            found |= {int(before[-1])} if before else set()
    return found
