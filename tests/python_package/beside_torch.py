# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: it, onnx, onnxruntime with our provider, and our extension share a process and its threads.

  beside_torch.py MODULE,…: imports these in this order
"""
import importlib
import pathlib
import sys
import threading

for name in sys.argv[1].split(","):
    importlib.import_module(name)

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional as F

import onnx_fp8.ort

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples/digits_mlp"
MODEL = str(SAMPLES / "digits_mlp.onnx")
DATA = dict(np.load(SAMPLES / "train.npz"))
STEPS = 20


class Module(nn.Module):
    """The sample's, with the weights of the file."""

    def __init__(self):
        super().__init__()
        self.fc1, self.norm = nn.Linear(64, 128), nn.LayerNorm(128)
        self.fc2, self.head = nn.Linear(128, 64), nn.Linear(64, 10)
        weights = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in onnx.load(MODEL).graph.initializer}
        self.load_state_dict({name: weights[name] for name in self.state_dict()})

    def forward(self, x):
        return self.head(F.gelu(self.fc2(self.norm(F.relu(self.fc1(x))))))


def batch(i):
    return {name: array[32 * i:32 * (i + 1)] for name, array in DATA.items()}


def train_torch(losses):
    module = Module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for i in range(STEPS):
        feeds = {name: torch.from_numpy(array) for name, array in batch(i).items()}
        loss = F.cross_entropy(module(feeds["x"]), feeds["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def train_ours(losses):
    session = onnx_fp8.TrainingSession(MODEL, loss="cross_entropy", optimizer="sgd", lr=0.1)
    # PyTorch's tensors, over DLPack.
    for i in range(STEPS):
        losses.append(session.step({name: torch.from_numpy(array) for name, array in batch(i).items()}).loss)


def run_ort(outputs):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(onnx_fp8.ort.register(), {})
    session = onnxruntime.InferenceSession(MODEL, options)
    for i in range(STEPS):
        outputs.append(session.run(None, {"x": batch(i)["x"]})[0])


def check(ours, theirs, outputs):
    assert len(ours) == len(theirs) == len(outputs) == STEPS
    assert np.abs(np.subtract(ours, theirs)).max() < 1e-4, (ours, theirs)
    with torch.no_grad():
        module = Module()
        for i, output in enumerate(outputs):
            assert np.abs(module(torch.from_numpy(batch(i)["x"])).numpy() - output).max() < 1e-4


torch.set_num_threads(2)
results = [], [], []
for train, result in zip((train_ours, train_torch, run_ort), results):
    train(result)
check(*results)
# The same at once.
results = [], [], []
threads = [threading.Thread(target=train, args=[result])
           for train, result in zip((train_ours, train_torch, run_ort), results)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(*results)
