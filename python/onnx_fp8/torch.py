# SPDX-License-Identifier: Apache-2.0
"""From PyTorch and back:

    onnx_fp8.torch.export(module, x, "model.onnx")
    onnx_fp8.train("model.onnx", data="train.npz", loss="cross_entropy", steps=1000, out="run")
    onnx_fp8.torch.load_weights(module, "run")
"""
from . import _torch_export, _torch_record
from ._load_weights import LoadedWeights, load_weights, state_dict


def export(module, example_inputs, path, *, input_names=None, output_names=None, dynamic_axes=None,
           exporter: str | None = None, opset: int | None = None, check: bool = True, weights: bool = True) -> None:
    """Writes `module` as a model that can be trained: not optimized, so that weights keep their names and layout, and
    with a record of its parameters, frozen ones and ties, which training obeys.

    `example_inputs`: a tensor, a tuple of them, or a dict by the names of the module's arguments, with 2 or more
    samples. A Hugging Face model is taken as it is. `input_names`: by default the names of the module's arguments.
    `output_names`: by default the keys of the dict that the module returns; else `logits`, `loss` if it is one number.
    `dynamic_axes`: {input: {axis: name}} or {input: [name or None, …]}; by default the first axis, as `batch`, and the
    second of token ids, as `sequence`. `exporter`: `torchscript`, or `dynamo`, which knows more of PyTorch but no
    BatchNorm in training mode. By default dynamo, unless there is such a BatchNorm; the other if that one fails.
    `check`: runs the example through the module and the file. What differs, and what was decided, is an `onnx_fp8.Note`.
    `weights=False` writes a file without parameters, which training takes from the option `weights`, as from the folder
    of a Hugging Face model. The module may then lie on the meta device, where a model of any size needs no memory.
    """
    _torch_export.export(module, example_inputs, path, input_names, output_names, dynamic_axes, exporter, opset, check,
                         weights)


def record(path) -> dict:
    """What `export` wrote about the tensors of the file `path` (docs/formats.md); {} if it did not write the file."""
    return _torch_record.read(path)
