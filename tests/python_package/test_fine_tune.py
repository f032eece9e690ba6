# SPDX-License-Identifier: Apache-2.0
"""A published checkpoint is fine-tuned by the commands of samples/fine_tune, whose README has them."""
import os
import pathlib
import re
import shutil
import subprocess

import program
import pytest

import onnx_fp8

ROOT = pathlib.Path(__file__).resolve().parents[2]


def environment():
    """With PyTorch's Python first, this package, and the packages of models. Skips the test where these are missing."""
    python, packages = os.environ.get("ONNX_FP8_TORCH_PYTHON"), os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not python or not packages:
        program.leave_out("samples/fine_tune: PyTorch or the packages of models are not installed")
        pytest.skip("no PyTorch or no packages of models")
    site = os.path.dirname(os.path.dirname(onnx_fp8.__file__))
    return os.environ | {"PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}",
                         "PYTHONPATH": f"{site}:{packages}"}


def test_the_commands_fine_tune_a_checkpoint(tmp_path):
    env = environment()
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    (tmp_path / "build/release").mkdir(parents=True)
    (tmp_path / "build/release/onnx-fp8").symlink_to(program.BIN)
    page = (ROOT / "samples/fine_tune/README.md").read_text()
    commands = re.sub(r"^\./dev .*$", "", "".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)), flags=re.M)
    done = subprocess.run(["bash", "-euc", commands], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    # Evaluations print such lines: of the checkpoint, of the run and of the merged model.
    before, after, merged = (float(loss) for loss in re.findall(r"^loss +(\S+)$", done.stdout, re.M))
    in_peft = re.search(r"^PEFT: loss (\S+), accuracy (\S+)$", done.stdout, re.M)
    assert 0.6 < before < 0.8, before  # nearly ln 2
    assert after < before - 0.2, (before, after)
    assert abs(after - merged) < 0.02, (after, merged)  # with FP8 and without
    assert abs(float(in_peft[1]) - merged) < 1e-5, (in_peft[1], merged)
    assert float(in_peft[2]) > 0.75
