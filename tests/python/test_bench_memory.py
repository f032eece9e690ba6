# SPDX-License-Identifier: Apache-2.0
"""The parts of ./dev bench memory that need no PyTorch."""
import pathlib
import sys

import numpy as np
from program import BIN

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
MODEL = SCRIPTS.parent / "samples" / "gpt_tiny" / "gpt_tiny.onnx"
sys.path.insert(0, str(SCRIPTS))
from bench import memory  # noqa: E402

SMALLEST = f"{memory.SMALL} --moments fp8 --release-gradients --recompute blocks"


def planned(row, shape="batch=8,seq=128"):
    return memory.planned(BIN, MODEL, *memory.ROWS[row], "--shape", shape)


CODES = f"{memory.SMALL} --primary-weights fp8"


def test_rows_have_all_combinations():
    small = [row for row in memory.ROWS if row.startswith(memory.SMALL)]
    plain = [row for row in small if "--master" not in row and "--primary-weights" not in row]
    assert len(plain) == 12 and set(memory.GOALS) <= set(memory.ROWS)
    assert memory.ROWS[SMALLEST][-5:] == ("--moments", "fp8", "--release-gradients", "--recompute", "blocks")
    for master in ("split", "split8", "bfloat16"):
        assert f"{memory.SMALL} --master {master}" in small
    assert f"{SMALLEST} --master split8 --primary-weights fp8" in small


def test_plans_of_rows():
    whole, rounded = planned("float32"), planned("bfloat16")
    counters = 16
    assert whole["parameters"] == rounded["parameters"] and whole["moments"] == 2 * whole["parameters"] + counters
    assert rounded["arena"] < whole["arena"]
    assert whole["total"] == sum(size for kind, size in whole.items() if kind != "total")
    plain, half, smallest = (planned(row) for row in (memory.SMALL, f"{memory.SMALL} --moments bfloat16", SMALLEST))
    assert plain["moments"] / half["moments"] > 1.99 and plain["moments"] / smallest["moments"] > 3.5
    assert smallest["arena"] < plain["arena"]
    split, codes = planned(f"{memory.SMALL} --master split8"), planned(CODES)
    assert 0.75 <= split["parameters"] / plain["parameters"] < 0.76  # scalars stay floats
    assert plain["codes"] == 0 and codes["parameters"] / 8 < codes["codes"] < codes["parameters"] / 2


def test_a_run_allocates_its_plan(tmp_path):
    data = tmp_path / "tokens.bin"
    np.random.default_rng(0).integers(0, 50, 2 * 16 + 1).astype("<u2").tofile(data)
    for row in (SMALLEST, CODES, f"{SMALLEST} --master split8 --primary-weights fp8"):
        kinds = planned(row, "batch=2,seq=16")
        flags = *memory.ROWS[row], "--batch-size", "2", "--seq-len", "16"
        got = memory.allocated(BIN, MODEL, data, tmp_path / "run", *flags)
        assert got == {"state": sum(memory.state(kinds)), "arena": kinds["arena"]}, row


def result(share, arena):
    """Each row takes `share` of a peer's bytes, and plans an arena of 600."""
    kinds = {"parameters": 100, "moments": 200, "scaling": 0, "codes": 0, "batch": 100, "arena": 600, "total": 1000,
             "allocated": {"state": 300, "arena": arena}}
    peer = {"param": 100, "buffer": 0, "opt": 200, "act": 0, "total": 1000 / share}
    rows = {**dict.fromkeys(memory.ROWS, kinds), **dict.fromkeys(memory.PEERS, peer)}
    return {"size": "default", "tokens": {"gpt": 10}, "models": {"gpt": rows}, "ratios": memory.ratios({"gpt": rows})}


def test_goals_and_plans_are_held():
    assert memory.outside(result(0.28, 600)) == []
    assert len(memory.outside(result(0.3, 600))) == 2  # the rows with recomputation
    assert [c for c in memory.outside(result(0.5, 600)) if "--moments bfloat16 takes 0.50" in c]
    assert len(memory.outside(result(1.5, 600))) == len(memory.GOALS)
    assert len(memory.outside(result(0.28, 601))) == len(memory.ROWS)


def test_tables():
    text = memory.markdown(result(0.5, 601))
    assert "25 parameters, 10 tokens." in text
    assert f"| {memory.SMALL} | 0.60 | 0.50 |" in text
    assert f"| {memory.SMALL} | 4.00 | 8.00 | 0.00 | 0.00 | 0.1 | 0.0 | 0.50 |" in text
    assert f"| {memory.SMALL} | 300 | 300 | 600 | 601 |" in text
