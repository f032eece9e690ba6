# SPDX-License-Identifier: Apache-2.0
"""Whether an exported file computes the same as the module, outputs and gradients: one example through both."""
import contextlib
import warnings

import numpy as np
import torch

from . import _torch_call, _torch_record
from ._errors import Error
from .session import TrainingSession

# Largest differences, as shares of the largest number in a tensor.
_BOUNDS = {torch.float16: 2e-2, torch.bfloat16: 1e-1}
_BOUND = 1e-3
# Gradients of parameters far smaller than the largest one are rounding.
_ROUNDING = 1e-5
# Relative changes of parameters that are like roundings, how many are tried, and the most that gradients may differ by
# in multiples of what they do.
_NUDGE, _NUDGES, _TIMES = 2e-6, 3, 4
_NAMED = 3  # parameters in a sentence


def _set_modes(call, modes, training):
    """Evaluation mode, or each part's own mode: some may be frozen, others not."""
    call.module.eval()
    if training:
        for child, mode in modes:
            child.training = mode


def _outputs(call, examples):
    outputs = call.module(*examples)
    return dict(zip(call.outputs, outputs if isinstance(outputs, tuple) else (outputs,)))


def _forward(call, examples, seed=0):
    """{output: tensor} in the module's mode. `as_it_was` surrounds it."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        outputs = _outputs(call, examples)
    return {name: output.detach().cpu() for name, output in outputs.items()}


class _File:
    """The file, run on inputs. Its loss is the first output, or that output's distance from random numbers."""

    def __init__(self, call, path, outputs):
        self._inputs = call.inputs
        self._name, output = next((n, o) for n, o in outputs.items() if o.is_floating_point())
        options = {"loss": "mse", "logits": self._name, "label": "onnx_fp8_labels"} if output.dim() else \
            {"loss": f"output:{self._name}"}
        self._session = TrainingSession(path, lr=0.0, optimizer="sgd", **options)

    def _feeds(self, examples, expected):
        feeds = dict(zip(self._inputs, (example.detach().cpu() for example in examples)))
        if expected[self._name].dim():
            feeds["onnx_fp8_labels"] = self._labels(expected)
        return feeds

    def _labels(self, expected):
        return torch.randn(expected[self._name].shape, generator=torch.Generator().manual_seed(0)).to(
            expected[self._name].dtype)

    def run(self, examples, expected):
        """The outputs in evaluation mode."""
        return self._session.eval(self._feeds(examples, expected)).outputs

    def train(self, examples, expected):
        """The outputs in training mode without dropout, and the gradients by names in the file."""
        result = self._session.gradients(self._feeds(examples, expected))
        return result.outputs, result.gradients

    def loss(self, outputs):
        """The same of the module's outputs."""
        output = outputs[self._name]
        return torch.nn.functional.mse_loss(output, self._labels(outputs).to(output.device)) if output.dim() else output


def _compare(where, ours, theirs):
    """Facts about outputs of the file that differ from the module's."""
    said = []
    for name, expected in theirs.items():
        got = torch.from_numpy(np.array(ours[name], np.float64)) if name in ours else None
        if got is None or expected.is_complex():
            continue
        wide = expected.to(torch.float64)
        if got.shape != wide.shape:
            said.append(f"{where} the output {name} has the shape {tuple(got.shape)}, the module's has "
                        f"{tuple(wide.shape)}")
            continue
        finite = torch.isfinite(wide) & torch.isfinite(got)
        if not torch.equal(torch.isfinite(wide), torch.isfinite(got)):
            said.append(f"{where} the output {name} is not finite in other places than the module's")
        if not finite.any():
            continue
        difference, largest = (got - wide)[finite].abs().max().item(), wide[finite].abs().max().item()
        if difference <= _BOUNDS.get(expected.dtype, _BOUND) * max(largest, 1e-6):
            continue
        numbers = f": {got.item():.6g}, the module's is {wide.item():.6g}" if wide.dim() == 0 else \
            f" by up to {difference:.3g}; its largest number is {largest:.3g}"
        said.append(f"{where} the output {name} differs from the module's{numbers}")
    return said


def _shorter(call):
    """The example with one number less along its open axes; None if it has none to spare."""
    shorter = list(call.examples)
    for i, (name, example) in enumerate(zip(call.inputs, call.examples)):
        for axis in call.axes.get(name, {}):
            if example.shape[axis] < 2:
                return None
            shorter[i] = shorter[i].narrow(axis, 0, example.shape[axis] - 1).contiguous()
    return shorter if any(call.axes.values()) else None


def _at_other_sizes(call, file):
    """Exporters that trace keep sizes of the example where the module computes with them."""
    examples = _shorter(call)
    try:
        expected = _forward(call, examples) if examples else None
    except Exception:  # the module itself wants more
        expected = None
    if expected is None:
        return []
    sizes = ", ".join(f"{name} {'×'.join(map(str, example.shape))}" for name, example in zip(call.inputs, examples))
    try:
        said = _compare(f"for {sizes}", file.run(examples, expected), expected)
    except Error as error:
        said = [f"for {sizes} the file does not run: {str(error).splitlines()[0]}"]
    return [f"its axes are open but it holds for the example's sizes alone, `dynamic_axes={{}}` would fix them: {text}"
            for text in said[:1]]


def _listed(keys):
    return ", ".join(keys[:_NAMED]) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


