# SPDX-License-Identifier: Apache-2.0
"""The parts of ./dev bench ranks that need no PyTorch."""
import json
import pathlib
import shutil
import sys

import pytest
from program import BIN, leave_out, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from bench import ranks, task  # noqa: E402


def test_bytes_by_formula():
    assert ranks.by_formula("ddp", 4, 1000) == 1500
    assert ranks.by_formula("fsdp2", 2, 1000) == 1500
    assert ranks.by_formula("ddp", 1, 1000) == 0


def test_our_bytes_are_those_of_the_formula(tmp_path, monkeypatch):
    if not shutil.which(ranks.mpirun()):
        leave_out("bytes of several ranks: MPI is not installed")
        pytest.skip("no MPI")
    for name, value in {"BATCH": 4, "SEQ": 16, "TOKENS": 64, "VOCABULARY": 256}.items():
        monkeypatch.setattr(task, name, value)
    shutil.copy(ROOT / "samples/gpt_tiny/gpt_tiny.onnx", tmp_path / ranks.FILE)
    task.write_tokens(tmp_path / "tokens.bin", 32)
    found = json.loads(run("inspect", tmp_path / ranks.FILE, "--shape", "batch=4,seq=16", "--json").stdout)
    size = found["memory"]["parameters"]
    turn = ranks.ours(BIN, tmp_path, "onnx-fp8 dp", 2, 3)
    assert len(turn["seconds"]) == 3
    whole = ranks.by_formula("ddp", 2, size)
    assert whole <= turn["bytes"] < 1.02 * whole
    # All-gathers of FP8 are smaller than the all-gather within an all-reduce.
    assert ranks.ours(BIN, tmp_path, "onnx-fp8 parameters, tensorwise", 2, 3)["bytes"] < whole
    assert ranks.ours(BIN, tmp_path, "onnx-fp8 parameters", 1, 3)["bytes"] == 0
