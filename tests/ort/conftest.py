# SPDX-License-Identifier: Apache-2.0
"""Tests of libonnx_fp8_ort.so in a stock onnxruntime."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import program


def pytest_terminal_summary(terminalreporter):
    for line in program.left_out_lines():
        terminalreporter.write_line(line)
