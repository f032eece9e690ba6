# SPDX-License-Identifier: Apache-2.0
"""Trained weights for modules of PyTorch."""
import os
import tempfile
from typing import NamedTuple

import torch

from . import commands
from ._errors import Error
from ._notes import note
from .session import TrainingSession


class LoadedWeights(NamedTuple):
    """What `load_weights` did, by the keys of the module's state_dict. `missing`: tensors of the module for which there
    were no numbers. `unexpected`: arrays of the file that the module has no tensor for. `tied`: other keys of tensors
    that were loaded under one key."""
    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    tied: list[str]


def state_dict(trained, *, best: bool = False) -> dict[str, torch.Tensor]:
    """The trained weights and running statistics by the module's names, for `load_state_dict` of a module elsewhere.
    `trained`, `best`: as for `load_weights`. Tied weights have an entry for each name that PyTorch knows; buffers
    that training does not change are not among them."""
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory(prefix="onnx_fp8.") as folder:
        path = os.path.join(folder, "weights.safetensors")
        if isinstance(trained, TrainingSession):
            trained.export(path)
        elif os.path.isdir(trained):
            commands.export(trained, path, **({"best": True} if best else {}))
        else:
            path = os.fspath(trained)
        return load_file(path)


def _first(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _targets(module):
    """{key: tensor} of the module's state_dict, tied ones under each key; all are of the module's own memory."""
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    keys = module.state_dict().keys()
    return {key: tensor for key, tensor in own.items() if key in keys}


def load_weights(module, trained, *, strict: bool = False, best: bool = False) -> LoadedWeights:
    """Copies trained weights and running statistics into `module`, by the keys of its state_dict. `trained`: a
    TrainingSession, the folder of a run (`best`: its best weights, of `save_best`), or a .safetensors file of `export`.

    Returns the keys. Tensors of the module that the file lacks keep their numbers, and a note names the parameters
    among them; `strict`: they are an error, and so are arrays that the module lacks. Errors: no array belongs to the
    module; another shape; different numbers for tensors that are one in the module. The module is then unchanged.
    """
    weights = state_dict(trained, best=best)
    targets = _targets(module)
    loaded = [key for key in weights if key in targets]
    unexpected = [key for key in weights if key not in targets]
    if not loaded:
        raise Error(f"[{next(iter(weights), 'weights')}] expected weights of this module, whose first keys are "
                    f"{_first(list(targets))}, got {_first(list(weights)) or 'none'}")
    source = {}  # one tensor of the module → the key that it is loaded from
    for key in loaded:
        target, weight = targets[key], weights[key]
        if target.shape != weight.shape:
            raise Error(f"[{key}] expected the shape {tuple(target.shape)}, got {tuple(weight.shape)}")
        first = source.setdefault(id(target), key)
        if first != key and not torch.equal(weights[first], weight):
            raise Error(f"[{key}] expected the numbers of {first}, with which it is one tensor of the module, got others")
    tied = [key for key, target in targets.items() if key not in weights and id(target) in source]
    missing = [key for key, target in targets.items() if id(target) not in source]
    if strict and (missing or unexpected):
        raise Error(f"[{(missing + unexpected)[0]}] expected the keys of this module (`strict`); missing: "
                    f"{_first(missing) or 'none'}; unexpected: {_first(unexpected) or 'none'}")
    with torch.no_grad():
        for key in source.values():
            targets[key].copy_(weights[key])
    parameters = {id(parameter) for parameter in module.parameters()}
    kept = [key for key in missing
            if id(targets[key]) in parameters or key.rpartition(".")[2] in ("running_mean", "running_var")]
    if kept:
        note(f"the file has no weights for {_first(kept)}: the module keeps its own (`strict=True` refuses)")
    if unexpected:
        note(f"the module has no tensor for {_first(unexpected)} of the file (`strict=True` refuses)")
    return LoadedWeights(loaded, missing, unexpected, tied)
