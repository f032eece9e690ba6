#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark's models in PyTorch on a GPU, for scripts/gpu_check.sh.

  gpu_peers.py export FILE                   write the model for this program
  gpu_peers.py train PEER TOKENS [STEPS]     train it, print one JSON object

PEER: bfloat16 (autocast), or torchao's tensorwise or rowwise recipe on top of
it; all with torch.compile. ONNX_FP8_BENCH_SIZE chooses the size, as in ./dev
bench. --device cpu checks this script where there is no GPU, without
torch.compile."""
import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

from bench import task, torch_models

WARM_UP = 5  # steps that do not count: the first ones compile


def export(file):
    model = torch_models.make("gpt")
    example = (torch.zeros(task.BATCH, task.SEQ, dtype=torch.int64),)
    torch.onnx.export(model, example, file, dynamo=True, opset_version=18,
                      optimize=False, external_data=False,
                      input_names=["input_ids"], output_names=["logits"])


def to_float8(model, recipe, device):
    """Every nn.Linear, lm_head too, as this program does."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    if device == "cpu":
        config = Float8LinearConfig(emulate=True)
    else:
        config = Float8LinearConfig.from_recipe_name(recipe)
    return convert_to_float8_training(model, config=config)


def train(name, peer, path, steps, lr, device):
    model = torch_models.make(name).to(device)  # GPT: the weights of `export`
    if peer != "bfloat16":
        model = to_float8(model, peer, device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=lr, betas=task.BETAS, eps=task.EPS,
        weight_decay=task.WEIGHT_DECAY, fused=True)
    batches = task.Batches(path)

    def loss_of(input_ids, labels):
        with torch.autocast(device, torch.bfloat16):
            logits = model(input_ids)
            return F.cross_entropy(logits.flatten(0, 1).float(),
                                   labels.flatten())

    if device != "cpu":
        loss_of = torch.compile(loss_of)
    losses, seconds = [], []
    for step in range(WARM_UP + steps):
        begin = time.perf_counter()
        input_ids, labels = (torch.from_numpy(part).to(device)
                             for part in batches.next())
        optimizer.zero_grad()
        loss = loss_of(input_ids, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for the GPU
        if step >= WARM_UP:
            seconds.append(time.perf_counter() - begin)
    facts = {"milliseconds": 1e3 * statistics.median(seconds),
             "losses": losses,
             "torch": torch.__version__}
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
        facts["peak_bytes"] = torch.cuda.max_memory_allocated()
    return facts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--lr", type=float, default=task.LR)
    parser.add_argument("--model", choices=task.MODELS, default="gpt")
    parser.add_argument("what", choices=("export", "train"))
    parser.add_argument("argument", help="FILE or PEER")
    parser.add_argument("tokens", nargs="?", help="little-endian uint16")
    parser.add_argument("steps", nargs="?", type=int, default=20)
    chosen = parser.parse_args()
    if chosen.what == "export":
        export(chosen.argument)
        return
    if chosen.tokens is None:
        parser.error("train needs TOKENS")
    facts = train(chosen.model, chosen.argument, chosen.tokens, chosen.steps, chosen.lr,
                  chosen.device)
    print(json.dumps(facts))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
