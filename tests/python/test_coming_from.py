# SPDX-License-Identifier: Apache-2.0
"""Each flag, function and keyword that docs/coming_from.md names as ours exists."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/coming_from.md").read_text()


def counterparts():
    """The code in the last cell of each row."""
    cells = [row.rstrip(" |").rpartition(" | ")[2] for row in PAGE.splitlines() if row.startswith("| ")]
    return [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]


def flags(command):
    help_text = subprocess.run([os.environ["ONNX_FP8_BIN"], command, "--help"], capture_output=True, text=True,
                               check=True).stdout
    return set(re.findall(r"^ +(?:-\w,)?--([a-z0-9-]+)", help_text, re.M))


def test_flags_exist():
    known = {}
    for span in counterparts():
        command = (re.search(r"onnx-fp8 (\w+)", span) or [None, "train"])[1]
        for flag in re.findall(r"--([a-z0-9-]+)", span):
            assert flag in known.setdefault(command, flags(command)), span
    assert len(known) >= 3


def test_functions_and_keywords_exist():
    files = {"onnx_fp8": ["commands"], "onnx_fp8.torch": ["torch", "_load_weights"], "session": ["session"]}
    sources = {owner: "".join((ROOT / f"python/onnx_fp8/{name}.py").read_text() for name in names)
               for owner, names in files.items()}
    options = {flag.replace("-", "_") for flag in flags("train")}
    calls = [call for span in counterparts()
             for call in re.findall(r"\b(onnx_fp8\.torch|onnx_fp8|session)\.(\w+)\(([^)]*)\)", span)]
    assert len(calls) >= 12
    for owner, name, arguments in calls:
        definition = re.search(rf"def {name}\(([^)]*)\)", sources[owner])
        assert definition, name
        for keyword in re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", arguments)):
            assert keyword in options or re.search(rf"\b{keyword}\b", definition[1]), (name, keyword)
