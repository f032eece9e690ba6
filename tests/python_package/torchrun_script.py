# SPDX-License-Identifier: Apache-2.0
"""A rank of PyTorch's torchrun: trains with the others, by a session and by `onnx_fp8.train`, beside PyTorch's own
group of ranks.

  torchrun_script.py FOLDER
"""
import os
import pathlib
import sys

import numpy as np
import torch.distributed

import onnx_fp8

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples/digits_mlp"
MODEL, TRAIN = SAMPLES / "digits_mlp.onnx", SAMPLES / "train.npz"
OPTIONS = {"loss": "cross_entropy", "optimizer": "adamw", "lr": 1e-3}
STEPS = 5

torch.distributed.init_process_group("gloo")
rank, data = int(os.environ["RANK"]), dict(np.load(TRAIN))


def same_everywhere(losses):
    least = torch.tensor(losses, dtype=torch.float64)
    torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
    assert len(losses) == STEPS and least.tolist() == losses, (least, losses)


def half(i, place):
    return {name: array[32 * i + 16 * place:][:16] for name, array in data.items()}


session = onnx_fp8.TrainingSession(MODEL, mesh="dp=2", shard="parameters", **OPTIONS)
stepwise = [session.step(half(i, rank)).loss for i in range(STEPS)]
same_everywhere(stepwise)
del session
in_runs = []
for run in ("first", "second"):  # the ranks meet once
    losses = []
    summary = onnx_fp8.train(MODEL, data=data, out=f"{sys.argv[1]}/{run}", mesh="dp=2", shard="parameters", batch_size=32,
                             no_shuffle=True, steps=STEPS, progress=False, on_step=lambda e: losses.append(e["loss"]),
                             **OPTIONS)
    in_runs.append((losses, summary.get("received_by_all_gather_bytes")))
if rank == 0:
    assert in_runs[0] == in_runs[1] and in_runs[0][0] == stepwise, (in_runs, stepwise)
torch.distributed.destroy_process_group()
