# SPDX-License-Identifier: Apache-2.0
"""The Python of the documentation and of samples/python runs as it stands."""
import pathlib
import re
import shutil
import subprocess
import sys

import nbclient
import nbformat
import program
import pytest

import onnx_fp8.ort

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ROOT / "samples", tmp_path / "samples")
    return tmp_path


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_blocks_of_the_documentation(page, tree):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert blocks
    if not (pathlib.Path(onnx_fp8.__file__).parent / "libonnx_fp8_ort.so").exists():
        blocks = [b for b in blocks if "onnx_fp8.ort" not in b]
    blocks = [b for b in blocks if "import torch" not in b]
    code = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_notebook(tree):
    notebook = nbformat.read(ROOT / "samples/python/what_fp8_does.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tree}}).execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert sum("image/png" in o.get("data", {}) for o in outputs) == 3
    assert not any(o.output_type == "stream" and o.name == "stderr" for o in outputs), outputs


def has_library(test):
    """Whether the build has the library for ONNX Runtime; else the test is told to be left out."""
    there = (pathlib.Path(onnx_fp8.__file__).parent / "libonnx_fp8_ort.so").exists()
    if not there:
        program.leave_out(f"{test}: the build has no library for ONNX Runtime")
    return there


def test_onnxruntime():
    if not has_library("samples/python/in_onnxruntime.py"):
        return
    subprocess.run([sys.executable, ROOT / "samples/python/in_onnxruntime.py"], check=True)


STEP = """
import onnxruntime, onnx_fp8, onnx_fp8.ort
onnx_fp8.rewrite("samples/digits_mlp/digits_mlp.onnx", "step.onnx", loss="cross_entropy", shape={"batch": 8})
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(onnx_fp8.ort.register(ARGUMENTS), {})
onnxruntime.InferenceSession("step.onnx", options)
"""


@pytest.mark.parametrize("arguments, warns", [("", False), ("severity=None", True)])
def test_onnxruntime_opens_a_written_step(tree, arguments, warns):
    if not has_library("a written step"):
        return
    done = subprocess.run([sys.executable, "-c", STEP.replace("ARGUMENTS", arguments)], cwd=tree, check=True,
                          capture_output=True, text=True)
    assert ("[W:onnxruntime" in done.stderr) == warns
