# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: running statistics of BatchNorm come back to PyTorch, and whole state_dicts come here."""
import copy
import pathlib
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

FOLDER = tempfile.TemporaryDirectory()
PATH = pathlib.Path(FOLDER.name)
STEPS = 6


class Net(nn.Module):
    """`unused` is of no use; dropout has a rate, which PyTorch's training here does not use."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, momentum=0.3)
        self.dropout, self.fc = nn.Dropout(dropout), nn.Linear(8, 5)
        self.unused = nn.Linear(4, 4)
        self.register_buffer("position_ids", torch.arange(7))

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(self.dropout(x.mean((2, 3))))


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 3, 6, 6, generator=generator) * 3 + 1, torch.randint(5, (16,), generator=generator)


def export(module, name, **options):
    path = PATH / name
    onnx_fp8.torch.export(module, torch.randn(2, 3, 6, 6), path, input_names=["x"], **options)
    return path


def eval_loss(module, seed=99):
    x, labels = batch(seed)
    return F.cross_entropy(copy.deepcopy(module).eval()(x), labels).item()


def session_loss(session, seed=99):
    x, labels = batch(seed)
    return session.eval({"x": x, "labels": labels}).loss


def quietly(function):
    """The result, and the texts of its notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", onnx_fp8.Note)
        result = function()
    return result, [str(w.message) for w in caught if issubclass(w.category, onnx_fp8.Note)]


def same(a, b, what, tolerance=1e-5):
    assert torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance), (what, a, b)


def train_beside_pytorch(accumulate):
    torch.manual_seed(0)
    module = Net().train()
    session = onnx_fp8.TrainingSession(export(module, "m.onnx", exporter="torchscript"), loss="cross_entropy",
                                       optimizer="sgd", lr=0.05, grad_accum=accumulate)
    reference = copy.deepcopy(module)
    for norm in (reference.bn1, reference.bn2):
        norm.num_batches_tracked.zero_()  # an exporter may have run the module
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    for step in range(STEPS):
        batches = [batch(step * accumulate + i) for i in range(accumulate)]
        for x, labels in batches:
            (F.cross_entropy(reference(x), labels) / accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step([{"x": x, "labels": labels} for x, labels in batches])

    loaded, notes = quietly(lambda: onnx_fp8.torch.load_weights(module, session))
    assert loaded.missing == ["unused.weight", "unused.bias", "position_ids"] and not loaded.unexpected, loaded
    assert len(notes) == 1 and "no weights for unused.weight, unused.bias" in notes[0], notes
    for key, expected in reference.state_dict().items():
        same(module.state_dict()[key], expected, key, 1e-4)
    assert module.bn1.num_batches_tracked == STEPS * accumulate
    assert abs(eval_loss(module) - session_loss(session)) < 1e-5
    assert abs(eval_loss(module) - eval_loss(reference)) < 1e-4
    return module, session


module, session = train_beside_pytorch(1)
train_beside_pytorch(2)

# PyTorch takes the file as it is.
session.export(PATH / "w.safetensors")
weights = load_file(PATH / "w.safetensors")
plain = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).train()
onnx_fp8.torch.export(plain, torch.randn(2, 4), PATH / "plain.onnx", input_names=["x"])
small = onnx_fp8.TrainingSession(PATH / "plain.onnx", loss="cross_entropy", optimizer="sgd", lr=0.1)
x = torch.randn(9, 4)
for _ in range(3):
    small.step({"x": x, "labels": torch.arange(9) % 3})
small.export(PATH / "plain.safetensors")
fresh = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
fresh.load_state_dict(load_file(PATH / "plain.safetensors"), strict=True)
assert fresh[1].num_batches_tracked == 3
same(fresh.eval()(x), torch.from_numpy(small.predict({"x": x})["logits"]), "strict")

