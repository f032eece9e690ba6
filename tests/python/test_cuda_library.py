# SPDX-License-Identifier: Apache-2.0
"""The provider cuda's library, libonnx_fp8_cuda.so beside the program, on machines without a GPU: what is said where it
is missing, or no library of this build."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from program import BIN, leave_out

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples/digits_mlp"
NAME = "libonnx_fp8_cuda.so"
BUILT = pathlib.Path(BIN).with_name(NAME)
BUILDS = "`./dev build --cuda` builds it"
FORECASTS = [("inspect", DIGITS / "digits_mlp.onnx", "--gpu", "h100", "--shape", "batch=8"),
             ("plan", DIGITS / "digits_mlp.onnx", "--gpu", "h100", "--mesh", "dp=2", "--loss", "cross_entropy")]
OF_CPU = "the forecast for h100 has the kernels and the plan of the provider cpu, whose memory differs: "


@pytest.fixture
def program(tmp_path):
    """The program in a folder without libraries."""
    return pathlib.Path(shutil.copy(BIN, tmp_path))


def complaint(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], text=True, capture_output=True, cwd=program.parent)
    assert done.returncode == 1, done
    return done.stderr


def forecast_of_cpu(program, words):
    return subprocess.run([program, *words, "--provider", "cpu"], text=True, check=True, capture_output=True).stdout


def train(program):
    return complaint(program, "train", DIGITS / "digits_mlp.onnx", "--data", DIGITS / "train.npz", "--loss",
                     "cross_entropy", "--steps", 1, "--provider", "cuda", "--out", "run")


def version_of(program):
    return json.loads(subprocess.run([program, "version", "--json"], capture_output=True, check=True).stdout)


def compiled(program, body):
    """A library of another program."""
    source = program.with_name("other.cc")
    source.write_text(body)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", program.with_name(NAME), source], check=True)


def test_a_missing_library(program):
    folder = program.parent
    missing = f"[provider cuda] expected {NAME} in {folder} or {folder}/../lib"
    for text in train(program), complaint(program, "inspect", DIGITS / "digits_mlp.onnx", "--provider", "cuda"):
        assert missing in text and text.endswith(f", got none: {BUILDS}\n"), text
    version = version_of(program)
    assert version["providers"] == "cpu" and version["cuda"].startswith(missing)
    # Without `--provider`, `plan` and `inspect --gpu` need no library. They say that the plan is the CPU's.
    for words in FORECASTS:
        shown = subprocess.run([program, *words], text=True, check=True, capture_output=True).stdout
        assert OF_CPU + "`./dev build --cuda` builds the provider cuda" in shown


def test_files_that_are_not_the_library(program):
    program.with_name(NAME).write_text("no library")
    cannot_open = f"[provider cuda] cannot open {program.with_name(NAME)}: "
    assert cannot_open in train(program)
    for words in FORECASTS:  # a damaged library is an error, not a missing one
        assert cannot_open in complaint(program, *words)
        assert OF_CPU + "`./dev build --cuda` builds the provider cuda" in forecast_of_cpu(program, words)
    version = version_of(program)
    assert version["providers"] == "cpu" and version["cuda"].startswith(cannot_open)
    compiled(program, "int nothing;")
    assert f"[{program.with_name(NAME)}] expected the function onnx_fp8_open_cuda, got none" in train(program)


def test_another_build(program):
    """Its classes may have other members."""
    compiled(program, 'extern "C" void* onnx_fp8_open_cuda(const char* interface) { return nullptr; }')
    assert f"[provider cuda] expected {NAME} of this build, got another build's: {BUILDS}" in train(program)


def test_the_library_of_this_build(program):
    if not BUILT.exists():
        leave_out(f"{NAME}, which this build lacks")
        return
    table = subprocess.run(["readelf", "-d", BUILT], text=True, capture_output=True, check=True).stdout
    assert not re.search(r"NEEDED.*(cuda|cublas|cudnn|nccl)", table)
    names = subprocess.run(["nm", "-D", "--defined-only", BUILT], text=True, capture_output=True, check=True).stdout
    assert [line.split()[-1] for line in names.splitlines()] == ["onnx_fp8_open_cuda"]
    # The program's own library, and one in an installation's folder.
    os.symlink(BUILT, program.with_name(NAME))
    version = version_of(program)
    assert version["providers"] == "cpu, cuda"
    for words in FORECASTS:
        shown = subprocess.run([program, *words], text=True, check=True, capture_output=True).stdout
        assert "provider cpu" not in shown
        assert OF_CPU + "--provider cuda has the kernels of a GPU" in forecast_of_cpu(program, words)
    if "expected an NVIDIA GPU" not in version["cuda"]:
        leave_out("the provider cuda without a GPU: this machine has one")
        return
    first = train(program)
    assert re.search(r"\[provider cuda\] expected an NVIDIA GPU and its driver, got (no driver|no GPU)", first)
    (program.parent / "bin").mkdir()
    (program.parent / "lib").mkdir()
    program.with_name(NAME).rename(program.parent / "lib" / NAME)
    assert train(program.rename(program.parent / "bin/onnx-fp8")) == first
