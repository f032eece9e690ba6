# SPDX-License-Identifier: Apache-2.0
"""Whether an exported file computes the same as the module: one example through both."""
import warnings

import numpy as np
import torch

from . import _torch_call
from ._errors import Error
from .session import TrainingSession

# Of the largest number of an output.
_BOUNDS = {torch.float16: 2e-2, torch.bfloat16: 1e-1}
_BOUND = 1e-3


def _forward(call, examples, training, seed=0):
    """{output: tensor} in one of the modes. `as_it_was` surrounds it."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        call.module.train(training)
        outputs = call.module(*examples)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return {name: output.detach().cpu() for name, output in zip(call.outputs, outputs)}


class _File:
    """The file, run on inputs. It has a loss because a session wants one: only the outputs matter."""

    def __init__(self, call, path, outputs):
        self._inputs = call.inputs
        self._name, output = next((n, o) for n, o in outputs.items() if o.is_floating_point())
        options = {"loss": "mse", "logits": self._name, "label": "onnx_fp8_labels"} if output.dim() else \
            {"loss": f"output:{self._name}"}
        self._session = TrainingSession(path, lr=0.0, optimizer="sgd", **options)

    def run(self, examples, expected, training):
        feeds = dict(zip(self._inputs, (example.detach().cpu() for example in examples)))
        if expected[self._name].dim():
            feeds["onnx_fp8_labels"] = torch.zeros_like(expected[self._name])
        return (self._session.gradients(feeds) if training else self._session.eval(feeds)).outputs


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
        expected = _forward(call, examples, False) if examples else None
    except Exception:  # the module itself wants more
        expected = None
    if expected is None:
        return []
    sizes = ", ".join(f"{name} {'×'.join(map(str, example.shape))}" for name, example in zip(call.inputs, examples))
    try:
        said = _compare(f"for {sizes}", file.run(examples, expected, False), expected)
    except Error as error:
        said = [f"for {sizes} the file does not run: {str(error).splitlines()[0]}"]
    return [f"its axes are open but it holds for the example's sizes alone, `dynamic_axes={{}}` would fix them: {text}"
            for text in said[:1]]


def differences(call, path) -> list[str]:
    """What differs between module and file in evaluation mode, also at other sizes, and in training mode if the module
    is in it and draws no random numbers."""
    with _torch_call.as_it_was(call.module), _torch_call.ready(call), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training = call.module.training
        expected = _forward(call, call.examples, False)
        if not any(output.is_floating_point() for output in expected.values()):
            return []
        try:
            file = _File(call, path, expected)
            said = _compare("in evaluation mode", file.run(call.examples, expected, False), expected)
            said += [] if said else _at_other_sizes(call, file)
            if training and not said:
                first, second = (_forward(call, call.examples, True, seed) for seed in (0, 1))
                if all(torch.equal(first[name], second[name]) for name in first):
                    said += _compare("in training mode", file.run(call.examples, first, True), first)
        except Error as error:
            return [f"the file was not compared with the module: {str(error).splitlines()[0]}"]
    return said


def used(call, keys) -> list[str]:
    """Those of these parameters that the module's outputs depend on."""
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
