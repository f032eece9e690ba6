# SPDX-License-Identifier: Apache-2.0
"""A loss that is a function of PyTorch's tensors: it becomes a small model from outputs and labels to one number."""
import inspect
import os
import tempfile
import warnings

import numpy as np

from ._errors import Error, OptionError

# How far apart the two programs' losses of one batch may be, as float32.
TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-3  # of the largest number


def _parameters(function):
    """The names of the tensors that the function takes."""
    call = getattr(function, "forward", function)
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p for p in inspect.signature(call).parameters.values() if p.kind in plain]
    return [p.name for p in parameters], {p.name for p in parameters if p.default is not p.empty}


def bind(function, outputs, inputs, labels):
    """{parameter: name of an array}. A parameter reads the output, the label or the input of its name. If no
    parameter has an output's name, the first one reads the first output. A single parameter and a single label that are
    left belong together."""
    names, optional = _parameters(function)
    known = {name: name for name in names if name in outputs or name in labels or name in inputs}
    left = [name for name in names if name not in known and name not in optional]
    if left and not set(known.values()) & set(outputs):
        known[left.pop(0)] = next(iter(outputs))
    unread = [name for name in labels if name not in known.values()]
    if len(left) == 1 and len(unread) == 1:
        known[left.pop()] = unread[0]
    if left:
        raise OptionError(f"`loss`: expected parameters with names of outputs ({', '.join(outputs)}) or of labels "
                          f"({', '.join(labels) or 'none are given'}), got {', '.join(left)}")
    return known


def _tensor(array):
    import torch
    if isinstance(array, torch.Tensor):
        tensor = array.detach().cpu()
    else:
        array = np.asarray(array)
        plain = array.dtype.kind in "fiub" and array.dtype.name in np.sctypeDict
        tensor = torch.from_numpy(np.array(array if plain else array.astype(np.float32)))
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _module(function, parameters):
    import torch

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if isinstance(function, torch.nn.Module):
                self.function = function

        def forward(self, *tensors):
            return function(**dict(zip(parameters, tensors)))

    return Loss().eval()


def _twice(tensor, samples):
    """Two or more samples: PyTorch would fix the size of an axis of one."""
    import torch
    return torch.cat([tensor, tensor]) if tensor.dim() and tensor.shape[0] == samples == 1 else tensor


def _program(module, tensors, shapes, names):
    import torch
    # PyTorch's exporter leaves label smoothing out of cross entropy. The parts of cross entropy are exported right.
    program = torch.export.export(module, tensors, dynamic_shapes=(shapes,), strict=False).run_decompositions()
    return torch.onnx.export(program, dynamo=True, optimize=True, input_names=names, output_names=["loss"],
                             verbose=False)


def _write(module, tensors, names, path):
    """With all axes open, or if PyTorch can't do that the batch axis alone."""
    from torch.export import Dim
    samples = tensors[0].shape[0] if tensors[0].dim() else None
    tensors = tuple(_twice(tensor, samples) for tensor in tensors)
    samples = tensors[0].shape[0] if tensors[0].dim() else None
    batch = Dim("batch", min=1)
    only_batch = tuple({0: batch} if tensor.dim() and tensor.shape[0] == samples else {} for tensor in tensors)
    all_axes = tuple({axis: Dim.AUTO for axis in range(tensor.dim())} | axes
                     for tensor, axes in zip(tensors, only_batch))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about itself
        try:
            program = _program(module, tensors, all_axes, names)
        except Exception:
            program = _program(module, tensors, only_batch, names)
        program.save(path)