# A step that is skipped moves nothing.
bad = x.clone()
bad[0, 0] = float("nan")
assert small.step({"x": bad, "labels": torch.arange(9) % 3}).skipped
small.export(PATH / "plain.safetensors")
assert load_file(PATH / "plain.safetensors")["1.num_batches_tracked"] == 3

# The model goes out in evaluation mode, and has Dropout there.
torch.manual_seed(1)
dropping = onnx_fp8.TrainingSession(export(Net(dropout=0.5).train(), "dropping.onnx", exporter="torchscript"),
                                    loss="cross_entropy", optimizer="sgd", lr=0.05)
for step in range(3):
    x, labels = batch(step)
    dropping.step({"x": x, "labels": labels})
dropping.export(PATH / "out.onnx")
proto = onnx.load(PATH / "out.onnx")
onnx.checker.check_model(proto, full_check=True)
norms = [n for n in proto.graph.node if n.op_type == "BatchNormalization"]
assert len(norms) == 2 and all(len(n.output) == 1 and not any(a.name == "training_mode" and a.i for a in n.attribute)
                               for n in norms)
assert any(n.op_type == "Dropout" for n in onnx.load(PATH / "dropping.onnx").graph.node)
read = {name for n in proto.graph.node for name in n.input} | {o.name for o in proto.graph.output}
assert all(n.output[0] in read for n in proto.graph.node), "a node is left that nothing reads"
x, labels = batch(50)
stock = onnxruntime.InferenceSession(PATH / "out.onnx", providers=["CPUExecutionProvider"])
[there] = stock.run(None, {"x": x.numpy()})
np.testing.assert_allclose(there, dropping.eval({"x": x, "labels": labels}).outputs["logits"], rtol=1e-4, atol=1e-5)

# A whole state_dict: statistics are taken, counts go on, the rest is told.
whole = {key: tensor.clone() for key, tensor in module.state_dict().items()}
save_file(whole, PATH / "whole.safetensors")
torch.manual_seed(2)
second = onnx_fp8.TrainingSession(export(Net().train(), "second.onnx", exporter="torchscript"), loss="cross_entropy",
                                  optimizer="sgd", lr=0.05, init=PATH / "whole.safetensors")
told = [note for note in second.notes if "whole.safetensors" in note]
assert len(told) == 1 and all(name in told[0] for name in ("position_ids", "unused.weight", "unused.bias")), told
assert abs(session_loss(second) - eval_loss(module)) < 1e-5
x, labels = batch(3)
second.step({"x": x, "labels": labels})
second.save(PATH / "run")
third = onnx_fp8.TrainingSession(PATH / "second.onnx", loss="cross_entropy", optimizer="sgd", lr=0.05)
third.resume(PATH / "run")
third.step({"x": x, "labels": labels})
third.export(PATH / "third.safetensors")
assert load_file(PATH / "third.safetensors")["bn2.num_batches_tracked"] == STEPS + 2

