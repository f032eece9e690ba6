# SPDX-License-Identifier: Apache-2.0
"""scripts/same.py: a build equals itself, and differs from one that draws other numbers."""
import pathlib
import subprocess
import sys

from program import BIN, FIXTURES

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def same(*arguments, **where):
    return subprocess.run([sys.executable, ROOT / "scripts/same.py", *arguments], capture_output=True, text=True,
                          **where)


def test_same_bits_or_not(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mlp").symlink_to(FIXTURES / "mlp")
    done = same("--isa", "portable", f"env {BIN}", "models", cwd=tmp_path)
    assert done.returncode == 0 and "2 of 2 models are the same" in done.stdout, done.stdout + done.stderr
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\ncommand=$1\nshift\ncase $command in train) set -- "$@" --lr 0.5;; esac\nexec {BIN} $command "$@"\n')
    other.chmod(0o755)
    done = same(other, tmp_path / "models")
    assert done.returncode == 1 and "0 of 2 models are the same" in done.stdout, done.stdout + done.stderr
    assert "state.safetensors differs" in done.stdout and "g.safetensors differs" not in done.stdout
    assert same(BIN, tmp_path).returncode == 1  # no models
