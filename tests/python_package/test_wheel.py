# SPDX-License-Identifier: Apache-2.0
"""The installed wheel: its files, its symbols, its program."""
import base64
import hashlib
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys

import digits
import program
import pytest

import onnx_fp8
import onnx_fp8.ort

PACKAGE = pathlib.Path(onnx_fp8.__file__).parent


def run(*command, code=0):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_files_of_the_wheel():
    files = {str(f) for f in importlib.metadata.files("onnx-fp8")}
    assert {"onnx_fp8/_core.pyi", "onnx_fp8/py.typed", "onnx_fp8/include/onnx_fp8/session.h",
            "onnx_fp8/libonnx_fp8_mpi.so", "onnx_fp8/libonnx_fp8_crypto.so"} <= files
    assert any(name.endswith("/NOTICE") for name in files)
    wheel = importlib.metadata.distribution("onnx-fp8").read_text("WHEEL")
    assert re.search(r"^Tag: cp3\d+-\w+-manylinux_2_\d+_x86_64$", wheel, re.M)
    assert onnx_fp8.__version__ == importlib.metadata.version("onnx-fp8")


def test_the_list_of_what_is_inside():
    files = importlib.metadata.files("onnx-fp8")
    for file in files:
        assert file.hash or file.suffix == ".pyc" or file.name == "RECORD", file
        if file.hash:
            found = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, file.read_binary()).digest()).rstrip(b"=").decode()
            assert file.hash.value == found, file
    [listed] = [file for file in files if file.name == "onnx_fp8.cdx.json"]
    assert listed.parent.name == "sboms" and listed.parent.parent.suffix == ".dist-info"
    text = listed.read_text()
    [beside] = pathlib.Path(sys.prefix).parent.glob("*.whl.cdx.json")
    assert beside.read_text() == text
    document = json.loads(text)
    assert document["metadata"]["component"]["version"] == onnx_fp8.__version__
    parts = {part["name"]: part["version"] for part in document["components"]}
    assert {"ONNX", "Protocol Buffers", "Abseil", "OpenSSL libcrypto", "nanobind", "zlib"} <= set(parts)
    assert ("ONNX Runtime" in parts) == (PACKAGE / "libonnx_fp8_ort.so").exists()
    versions = json.loads(program.run("version", "--json").stdout)
    assert (parts["ONNX"], parts["Protocol Buffers"]) == (versions["onnx"], versions["protobuf"])


def test_the_extension_shows_one_symbol_and_needs_no_more_than_the_system():
    [core] = PACKAGE.glob("_core*.so")
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", core).splitlines()]
    assert symbols == ["PyInit__core"]
    needed = re.findall(r"NEEDED +(\S+)", run("objdump", "-p", core))
    ours = {f.name for f in PACKAGE.parent.glob("onnx_fp8.libs/*")}
    system = re.compile(r"lib(c|m|z|gcc_s|stdc\+\+)\.so|ld-linux")
    assert not [name for name in needed if name not in ours and not system.match(name)]


def test_headers_are_complete(tmp_path):
    source = tmp_path / "main.cc"
    source.write_text('#include "onnx_fp8/trainer.h"\nint main() { return onnx_fp8::TrainerSpec().steps; }\n')
    run("c++", "-std=c++20", "-fsyntax-only", "-I", PACKAGE / "include", source)


def test_stubs_parse_and_name_what_is_there():
    import ast
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    named = {node.name for node in tree.body if hasattr(node, "name")}
    assert {"Session", "train", "run_command"} <= named
    assert all(hasattr(onnx_fp8._core, name) for name in named)


def test_the_program():
    script = pathlib.Path(sys.executable).parent / "onnx-fp8"
    theirs = program.run("recipes").stdout
    assert run(script, "recipes") == theirs == run(sys.executable, "-m", "onnx_fp8", "recipes")
    done = subprocess.run([script, "train", digits.MODEL, "--los", "x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "onnx-fp8 train: there is no option --los; did you mean --loss?" in done.stderr


def test_the_names_of_the_provider():
    assert onnx_fp8.ort.get_ep_name() == "onnx_fp8" and onnx_fp8.ort.get_ep_names() == ["onnx_fp8"]
    if (PACKAGE / "libonnx_fp8_ort.so").exists():
        assert onnx_fp8.ort.get_library_path() == str(PACKAGE / "libonnx_fp8_ort.so")
        return
    program.leave_out("the provider in the Python package: the build has no headers of ONNX Runtime")
    with pytest.raises(onnx_fp8.Error, match="built without it"):
        onnx_fp8.ort.get_library_path()
