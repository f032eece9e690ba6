# SPDX-License-Identifier: Apache-2.0
"""Trains adapters of PEFT on a Llama in bfloat16. Usage:
python -m bench.torch_lora FOLDER TOKENS SETTINGS
Prints one JSON object. The settings are JSON, see bench.lora."""
import json
import statistics
import sys
import time

import numpy
import peft
import torch
import transformers

from bench.turns import peak_rss


def main():
    folder, path, settings = sys.argv[1:]
    settings = json.loads(settings)
    tokens = torch.from_numpy(numpy.fromfile(path, "<u2").astype(numpy.int64))
    module = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    module = peft.get_peft_model(module, peft.LoraConfig(
        r=settings["rank"], lora_alpha=settings["alpha"], target_modules=settings["targets"], task_type="CAUSAL_LM"))
    module.train()
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=settings["lr"])
    losses, seconds, length = [], [], settings["tokens"]
    for begin in range(0, settings["steps"] * length, length):
        start = time.perf_counter()
        logits = module(input_ids=tokens[None, begin:begin + length]).logits[0].float()
        loss = torch.nn.functional.cross_entropy(logits, tokens[begin + 1:begin + length + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"losses": losses, "tokens_per_second": length / statistics.median(seconds[1:]),
                      "peak_bytes": peak_rss()}))


if __name__ == "__main__":
    main()
