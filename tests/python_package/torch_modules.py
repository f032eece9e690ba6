# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: modules that are exported, trained beside PyTorch, and get their weights back."""
import pathlib
import sys
import tempfile

import onnx
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

FOLDER = tempfile.TemporaryDirectory()
PATH = FOLDER.name + "/model.onnx"


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.hidden = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(F.gelu(self.hidden(self.embedding(tokens))))


def batch(module):
    generator = torch.Generator().manual_seed(1)
    if isinstance(module, Tied):
        return torch.randint(50, (4, 7), generator=generator), torch.randint(50, (4, 7), generator=generator)
    return torch.randn(8, 64, generator=generator), torch.randint(10, (8,), generator=generator)


def train_beside_pytorch(module, **options):
    x, labels = batch(module)
    axes = {"x": {0: "batch", 1: "seq"}} if isinstance(module, Tied) else None
    example = torch.zeros(2, 5, dtype=torch.int64) if axes else torch.zeros(2, 64)
    onnx_fp8.torch.export(module, example, PATH, input_names=["x"], dynamic_axes=axes, **options)
    text = pathlib.Path(PATH).read_bytes()
    assert __file__.encode() not in text, "the file names this machine's files"
    held = {i.name for i in onnx.load(PATH).graph.initializer}
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    assert len(held & names) == len(list(module.parameters())), held
    session = onnx_fp8.TrainingSession(PATH, loss="cross_entropy", optimizer="sgd", lr=0.1)
    start = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(4):
        loss = F.cross_entropy(module(x).flatten(0, -2), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours = session.step({"x": x, "labels": labels}).loss
        assert abs(ours - loss.item()) < 1e-5, (ours, loss.item())
    trained = {name: p.detach().clone() for name, p in module.named_parameters()}
    for given in ("session", "file"):
        with torch.no_grad():
            for name, p in module.named_parameters():
                p.copy_(start[name])
        file = FOLDER.name + "/w.safetensors"
        session.export(file)
        onnx_fp8.torch.load_weights(module, session if given == "session" else file)
        for name, p in module.named_parameters():
            assert (p - trained[name]).abs().max() < 1e-5 and not torch.equal(p, start[name]), name


def expect(kind, text, function):
    try:
        function()
    except kind as error:
        assert text in str(error), error
        return
    sys.exit(f"expected an error with {text}")


torch.manual_seed(0)
norm = lambda kind: nn.Sequential(nn.Linear(64, 32), kind(32), nn.GELU(), nn.Linear(32, 10))
for way in ("dynamo", "torchscript"):
    train_beside_pytorch(norm(nn.LayerNorm), exporter=way)
    train_beside_pytorch(Tied(), exporter=way)
train_beside_pytorch(norm(nn.BatchNorm1d))  # in training mode, which dynamo does not keep

module = norm(nn.LayerNorm)
expect(onnx_fp8.OptionError, "`input_names`: expected 1, one for each example, got 2",
       lambda: onnx_fp8.torch.export(module, torch.zeros(2, 64), PATH, input_names=["x", "y"]))
expect(onnx_fp8.OptionError, "`example_inputs`: expected 2 or more along axis 0 of x, which is dynamic, got 1",
       lambda: onnx_fp8.torch.export(module, torch.zeros(1, 64), PATH, input_names=["x"]))
expect(onnx_fp8.OptionError, "`dynamic_axes`: expected names of inputs (x), got y",
       lambda: onnx_fp8.torch.export(module, torch.zeros(2, 64), PATH, input_names=["x"], dynamic_axes={"y": {}}))
onnx_fp8.torch.export(module, torch.zeros(2, 64), PATH, input_names=["x"])
session = onnx_fp8.TrainingSession(PATH, loss="cross_entropy")
expect(onnx_fp8.Error, "[4.weight] expected the keys of this module (`strict`); missing: 4.weight, 4.bias; unexpected: none",
       lambda: onnx_fp8.torch.load_weights(nn.Sequential(*module, nn.Linear(10, 10)), session, strict=True))
expect(onnx_fp8.Error, "missing: none; unexpected: 3.bias, 3.weight",
       lambda: onnx_fp8.torch.load_weights(module[:3], session, strict=True))
expect(onnx_fp8.Error, "expected weights of this module, whose first keys are head.weight, head.bias, got 0.bias",
       lambda: onnx_fp8.torch.load_weights(nn.ModuleDict({"head": nn.Linear(10, 10)}), session))
expect(onnx_fp8.Error, "expected the shape (11,), got (10,)",
       lambda: onnx_fp8.torch.load_weights(nn.Sequential(*module[:3], nn.Linear(32, 11)), session))

# Tied tensors need one key; other numbers under the second are an error.
tied = Tied()
onnx_fp8.torch.export(tied, torch.zeros(2, 5, dtype=torch.int64), PATH, input_names=["x"],
                      dynamic_axes={"x": {0: "batch", 1: "seq"}})
file = FOLDER.name + "/tied.safetensors"
onnx_fp8.TrainingSession(PATH, loss="cross_entropy").export(file)
weights = load_file(file)
[key] = weights.keys() & {"embedding.weight", "head.weight"}
[second] = {"embedding.weight", "head.weight"} - {key}
save_file(weights | {second: weights[key] + 1}, file)
expect(onnx_fp8.Error, "with which it is one tensor of the module, got others", lambda: onnx_fp8.torch.load_weights(tied, file))
save_file(weights | {second: weights[key].clone()}, file)
assert onnx_fp8.torch.load_weights(tied, file, strict=True).tied == []
save_file(weights, file)
assert onnx_fp8.torch.load_weights(tied, file, strict=True).tied == [second]
