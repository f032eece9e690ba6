# SPDX-License-Identifier: Apache-2.0
"""The most bytes that the tensors of one step hold at once in PyTorch:
parameters, moments, gradients, activations and temporaries, counted by
PyTorch's own tracker. Usage: python -m bench.torch_memory MODEL autocast|fp32.
Prints one JSON object. The first step, which makes the moments, is not
counted."""
import contextlib
import json
import sys

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F

from bench import task, torch_models


def main():
    name, dtype = sys.argv[1:3]
    model = torch_models.make(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.LR)
    shape = (task.BATCH, task.SEQ)
    input_ids, labels = (torch.randint(0, task.VOCABULARY, shape) for _ in "ab")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with (torch.autocast("cpu", torch.bfloat16) if dtype == "autocast"
              else contextlib.nullcontext()):
            logits = model(input_ids)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()

    step()
    tracker = MemTracker()
    tracker.track_external(model, optimizer, input_ids, labels)
    with tracker:
        step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    kinds = {getattr(kind, "name", str(kind)).lower(): size
             for kind, size in peak.items()}
    print(json.dumps(kinds))


if __name__ == "__main__":
    main()
