# SPDX-License-Identifier: Apache-2.0
"""The most bytes that the tensors of one step hold at once in PyTorch:
parameters, moments, gradients, activations and temporaries, counted by
PyTorch's own tracker, which looks into torchao's moments for their codes,
scales and tables. Usage: python -m bench.torch_memory MODEL CHOICE...
The choices: autocast (to bfloat16), checkpoint (each block), adamw8bit
(torchao's, in place of AdamW). Prints one JSON object. Tensors are fake: they
have shapes, types and lifetimes, but no values. The first step, which makes
the moments, is not counted, and neither is the update of torchao, whose
temporaries a compiler removes that runs no fake tensors."""
import contextlib
import functools
import json
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bench import task, torch_models


def adamw8bit():
    """torchao's AdamW8bit, whose update is not compiled here."""
    from torchao.optim import AdamW8bit, subclass_8bit
    torch.compiler.set_stance("force_eager")
    subclass_8bit.get_qmap_signed()  # these tables need values
    subclass_8bit.get_qmap_unsigned()
    return AdamW8bit


def peak(name, choices, optimizer):
    model = torch_models.make(name)
    if "checkpoint" in choices:
        for block in getattr(model, "blocks", None) or model.layers:
            block.forward = functools.partial(checkpoint, block.forward,
                                              use_reentrant=False)
    optimizer = optimizer(model.parameters(), lr=task.LR)
    inputs, labels = torch_models.batch(name)

    def step(update=True):
        optimizer.zero_grad(set_to_none=True)
        with (torch.autocast("cpu", torch.bfloat16) if "autocast" in choices
              else contextlib.nullcontext()):
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        if update:
            optimizer.step()

    step()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, inputs, labels)
    with tracker:
        step("adamw8bit" not in choices)
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]


def main():
    name, *choices = sys.argv[1:]
    optimizer = adamw8bit() if "adamw8bit" in choices else torch.optim.AdamW
    with FakeTensorMode():
        kinds = peak(name, choices, optimizer)
    print(json.dumps({getattr(kind, "name", str(kind)).lower(): size
                      for kind, size in kinds.items()}))


if __name__ == "__main__":
    main()
