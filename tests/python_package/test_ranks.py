# SPDX-License-Identifier: Apache-2.0
"""Scripts whose ranks train together, under mpirun and under torchrun, for which a script stands in. test_torch.py has
PyTorch's own."""
import os
import subprocess
import sys

import digits
import program
import pytest
import rank_jobs

import onnx_fp8

PLACE = f"""
import os, sys
sys.path[:0] = [{os.path.dirname(__file__)!r}, {os.path.dirname(program.__file__)!r}]
import digits, onnx_fp8
place = next(int(os.environ[name]) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK") if name in os.environ)
"""

SESSION = PLACE + """
session = digits.session(mesh="dp=2", recipe="off", {more})
for i in range(6):
    whole = digits.batch(i)
    mine = {{name: array[16 * place:16 * (place + 1)] for name, array in whole.items()}}
    loss = session.step(mine).loss
    if {fails} and place == 1 and i == 2:
        raise RuntimeError("a bug of the script")
    if place == 0:
        print(repr(loss), flush=True)
"""

RUN = {"loss": "cross_entropy", "optimizer": "adamw", "lr": 1e-3, "batch_size": 32, "steps": 8, "progress": False}

TRAIN = PLACE + """
for out in ("first", "second"):
    summary = onnx_fp8.train(digits.MODEL, data={data}, val_data=digits.VAL, out={out!r} + out, mesh="dp=2",
                             shard="parameters", **{run!r})
    assert bool(summary) == (place == 0)
    assert place or summary["received_by_all_gather_bytes"] < 1 << 18
"""


def launch(launcher, script):
    words = {"mpirun": [rank_jobs.LAUNCHER, "-n", "2"],
             "torchrun": [rank_jobs.TORCHRUN, "--no-python", "--nproc-per-node", "2"]}[launcher]
    return subprocess.run([*map(str, words), sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=120)


@pytest.fixture(params=["mpirun", "torchrun"])
def launcher(request):
    if request.param == "mpirun":
        rank_jobs.need_mpi()
    return request.param


@pytest.mark.parametrize("more", ["", "shard='parameters'"])
def test_sessions_train_together(launcher, more):
    done = launch(launcher, SESSION.format(more=more, fails=False))
    assert done.returncode == 0, done.stderr
    alone = digits.losses(digits.session(recipe="off"), 6)
    assert [float(line) for line in done.stdout.split()] == pytest.approx(alone, rel=1e-5)


def test_a_rank_that_ends_with_an_error_ends_all(launcher):
    done = launch(launcher, SESSION.format(more="", fails=True))
    assert done.returncode != 0 and "RuntimeError: a bug of the script" in done.stderr


MISTAKES = [
    ("if place == 0: 1 / 0", "digits.arrays()", "ZeroDivisionError: division by zero"),
    ("pass", "{name: a[:1500 - 32 * place] for name, a in digits.arrays().items()}",
     "onnx_fp8._errors.Error: [ranks] expected samples 1500, as rank 0, got samples 1468 on rank 1"),
]

MISTAKE = PLACE + """
def watch(event):
    {watch}

onnx_fp8.train(digits.MODEL, data={data}, out={out!r}, mesh="dp=2", on_step=watch, **{run!r})
"""


@pytest.mark.parametrize("watch, data, text", MISTAKES, ids=["callback", "other arrays"])
def test_a_run_that_ends_with_an_error_ends_all(launcher, watch, data, text, tmp_path):
    done = launch(launcher, MISTAKE.format(watch=watch, data=data, out=str(tmp_path / "run"), run=RUN))
    assert done.returncode != 0 and text in done.stderr, done.stderr


@pytest.mark.parametrize("data", ["digits.TRAIN", "digits.arrays()"], ids=["files", "arrays"])
def test_runs_are_divided(launcher, data, tmp_path):
    """Data are files, or arrays that each rank gives whole."""
    done = launch(launcher, TRAIN.format(data=data, out=f"{tmp_path}/", run=RUN))
    assert done.returncode == 0, done.stderr
    onnx_fp8.train(digits.MODEL, data=digits.TRAIN, val_data=digits.VAL, out=tmp_path / "alone", **RUN)
    first, second, alone = (list(program.losses(tmp_path / out).values()) for out in ("first", "second", "alone"))
    assert len(first) == 8 and first == second == pytest.approx(alone, rel=1e-5)
    # A run of ranks can be read by one process.
    evaluated, expected = (onnx_fp8.evaluate(tmp_path / out, data=digits.VAL) for out in ("first", "alone"))
    assert evaluated["loss"] == pytest.approx(expected["loss"], rel=1e-5)
