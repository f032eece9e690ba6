# SPDX-License-Identifier: Apache-2.0
"""A project outside of the tree can use an installed prefix. The tests install
the build that they test; nothing is built again."""
import os
import pathlib
import subprocess

import pytest

BIN = pathlib.Path(os.environ["ONNX_FP8_BIN"]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command, cwd, code=0):
    done = subprocess.run([*map(str, command)], cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code, f"{command}\n{done.stdout}"
    return done.stdout


def build_sample(prefix, build, cwd):
    """Builds the C++ sample from a copy of its folder alone."""
    source = build / "source"
    source.mkdir(parents=True)
    for file in (ROOT / "samples/cpp").iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    run("cmake", "-G", "Ninja", "-S", source, "-B", build,
        f"-DCMAKE_PREFIX_PATH={prefix}", cwd=cwd)
    run("cmake", "--build", build, cwd=cwd)
    return build / "train_digits"


def test_the_sample_builds_and_trains_outside_the_tree(tmp_path):
    # A prefix works after it was moved.
    made, prefix = tmp_path / "made", tmp_path / "prefix"
    run("cmake", "--install", BIN.parent, "--prefix", made, cwd=tmp_path)
    made.rename(prefix)
    # The prefix names no file of the tree or of our cache.
    for file in prefix.rglob("*.cmake"):
        assert "onnx_fp8/onnx-" not in file.read_text(), file
        assert str(ROOT) not in file.read_text(), file
    program = build_sample(prefix, tmp_path / "build", tmp_path)

    (tmp_path / "samples").symlink_to(ROOT / "samples")
    lines = run(program, "out", cwd=tmp_path).splitlines()
    first, last = (float(line.split()[-1]) for line in (lines[0], lines[-1]))
    assert len(lines) == 5 and last < first

    installed = prefix / "bin/onnx-fp8"
    result = run(installed, "eval", "out/trained.onnx", "--loss",
                 "cross_entropy", "--data", "samples/digits_mlp/val.npz",
                 cwd=tmp_path)
    assert "loss" in result


def test_public_headers_are_what_a_session_needs(tmp_path):
    run("cmake", "--install", BIN.parent, "--prefix", tmp_path, cwd=tmp_path)
    include = tmp_path / "include/onnx_fp8"
    headers = {h.relative_to(include).as_posix() for h in include.rglob("*.h")}
    assert {"onnx_fp8/session.h", "onnx_fp8/trainer.h"} <= headers
    assert not {h for h in headers if h.startswith(("graph/", "providers/"))}


@pytest.mark.parametrize("arguments, words", [
    ([], "usage: ./dev install PREFIX"),
    (["a", "b"], "usage: ./dev install PREFIX"),
    (["/proc/1/onnx_fp8"], "cannot write to '/proc/1/onnx_fp8'"),
    ([__file__], f"cannot write to '{__file__}'"),
])
def test_what_install_refuses(arguments, words, tmp_path):
    assert words in run(ROOT / "dev", "install", *arguments, cwd=tmp_path,
                        code=1)
