# SPDX-License-Identifier: Apache-2.0
"""Malformed models, data, weights, checkpoints and flags: each is refused with one error that explains it.

The cases lie in bad_input/, by the kind of input.
"""
import ctypes
import os
import pathlib
import re
import stat
import subprocess

import pytest
from bad_input import checkpoints, data, dumps, external, flags, graphs, hostile, losses, models, outputs, scales, steps, weights
from bad_input.case import save
from program import BIN

CASES = [
    pytest.param(case, id=f"{module.__name__.rpartition('.')[2]}-{case.name}")
    for module in (models, graphs, hostile, external, data, weights, checkpoints, scales, steps, outputs, flags, losses, dumps)
    for case in module.CASES
]
SECONDS = 120  # a hang, even under a sanitizer

# Output of a program that did not end by itself, or of a library in it.
NOISE = re.compile(
    r"Sanitizer|runtime error:|terminate called|what\(\)|core dumped|libprotobuf|stack trace|std::|vector::|basic_string"
    r"|json\.exception|/onnx/defs/")


def drop_override():
    """Root may write everywhere; without these two capabilities permissions hold for it as for any user."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
            raise OSError(ctypes.get_errno(), "prctl")


def snapshot(folder):
    """The content of every path below: a folder, the target of a link, the bytes of a file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        else:
            content = None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(mode), content)
    return found


def error_lines(stderr):
    told = ("onnx-fp8: note: ", "onnx-fp8: resuming at step ")
    return [line for line in stderr.splitlines() if not line.startswith(told)]


@pytest.mark.parametrize("case", CASES)
def test_is_refused(case, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    command = list(map(str, case.make(folder)))
    before = snapshot(tmp_path)
    done = subprocess.run([BIN, *command], cwd=folder, capture_output=True, timeout=SECONDS,
                          preexec_fn=drop_override if case.drop_override else None)
    stderr = done.stderr.decode()  # names in a message must not break it
    shown = f"{command}\n{stderr[-3000:]}"
    assert done.returncode == case.code, f"exit code {done.returncode}\n{shown}"
    assert not NOISE.search(stderr), shown
    assert done.stdout == b"", shown
    lines = error_lines(stderr)
    start = "onnx-fp8: " if case.code == 1 else f"onnx-fp8 {command[0]}: "
    assert len(lines) == case.code and lines[0].startswith(start), shown
    if case.code == 2:
        assert lines[1] == f"onnx-fp8 {command[0]} --help shows how it is used"
    text = lines[0].replace(str(folder), "DIR")
    for words in case.words:
        assert words in text, f"expected {words!r}\n{shown}"
    assert len(text) < 5000, shown
    after = snapshot(tmp_path)
    allowed = {f"in/{path}" for path in case.leaves}
    changed = {path for path in before if after.get(path) != before[path]}
    assert changed <= allowed, f"{changed - allowed}\n{shown}"
    allowed |= {str(folder) for path in allowed for folder in pathlib.PurePath(path).parents}
    added = after.keys() - before.keys()
    assert added <= allowed, f"left behind: {added - allowed}\n{shown}"


@pytest.mark.parametrize("name", hostile.MODELS)
def test_rewrite_ends_by_itself(name, tmp_path):
    """It needs no shapes, so it may accept files that other commands refuse."""
    save(hostile.MODELS[name](), tmp_path / "m.onnx")
    done = subprocess.run([BIN, *hostile.COMMANDS["rewrite"]], cwd=tmp_path, capture_output=True, timeout=SECONDS)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    assert not NOISE.search(done.stderr.decode()), done.stderr[-3000:]


def test_the_list_is_long_and_names_are_unique():
    ids = [param.id for param in CASES]
    assert len(set(ids)) == len(ids) >= 100
    for param in CASES:
        assert param.values[0].words and max(map(len, param.values[0].words)) >= 15, param.id
