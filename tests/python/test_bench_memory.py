# SPDX-License-Identifier: Apache-2.0
"""The parts of ./dev bench memory that need no PyTorch."""
import pathlib
import sys

from program import BIN

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from bench import memory  # noqa: E402


def made(total):
    rows = {name: {"total": total} for name in memory.ROWS}
    return {"gpt": rows | {peer: {"total": 1000} for peer in memory.PEERS}}


def test_the_goal_is_for_fp8_in_bfloat16():
    for total, complaints in ((600, 0), (601, 2)):
        models = made(total)
        result = {"models": models, "ratios": memory.ratios(models)}
        assert result["ratios"]["gpt"]["float32"]["torch_fp32"] == total / 1000
        assert len(memory.outside(result)) == complaints
        assert f"| bfloat16+tensorwise | 0.0 | {total / 1000:.2f} |" in memory.markdown(result)


def test_our_bytes_are_those_of_the_memory_report():
    model = SCRIPTS.parent / "samples" / "gpt_tiny" / "gpt_tiny.onnx"
    whole, rounded = (memory.ours(BIN, model, dtype, "off", "--shape", "batch=8,seq=128") for dtype in ("float32", "bfloat16"))
    assert whole["parameters"] == rounded["parameters"] and whole["moments"] == 2 * whole["parameters"]
    assert rounded["arena_peak"] < whole["arena_peak"]
    assert whole["total"] == sum(size for kind, size in whole.items() if kind != "total")
