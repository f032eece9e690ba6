# SPDX-License-Identifier: Apache-2.0
"""What the machines with one kind of GPU have shown so far: a JSON file in a
folder, so that half a window counts. A call that follows within the same window
goes on where the one before stopped."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import time

from gpu import runs

WINDOW = 1800  # seconds; a machine is lent for less


def gpu_name(provider):
    """The name of the file for this machine."""
    smi = shutil.which("nvidia-smi")
    if provider != "cuda" or not smi:
        return provider
    done = runs.run([smi, "--query-gpu=name", "--format=csv,noheader"], 10,
                    errors=False)
    lines = done.out.splitlines()
    return re.sub(r"[^a-z0-9]+", "-", lines[0].lower()).strip("-") if lines \
        else provider


def digest(file):
    file = pathlib.Path(file)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""


class History:
    """`program`: names the build; another build goes on with nothing."""

    def __init__(self, folder, name, program):
        self._path = pathlib.Path(folder) / f"{name}.json" if folder else None
        self._program = program
        self._all = {"tests": [], "entries": []}  # the newest one last
        if self._path and self._path.exists():
            self._all |= json.loads(self._path.read_text())

    def tests(self):
        """The tests that have ever passed on such a GPU."""
        return set(self._all["tests"])

    def before(self, title):
        """The section's entry of this build in this window, or None."""
        for entry in self._all["entries"]:
            if (entry["section"], entry["program"]) == (title, self._program) \
                    and time.time() - entry["time"] < WINDOW:
                return entry
        return None

    def add(self, title, outcome, passed_tests=()):
        """An entry with the outcome (Section.outcome), in the place of the one
        before in this window."""
        if not self._path or outcome["left_out"]:
            return
        self._all["tests"] = sorted(self.tests() | set(passed_tests))
        before = self.before(title)
        self._all["entries"] = [
            entry for entry in self._all["entries"] if entry is not before]
        self._all["entries"].append({
            "section": title, "time": int(time.time()),
            "program": self._program, **outcome})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self._all, indent=1) + "\n")
        os.replace(draft, self._path)
