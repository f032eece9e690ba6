# SPDX-License-Identifier: Apache-2.0
"""Runs where PyTorch is: losses that are functions, beside PyTorch."""
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import onnx_fp8
import onnx_fp8.torch

FOLDER = pathlib.Path(tempfile.mkdtemp())
PATH = FOLDER / "model.onnx"


def batches(seed, samples=6, more=()):
    generator = torch.Generator().manual_seed(seed)
    batch = {"x": torch.randn(samples, 8, generator=generator),
             "labels": torch.randint(4, (samples,), generator=generator)}
    batch["labels"][1] = -100
    if "importance" in more:
        batch["importance"] = torch.rand(samples, generator=generator)
    return batch


def weighted(logits, labels, importance):
    return (F.cross_entropy(logits, labels, reduction="none") * importance).mean()


def focal(y, t):
    each = F.cross_entropy(y, t, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def smoothed(logits, target):
    return F.cross_entropy(logits, target, label_smoothing=0.1, weight=torch.tensor([1.0, 2, 3, 4]))


def penalty(logits, x, labels):
    return F.cross_entropy(logits, labels) + 0.01 * (x * x).mean() + logits.square().mean()


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def beside_pytorch(loss, more=()):
    net = module()
    onnx_fp8.torch.export(net, torch.zeros(2, 8), PATH, input_names=["x"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    session = onnx_fp8.TrainingSession(PATH, loss=loss, optimizer="sgd", lr=0.1)
    for step in range(4):
        batch = batches(step, 6 + step, more)
        ours = session.step({name: array.numpy() for name, array in batch.items()}).loss
        y = net(batch["x"])
        labels = {name: array for name, array in batch.items() if name != "x"}
        if loss is penalty:
            theirs = loss(y, batch["x"], batch["labels"])
        else:
            theirs = loss(y, *labels.values())
        optimizer.zero_grad()
        theirs.backward()
        optimizer.step()
        assert abs(ours - theirs.item()) < 1e-5 * max(1, abs(theirs.item())), (loss, step, ours, theirs.item())
    weights = session.weights()
    for name, parameter in net.named_parameters():
        np.testing.assert_allclose(weights[name], parameter.detach().numpy(), rtol=1e-4, atol=1e-6)
    return session


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no error {text}")


beside_pytorch(weighted, ["importance"])
beside_pytorch(focal)
beside_pytorch(smoothed)
beside_pytorch(nn.CrossEntropyLoss())
session = beside_pytorch(penalty)

# The model that is written has no loss; a checkpoint goes on, also before the first batch.
session.export(FOLDER / "trained.onnx")
assert [i.name for i in onnx_fp8.TrainingSession(FOLDER / "trained.onnx").inputs] == ["x"]
session.save(FOLDER / "kept")
batch = {name: array.numpy() for name, array in batches(9).items()}
other = onnx_fp8.TrainingSession(PATH, loss=penalty, optimizer="sgd", lr=0.1)
other.resume(FOLDER / "kept")
assert other.eval({"x": batch["x"]}).outputs["logits"].shape == (6, 4)
assert other.step(batch).loss == session.step(batch).loss
assert other.steps == session.steps

# A run keeps its loss.
arrays = {name: array.numpy() for name, array in batches(1, 24, ["importance"]).items()}
np.savez(FOLDER / "data.npz", **arrays)
for data, out in ((arrays, "arrays"), (str(FOLDER / "data.npz"), "files")):
    onnx_fp8.train(PATH, data=data, loss=weighted, steps=2, batch_size=6, out=FOLDER / out, progress=False)
one, two = [onnx_fp8.evaluate(FOLDER / out, data=str(FOLDER / "data.npz"))["loss"] for out in ("arrays", "files")]
assert one == two
onnx_fp8.train(data=str(FOLDER / "data.npz"), steps=4, out=FOLDER / "files", resume=True, progress=False)

# Batches and tables, whose columns have the names of the function's parameters; a generator's first batch comes again.


class Rows:
    column_names = [{"labels": "label"}.get(name, name) for name in arrays]

    def __len__(self):
        return 24

    def __getitem__(self, indices):
        return {column: array[indices] for column, array in zip(self.column_names, arrays.values())}


parts = [{name: array[i:i + 6] for name, array in arrays.items()} for i in (0, 6, 12, 18)]
size = {"batch_size": 6, "no_shuffle": True}
found = []
for data, more in ((arrays, size), (Rows(), size), (iter(parts), {}), (lambda index: parts[index], {}),
                   ([(part["x"], part["labels"], part["importance"]) for part in parts], {})):
    out = FOLDER / f"of{len(found)}"
    onnx_fp8.train(PATH, data=data, loss=weighted, steps=4, out=out, progress=False, **more)
    found.append(onnx_fp8.evaluate(out, data=str(FOLDER / "data.npz"))["loss"])
assert found == found[:1] * len(found), found
raises(onnx_fp8.OptionError, "expected parameters with names of outputs (logits) or of labels (none are given), got other",
       lambda: onnx_fp8.train(PATH, data=parts, loss=lambda logits, other: logits.sum(), steps=1, out=FOLDER / "no"))

# Mistakes.
make = lambda loss: onnx_fp8.TrainingSession(PATH, loss=loss)
raises(onnx_fp8.OptionError, "expected a function that returns one number, got (6, 4)",
       lambda: make(lambda logits, labels: logits).step(batch))
raises(onnx_fp8.OptionError, "expected parameters with names of outputs (logits) or of labels (labels), got other, third",
       lambda: make(lambda logits, other, third: logits.sum()).step(batch))
raises(onnx_fp8.Error, "PyTorch can't export this function",
       lambda: make(lambda logits, labels: torch.tensor(float(np.asarray(logits.tolist()).sum()))).step(batch))
raises(onnx_fp8.Error, "the exported function has another gradient by logits than PyTorch, by up to",
       lambda: make(lambda logits, labels: (logits[:, 0] * logits[:, 0].detach() + 0 * labels).mean()).step(batch))
raises(onnx_fp8.Error, "expected the labels that the function `loss` reads", lambda: make(weighted).step({"x": batch["x"]}))