class LossFunction:
    """A function that was exported; `path` lives as long as this. `value`: PyTorch's loss of the example."""

    def __init__(self, function, outputs, inputs, labels):
        import torch
        from ._torch_call import quiet
        found = bind(function, outputs, inputs, labels)
        arrays = {**inputs, **labels, **outputs}
        tensors = {name: _tensor(arrays[name]) for name in found.values()}
        module = _module(function, list(found))
        with torch.no_grad():
            result = module(*tensors.values())
        if not isinstance(result, torch.Tensor) or result.numel() != 1:
            shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
            raise OptionError(f"`loss`: expected a function that returns one number, got {shape}")
        self.value = float(result)
        self._folder = tempfile.TemporaryDirectory(prefix="onnx_fp8.")
        self.path = os.path.join(self._folder.name, "loss.onnx")
        try:
            with quiet():
                _write(module, tuple(tensors.values()), list(tensors), self.path)
        except Exception as error:
            text = str(error).strip().splitlines()
            raise Error(f"`loss`: PyTorch can't export this function: {text[0] if text else error!r}") from error
        self._check_gradients(module, tensors, [name for name in tensors if name in outputs])

    def _check_gradients(self, module, tensors, outputs):
        """Error: the file has other gradients by the model's outputs. It can't tell where a function stops them."""
        import torch
        from .session import TrainingSession
        tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        wanted = [name for name in outputs if tensors[name].is_floating_point()]
        for name in wanted:
            tensors[name].requires_grad_()
        with torch.enable_grad():
            result = module(*tensors.values())
        if not wanted or not result.requires_grad:
            return
        theirs = torch.autograd.grad(result, [tensors[name] for name in wanted], allow_unused=True)
        session = TrainingSession(self.path, loss="output:loss")
        feeds = {info.name: tensors[info.name].detach().numpy() for info in session.inputs}
        ours = session.gradients(feeds, input_gradients=True).input_gradients
        for name, gradient in zip(wanted, theirs):
            expected = torch.zeros_like(tensors[name]) if gradient is None else gradient
            got = torch.tensor(np.array(ours[name])) if name in ours else torch.zeros_like(expected)
            difference, largest = (got - expected).abs().max().item(), expected.abs().max().item()
            if difference > GRADIENT_TOLERANCE * max(largest, 1e-6):
                raise Error(f"`loss`: the exported function has another gradient by {name} than PyTorch, by up to "
                            f"{difference:.3g} of {largest:.3g}: a file can't tell where a function stops gradients or "
                            "has its own (detach, no_grad, autograd.Function)")

    def check(self, value):
        """Error: the exported loss is another one."""
        if np.isnan(self.value) and np.isnan(value):
            return
        if not abs(self.value - value) <= TOLERANCE * max(1, abs(self.value)):
            raise Error(f"`loss`: the exported function gives {value:.7g} for the first batch, PyTorch gives "
                        f"{self.value:.7g}")


def _rows(name, array, options, samples):
    whole = options.get("whole") or ()
    per_sample = np.ndim(array) and name not in ([whole] if isinstance(whole, str) else whole)
    return array[:samples] if per_sample else array


def _read(file, options):
    """The arrays of a data file, as far as an example needs them."""
    path = os.fspath(file)
    if path.endswith(".npz"):
        return dict(np.load(path))
    if path.endswith(".npy"):
        return {os.path.basename(path)[:-4]: np.load(path, mmap_mode="r")}
    if path.endswith(".safetensors"):
        from safetensors.numpy import load_file
        return load_file(path)
    length = options.get("seq_len")
    if not length:
        raise OptionError("`seq_len` is missing: token files need it")
    tokens = np.fromfile(path, options.get("token_dtype", "uint16"), count=2 * length + 1).astype(np.int64)
    return {"": tokens[:2 * length].reshape(2, length),
            options.get("label", "labels"): tokens[1:2 * length + 1].reshape(2, length)}


def _samples(inputs):
    """How many samples an example has: as many as the model was exported for, or two."""
    fixed = [info.shape[0] for info in inputs if info.shape and info.shape[0] > 0]
    return max(fixed[0] if fixed else 2, 2)


def _first_rows(data, inputs, options):
    """Of arrays and files."""
    if hasattr(data, "items"):
        arrays = dict(data)
    else:
        arrays = {}
        for file in data if isinstance(data, (list, tuple)) else [data]:
            arrays.update(_read(file, options))
    inputs = [info for info in inputs if info.name in arrays or "" in arrays]
    rows = {name: _rows(name, array, options, _samples(inputs)) for name, array in arrays.items()}
    if "" in rows:  # the tokens
        rows[inputs[0].name] = rows.pop("")
    return rows


def _example(function, model, source, inputs):
    """Of a source of batches or rows. Parameters of the function that have no name of an output are labels, but for the
    first one if none has."""
    from ._arrays import from_core
    from .commands import inspect as inspect_model
    outputs = {output["name"] for output in inspect_model(model)["outputs"]}
    names = [info.name for info in inputs]
    parameters = _parameters(function)[0]
    labels = [name for name in parameters if name not in outputs and name not in names]
    if not outputs & set(parameters):
        labels = labels[1:]
    return from_core(source.example(_samples(inputs), names + labels, dict.fromkeys(labels)))


def function_of(function, model, data, options, source=None):
    """The function as a LossFunction, for the first samples of the data of a run, or of the source that gives them."""
    from ._arrays import from_core, to_core
    from .session import TrainingSession
    session = TrainingSession(model)
    names = {info.name for info in session.inputs}
    rows = (_example(function, model, source, session.inputs) if source
            else _first_rows(data, session.inputs, options))
    feeds = {name: array for name, array in rows.items() if name in names}
    outputs = from_core(session._core.eval(to_core(feeds))[1])
    labels = {name: array for name, array in rows.items() if name not in names}
    loss = LossFunction(function, outputs, feeds, labels)
    loss.check(TrainingSession(model, loss=loss.path).eval(feeds | labels).loss)
    return loss
