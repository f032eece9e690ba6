# SPDX-License-Identifier: Apache-2.0
"""From PyTorch and back:

    onnx_fp8.torch.export(module, (x,), "model.onnx", input_names=["x"], output_names=["logits"])
    onnx_fp8.train("model.onnx", data="train.npz", loss="cross_entropy", steps=1000, out="run")
    onnx_fp8.torch.load_weights(module, "run")
"""
import os
import tempfile
import warnings

import torch

from . import commands
from ._errors import Error, OptionError
from .session import TrainingSession


def _axes(example_inputs, names, dynamic_axes):
    """{input: {axis: name}}. By default the first axis is the batch, where its size is that of the first input."""
    if dynamic_axes is None:
        size = example_inputs[0].shape[0] if example_inputs[0].dim() else None
        return {name: {0: "batch"} for name, example in zip(names, example_inputs)
                if example.dim() and example.shape[0] == size}
    axes = {}
    for name, given in dynamic_axes.items():
        items = given.items() if hasattr(given, "items") else enumerate(given)
        axes[name] = {axis: label for axis, label in items if label is not None}
    for name in axes.keys() - set(names):
        raise OptionError(f"`dynamic_axes`: expected names of `input_names`, got {name}")
    return axes


def _export_dynamo(module, example_inputs, path, names, axes, opset):
    sizes = {label: torch.export.Dim(label, min=1) for given in axes.values() for label in given.values()}
    for name, example in zip(names["input_names"], example_inputs):
        for axis in axes.get(name, {}):
            if example.shape[axis] < 2:
                raise OptionError(f"`example_inputs`: expected 2 or more along axis {axis} of {name}, which is dynamic, "
                                  f"got {example.shape[axis]}: PyTorch would fix the axis at this size")
    shapes = tuple({axis: sizes[label] for axis, label in axes.get(name, {}).items()} for name in names["input_names"])
    # Its optimizer would transpose weights, which then lose their names, and fold BatchNorm away.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Exporting a model while it is in training mode")
        program = torch.onnx.export(module, example_inputs, dynamo=True, optimize=False, opset_version=opset,
                                    dynamic_shapes=shapes, verbose=False, **names)
    for node in program.model.graph:  # paths of this machine
        for key in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node"):
            node.metadata_props.pop(key, None)
    program.save(path)


def _export_torchscript(module, example_inputs, path, names, axes, opset):
    # PRESERVE: Dropout and BatchNorm stay as the module's own mode has them.
    torch.onnx.export(module, example_inputs, path, dynamo=False, opset_version=opset, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.PRESERVE, dynamic_axes=axes, **names)


def export(module, example_inputs, path, *, input_names, output_names=("logits",), dynamic_axes=None,
           exporter: str | None = None, opset: int | None = None) -> None:
    """Writes `module` as a model that can be trained: not optimized, so that weights keep their names and layout.

    `example_inputs`: a tensor or a tuple of them, with 2 or more samples. `dynamic_axes`: {input: {axis: name}} or
    {input: [name or None, …]}; by default the first axis, as `batch`. `exporter`: `torchscript`, or `dynamo`, which
    knows more of PyTorch but no BatchNorm in training mode. By default dynamo, unless there is such a BatchNorm.
    """
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    names = {"input_names": list(input_names), "output_names": list(output_names)}
    if len(names["input_names"]) != len(example_inputs):
        raise OptionError(f"`input_names`: expected {len(example_inputs)}, one for each example, got "
                          f"{len(names['input_names'])}")
    if exporter is None:
        batch_norms = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training
                          for m in module.modules())
        exporter = "torchscript" if batch_norms else "dynamo"
    exporters = {"dynamo": (_export_dynamo, 18), "torchscript": (_export_torchscript, 17)}
    if exporter not in exporters:
        raise OptionError(f"`exporter`: expected dynamo or torchscript, got {exporter}")
    write, default = exporters[exporter]
    axes = _axes(example_inputs, names["input_names"], dynamic_axes)
    write(module, tuple(example_inputs), os.fspath(path), names, axes, opset or default)


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
