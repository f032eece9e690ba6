# SPDX-License-Identifier: Apache-2.0
"""From PyTorch and back:

    onnx_fp8.torch.export(module, x, "model.onnx")
    onnx_fp8.train("model.onnx", data="train.npz", loss="cross_entropy", steps=1000, out="run")
    onnx_fp8.torch.load_weights(module, "run")
"""
import os
import tempfile

import torch

from . import _torch_export, _torch_record, commands
from ._errors import Error
from .session import TrainingSession


def export(module, example_inputs, path, *, input_names=None, output_names=None, dynamic_axes=None,
           exporter: str | None = None, opset: int | None = None, check: bool = True) -> None:
    """Writes `module` as a model that can be trained: not optimized, so that weights keep their names and layout, and
    with a record of its parameters, frozen ones and ties, which training obeys.

    `example_inputs`: a tensor, a tuple of them, or a dict by the names of the module's arguments, with 2 or more
    samples. A Hugging Face model is taken as it is. `input_names`: by default the names of the module's arguments.
    `output_names`: by default the keys of the dict that the module returns; else `logits`, `loss` if it is one number.
    `dynamic_axes`: {input: {axis: name}} or {input: [name or None, …]}; by default the first axis, as `batch`, and the
    second of token ids, as `sequence`. `exporter`: `torchscript`, or `dynamo`, which knows more of PyTorch but no
    BatchNorm in training mode. By default dynamo, unless there is such a BatchNorm; the other if that one fails.
    `check`: runs the example through the module and the file. What differs, and what was decided, is an `onnx_fp8.Note`.
    """
    _torch_export.export(module, example_inputs, path, input_names, output_names, dynamic_axes, exporter, opset, check)


def record(path) -> dict:
    """What `export` wrote about the tensors of the file `path` (docs/formats.md); {} if it did not write the file."""
    return _torch_record.read(path)


def load_weights(module, trained) -> None:
    """Copies trained weights into `module`, by name. `trained`: a TrainingSession, the folder of a run, or a
    .safetensors file of `export`. Error: a parameter of the module without weights, or with others; it is unchanged."""
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory(prefix="onnx_fp8.") as folder:
        path = os.path.join(folder, "weights.safetensors")
        if isinstance(trained, TrainingSession):
            trained.export(path)
        elif os.path.isdir(trained):
            commands.export(trained, path)
        else:
            path = os.fspath(trained)
        weights = load_file(path)
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    tied = dict(module.named_parameters(remove_duplicate=False))
    # One name of tied parameters is enough.
    found = {id(tensor) for name, tensor in tied.items() if name in weights}
    for name, parameter in module.named_parameters():
        if id(parameter) not in found:
            raise Error(f"[{name}] expected weights for this parameter of the module, got none")
    for name, weight in weights.items():
        target = tied.get(name, own.get(name))
        if target is not None and target.shape != weight.shape:
            raise Error(f"[{name}] expected the shape {tuple(target.shape)}, got {tuple(weight.shape)}")
    with torch.no_grad():
        for name, weight in weights.items():
            target = tied.get(name, own.get(name))
            if target is not None:
                target.copy_(weight)