@contextlib.contextmanager
def _nudged(module, seed):
    """Parameters a few roundings away from their numbers. Gives them back afterwards."""
    generator = torch.Generator().manual_seed(seed)
    before = [(parameter, parameter.data) for parameter in module.parameters()]
    try:
        for parameter, data in before:
            parameter.data = data * (1 + _NUDGE * torch.randn(data.shape, generator=generator)).to(data)
        yield
    finally:
        for parameter, data in before:
            parameter.data = data


def _gradients(call, file, parameters):
    """PyTorch's, in float64; None where it has none."""
    with torch.enable_grad():
        loss = file.loss(_outputs(call, call.examples))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True) if loss.requires_grad else \
            [None] * len(parameters)
    return [None if g is None else (g.to_dense() if g.is_sparse else g).detach().cpu().to(torch.float64)
            for g in gradients]


def _spread(call, file, parameters, gradients):
    """How far rounding may move each gradient: by a lot where many numbers lie beside a ReLU's corner, or where a
    normalization has few elements."""
    spread = [0.0] * len(gradients)
    for seed in range(_NUDGES):
        with _nudged(call.module, seed):
            others = _gradients(call, file, parameters)
        spread = [max(most, 0.0 if a is None or b is None or not a.numel() else (a - b).abs().max().item())
                  for most, a, b in zip(spread, gradients, others)]
    return spread


def _compare_gradients(call, file, path, gradients):
    """Facts about the file's gradients that differ from the module's, in the mode that the module is in. An exporter
    writes the forward pass, and loses where the module stops gradients or replaces them."""
    entries = _torch_record.read(path).get("tensors", {})
    parameters = {key: p for key, p in call.module.named_parameters(remove_duplicate=False) if p.requires_grad}
    ours = {}
    for name, array in gradients.items():
        entry = entries.get(name, {})
        array = torch.from_numpy(np.array(array, np.float64))
        ours[entry.get("key")] = array.T if entry.get("transposed") else array
    keys = [key for key in parameters if key in ours]
    if not keys:
        return []
    try:
        theirs = _gradients(call, file, [parameters[key] for key in keys])
    except RuntimeError as error:  # PyTorch can't differentiate the module on this machine
        return [f"its gradients were not compared with the module's: {str(error).splitlines()[0]}"]
    largest = max([g.abs().max().item() for g in theirs if g is not None and g.numel()], default=0)
    stopped, other = [], []
    for key, gradient in zip(keys, theirs):
        got = ours[key]
        if not got.numel():
            continue
        if gradient is None:
            stopped += [key] if got.abs().max().item() > _ROUNDING * largest else []
            continue
        bound = _BOUNDS.get(parameters[key].dtype, _BOUND) * gradient.abs().max().item() + _ROUNDING * largest
        if got.shape != gradient.shape or not (got - gradient).abs().max().item() <= bound:
            other.append(key)
    if other:
        spread = dict(zip(keys, _spread(call, file, [parameters[key] for key in keys], theirs)))
        theirs = dict(zip(keys, theirs))
        other = [key for key in other if ours[key].shape != theirs[key].shape or
                 not (ours[key] - theirs[key]).abs().max().item() <= _TIMES * spread[key]]
    said = []
    why = "the file can't tell where the module stops gradients or has its own (detach, no_grad, autograd.Function, " \
          "options of Embedding)"
    if stopped:
        said.append(f"PyTorch gives no gradient to {_listed(stopped)}, which the file trains: {why}; `freeze` keeps them")
    if other:
        said.append(f"the gradient of {_listed(other)} differs from the module's: {why}")
    return said


def differences(call, path) -> list[str]:
    """What differs between module and file in evaluation mode, also at other sizes, and in training mode if the module
    is in it and draws no random numbers; then gradients."""
    with _torch_call.as_it_was(call.module), _torch_call.ready(call), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modes = [(child, child.training) for child in call.module.modules()]
        _set_modes(call, modes, False)
        expected = _forward(call, call.examples)
        if not any(output.is_floating_point() for output in expected.values()):
            return []
        try:
            file = _File(call, path, expected)
            said = _compare("in evaluation mode", file.run(call.examples, expected), expected)
            said += [] if said else _at_other_sizes(call, file)
            if said:
                return said
            outputs, gradients = file.train(call.examples, expected)
            if any(mode for _, mode in modes):
                _set_modes(call, modes, True)
                first, second = (_forward(call, call.examples, seed) for seed in (0, 1))
                if all(torch.equal(first[name], second[name]) for name in first):
                    said += _compare("in training mode", outputs, first)
                elif any(isinstance(child, torch.nn.modules.batchnorm._NormBase) and mode for child, mode in modes):
                    return said  # no mode of the module has the statistics of a batch and no dropout
                else:
                    _set_modes(call, modes, False)
            said += [] if said else _compare_gradients(call, file, path, gradients)
        except Error as error:
            return [f"the file was not compared with the module: {str(error).splitlines()[0]}"]
    return said


def used(call, keys) -> list[str]:
    """The keys whose parameters are trained and reach the module's outputs."""
    parameters = dict(call.module.named_parameters(remove_duplicate=False))
    keys = [key for key in keys if parameters[key].requires_grad]
    with _torch_call.as_it_was(call.module), _torch_call.ready(call):
        outputs = call.module(*call.examples)
        outputs = [o for o in (outputs if isinstance(outputs, tuple) else (outputs,)) if o.requires_grad]
        if not outputs or not keys:
            return []
        total = sum(output.float().sum() for output in outputs)
        gradients = torch.autograd.grad(total, [parameters[key] for key in keys], allow_unused=True)
    return [key for key, gradient in zip(keys, gradients) if gradient is not None]
