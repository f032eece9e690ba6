# SPDX-License-Identifier: Apache-2.0
"""Scripts in an environment that has PyTorch, with this package beside it."""
import os
import pathlib
import re
import subprocess

import program
import pytest

import onnx_fp8

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent


def with_torch(*words, cwd=None, packages=()):
    python = os.environ.get("ONNX_FP8_TORCH_PYTHON")
    if not python:
        program.leave_out("the Python package beside PyTorch, which is not installed")
        pytest.skip("no PyTorch")
    site = os.path.dirname(os.path.dirname(onnx_fp8.__file__))
    done = subprocess.run([python, *map(str, words)], capture_output=True, text=True, cwd=cwd,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join([site, *packages])})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sample():
    with_torch(ROOT / "samples/python/from_pytorch.py")


def test_modules():
    with_torch(HERE / "torch_modules.py")


def test_muon():
    with_torch(HERE / "torch_muon.py")


def test_export():
    with_torch(HERE / "torch_export.py")


def test_modules_of_others():
    """A third of ./dev modules."""
    packages = os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not packages:
        program.leave_out("modules of others beside PyTorch: their packages are not installed")
        pytest.skip("no packages of modules")
    with_torch(ROOT / "scripts/modules.py", "--ci", packages=[packages])


def test_a_published_checkpoint():
    packages = os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not packages:
        program.leave_out("a checkpoint of transformers: its packages are not installed")
        pytest.skip("no packages of modules")
    with_torch(HERE / "torch_checkpoint.py", packages=[packages])


def test_a_served_folder():
    packages = os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not packages:
        program.leave_out("a served folder in transformers: its packages are not installed")
        pytest.skip("no packages of modules")
    with_torch(HERE / "torch_served.py", packages=[packages])


def test_served_folders_of_compressed_tensors():
    """One process and one export serve all recipes."""
    packages = os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not packages:
        program.leave_out("a served folder in compressed-tensors: its packages are not installed")
        pytest.skip("no packages of modules")
    with_torch(HERE / "torch_compressed.py", packages=[packages])


def test_adapters_beside_peft():
    packages = os.environ.get("ONNX_FP8_MODULES_PACKAGES")
    if not packages:
        program.leave_out("adapters beside PEFT, which is not installed")
        pytest.skip("no PEFT")
    with_torch(HERE / "torch_peft.py", packages=[packages])


def test_statistics_come_back():
    with_torch(HERE / "torch_statistics.py")


def test_averages():
    with_torch(HERE / "torch_averages.py")


def test_losses():
    with_torch(HERE / "torch_losses.py")


def test_a_loader_with_workers():
    with_torch(HERE / "torch_loader.py")


@pytest.mark.parametrize("page", ["python", "losses"])
def test_the_documentation(page, tmp_path):
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / f"docs/{page}.md").read_text(), re.M | re.S)
    with_torch("-c", "".join(block for block in blocks if "import torch" in block), cwd=tmp_path)


@pytest.mark.parametrize("order", ["torch,onnx,onnxruntime,onnx_fp8", "onnx_fp8,onnxruntime,onnx,torch",
                                   "onnxruntime,onnx_fp8,torch,onnx"])
def test_all_in_one_process(order):
    """Pools of threads, OpenMP, protobuf and C++ runtimes, in any order of loading."""
    with_torch(HERE / "beside_torch.py", order)


def test_torchrun(tmp_path):
    with_torch("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, HERE / "torchrun_script.py", tmp_path)