# The same for statistics that stay, of a model that was exported for evaluation.
for exporter in ("dynamo", "torchscript"):
    torch.manual_seed(3)
    fixed = {"loss": "cross_entropy", "optimizer": "sgd", "lr": 0.05, "batch_norm": "eval"}
    other = Net().train()
    other(batch(5)[0])
    for norm in (other.bn1, other.bn2):  # TorchScript makes one tensor of equal ones
        nn.init.uniform_(norm.weight)
        nn.init.uniform_(norm.bias)
    path = export(other.eval(), "fixed.onnx", exporter=exporter)
    session = onnx_fp8.TrainingSession(path, init=PATH / "whole.safetensors", **fixed)
    assert abs(session_loss(session) - eval_loss(module)) < 1e-5, exporter
    x, labels = batch(4)
    session.step({"x": x, "labels": labels})
    session.save(PATH / exporter)
    later = onnx_fp8.TrainingSession(path, **fixed)
    later.resume(PATH / exporter)
    assert session_loss(later) == session_loss(session)
    back, notes = quietly(lambda: onnx_fp8.torch.load_weights(target := Net(), later) and target)
    assert abs(eval_loss(back) - session_loss(later)) < 1e-5, exporter
    assert back.bn1.num_batches_tracked == STEPS, "the file's number stays"
    later.export(PATH / "fixed_out.onnx")
    stock = onnxruntime.InferenceSession(PATH / "fixed_out.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(stock.run(None, {"x": x.numpy()})[0], later.predict({"x": x})["logits"], rtol=1e-4, atol=1e-5)
    # Without initial values nothing of this is state, and the file's statistics come back.
    untouched = onnx_fp8.TrainingSession(path, **fixed)
    assert "bn1.running_mean" not in untouched.weights()
    untouched.export(PATH / "untouched.safetensors")
    assert {"bn1.running_mean", "bn2.running_var"} <= load_file(PATH / "untouched.safetensors").keys()
    assert "bn1.num_batches_tracked" not in load_file(PATH / "untouched.safetensors")

# TorchScript writes equal tensors of a new module once. They are apart again, also in the model that goes out.
for mode in ("train", "eval"):
    torch.manual_seed(5)
    joined = Net().eval()
    path = PATH / "joined.onnx"
    torch.onnx.export(joined, (torch.randn(2, 3, 6, 6),), path, dynamo=False, do_constant_folding=False, opset_version=17,
                      training=torch.onnx.TrainingMode.PRESERVE, input_names=["x"], output_names=["logits"],
                      dynamic_axes={"x": {0: "batch"}})
    assert any(n.op_type == "Identity" for n in onnx.load(path).graph.node)
    session = onnx_fp8.TrainingSession(path, loss="cross_entropy", optimizer="sgd", lr=0.05, batch_norm=mode)
    reference = joined.train(mode == "train")
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    for step in range(4):
        x, labels = batch(step)
        session.step({"x": x, "labels": labels})
        optimizer.zero_grad()
        F.cross_entropy(reference(x), labels).backward()
        optimizer.step()
    loaded, _ = quietly(lambda: onnx_fp8.torch.load_weights(target := Net(), session) and target)
    for key, expected in reference.state_dict().items():
        if key.startswith(("bn", "conv", "fc")) and not key.endswith("tracked"):
            same(loaded.state_dict()[key], expected, key, 1e-4)
    session.export(PATH / "joined_out.onnx")
    onnx.checker.check_model(onnx.load(PATH / "joined_out.onnx"), full_check=True)
    stock = onnxruntime.InferenceSession(PATH / "joined_out.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(stock.run(None, {"x": x.numpy()})[0], session.predict({"x": x})["logits"], rtol=1e-4, atol=1e-5)

# A DataLoader is data: its batches, shuffled by itself; load_weights takes the best ones.
features, classes = batch(7)
dataset = torch.utils.data.TensorDataset(features, classes)
torch.manual_seed(4)
loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True)
summary, notes = quietly(lambda: onnx_fp8.train(
    export(Net().train(), "loader.onnx", exporter="torchscript"), data=loader,
    val_data=torch.utils.data.DataLoader(dataset, batch_size=8), loss="cross_entropy", optimizer="sgd", lr=0.05, epochs=4,
    val_every=2, out=PATH / "loaded", save_best="loss", progress=False))
assert summary["steps"] == 8 and any("taken as x, labels" in note for note in notes), notes
best, _ = quietly(lambda: onnx_fp8.torch.load_weights(target := Net(), PATH / "loaded", best=True) and target)
last, _ = quietly(lambda: onnx_fp8.torch.load_weights(target := Net(), PATH / "loaded") and target)
losses = [F.cross_entropy(net.eval()(features), classes).item() for net in (best, last)]
assert abs(losses[1] - summary["val_loss"]) < 1e-5 and losses[0] <= losses[1] + 1e-6
assert best.bn1.num_batches_tracked == summary["best_step"]
