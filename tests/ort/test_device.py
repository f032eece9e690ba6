# SPDX-License-Identifier: Apache-2.0
"""The option `device`, on machines without a GPU: one error when the session is made, and nothing else.
tests/cuda/ort_runner_test.cc compares results on the emulated device."""
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
from program import leave_out
from sessions import LIBRARY, ROOT, session

MODEL = ROOT / "tests/fixtures/mlp/d18.onnx"
CUDA = pathlib.Path(LIBRARY).with_name("libonnx_fp8_cuda.so")

# With the library and the device of the command line: the message, and a session on the CPU behind it.
CODE = f"""
import os, sys
os.environ["ONNX_FP8_ORT_LIBRARY"] = sys.argv[1]
sys.path[:0] = [{str(ROOT / "tests/ort")!r}, {str(ROOT / "tests/python")!r}]
import numpy, sessions
for _ in range(2):
    try:
        sessions.session({str(MODEL)!r}, {{"device": sys.argv[2]}})
        print("a session")
    except Exception as error:
        print(error)
x = numpy.ones((4, 24), numpy.float32)
assert sessions.session({str(MODEL)!r}, {{"device": "cpu"}}).run(None, {{"x": x}})[0].shape[0] == 4
"""


def messages(library, device):
    done = subprocess.run([sys.executable, "-c", CODE, library, device], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line]


def test_the_default_is_the_cpu():
    x = {"x": numpy.ones((3, 24), numpy.float32)}
    a, b = session(MODEL).run(None, x), session(MODEL, {"device": "cpu"}).run(None, x)
    numpy.testing.assert_array_equal(a[0], b[0])


@pytest.mark.parametrize("device", ["gpu", ""])
def test_other_devices_are_named(device):
    for message in messages(LIBRARY, device):
        assert f"[option ep.onnx_fp8.device] [provider {device}] expected one of cpu, cuda" in message


def test_a_build_without_cuda_says_how_to_get_it(tmp_path):
    alone = shutil.copy(LIBRARY, tmp_path)
    for message in messages(alone, "cuda"):
        assert (f"[option ep.onnx_fp8.device] [provider cuda] expected libonnx_fp8_cuda.so in {tmp_path}, got none: "
                "`./dev build --cuda` builds it") in message


def test_a_machine_without_a_gpu_is_told():
    if not CUDA.exists():
        return leave_out("the option device=cuda: this build has no libonnx_fp8_cuda.so")
    first, second = messages(LIBRARY, "cuda")
    if first == "a session":
        return leave_out("the option device=cuda without a GPU: this machine has one")
    assert first == second
    assert re.search(r"\[provider cuda\] expected an NVIDIA GPU and its driver, got (no driver|no GPU)", first)


def test_the_library_shows_its_entries_alone():
    names = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], text=True, capture_output=True, check=True).stdout
    assert {line.split()[-1] for line in names.splitlines()} == {
        "CreateEpFactories", "ReleaseEpFactory", "RegisterCustomOps"}
    sections = subprocess.run(["readelf", "-SW", LIBRARY], text=True, capture_output=True, check=True).stdout
    assert ".nv_fatbin" not in sections
