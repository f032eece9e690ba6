# SPDX-License-Identifier: Apache-2.0
"""The parts of ./dev bench memory that need no PyTorch."""
import pathlib
import sys

from program import BIN

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from bench import memory  # noqa: E402


def test_our_bytes_are_those_of_the_memory_report():
    model = SCRIPTS.parent / "samples" / "gpt_tiny" / "gpt_tiny.onnx"
    whole, rounded = (memory.ours(BIN, model, dtype, "off", "--shape", "batch=8,seq=128") for dtype in ("float32", "bfloat16"))
    assert whole["parameters"] == rounded["parameters"] and whole["moments"] == 2 * whole["parameters"]
    assert rounded["arena_peak"] < whole["arena_peak"]
    assert whole["total"] == sum(size for kind, size in whole.items() if kind != "total")
