# SPDX-License-Identifier: Apache-2.0
"""A module as a file without its weights: parameters that lie on the meta device have no numbers, and no memory."""
import contextlib
import copy

import torch

from ._errors import OptionError

# The file that does not exist. Messages about it name the cause.
LOCATION = "weights-left-out"


def is_on_meta(module):
    return any(parameter.is_meta for parameter in module.parameters())


def _moved(value):
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if hasattr(value, "items"):
        return {key: _moved(item) for key, item in value.items()}
    return type(value)(map(_moved, value)) if isinstance(value, (tuple, list)) else value


def on_meta(module, example_inputs):
    """The module and the examples, all on the meta device: PyTorch computes on one device."""
    elsewhere = [name for name, parameter in module.named_parameters() if not parameter.is_meta]
    if elsewhere:
        raise OptionError("`module`: expected all of its parameters on the meta device or none, got "
                          f"{elsewhere[0]} elsewhere")
    return copy.deepcopy(module).to("meta"), _moved(example_inputs)


@contextlib.contextmanager
def _parameters_on_meta():
    """New modules have buffers on the CPU, and parameters that take no memory."""
    register = torch.nn.Module.register_parameter

    def on_meta_device(part, name, parameter):
        if parameter is not None and not parameter.is_meta:
            parameter = torch.nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(part, name, parameter)

    torch.nn.Module.register_parameter = on_meta_device
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.nn.Module.register_parameter = register


def _made_again(module, key):
    """Makes a buffer anew from a configuration: the one of its module, or of the nearest module around it that has one."""
    names = key.split(".")
    for depth in reversed(range(len(names))):
        part = module.get_submodule(".".join(names[:depth]))
        config = getattr(part, "config", None)
        if config is None:
            continue
        try:
            with _parameters_on_meta():
                made = type(part)(config)
        except Exception:  # parts of others may need more than a configuration
            continue
        tensor = dict(made.named_buffers(remove_duplicate=False)).get(".".join(names[depth:]))
        if tensor is not None and not tensor.is_meta:
            return tensor
    return None


def _numbers(module, key, placeholder):
    """The numbers of a tensor that is no parameter."""
    tensor = dict(module.named_buffers(remove_duplicate=False)).get(key)
    if tensor is not None and tensor.is_meta:
        tensor = _made_again(module, key)
    if tensor is None or tensor.is_meta or tensor.shape != placeholder.shape:
        raise OptionError(f"`module`: {key} is no parameter, so its numbers belong into the file, and the meta device has "
                          "none: make it on the CPU")
    return tensor.detach().to(placeholder.dtype)


def leave_out(program, module):
    """Makes the parameters of `program` tensors of a data file that does not exist. `module`: as its user has it."""
    import onnx_ir
    from onnx_ir.tensor_adapters import TorchTensor

    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for name, value in program.model.graph.initializers.items():
        held = value.const_value
        raw = getattr(held, "raw", None)
        if name in parameters:
            value.const_value = onnx_ir.ExternalTensor(LOCATION, None, None, held.dtype, shape=held.shape, name=name)
        elif isinstance(raw, torch.Tensor) and raw.is_meta:
            value.const_value = TorchTensor(_numbers(module, name, raw), name)
