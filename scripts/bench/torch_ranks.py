# SPDX-License-Identifier: Apache-2.0
"""Trains in PyTorch on several processes over gloo. Usage:
  python -m bench.torch_ranks ddp|fsdp2 MODEL TOKENS RANKS STEPS THREADS
Prints one line of JSON: seconds of the first rank's steps, parameters."""
import json
import os
import socket
import sys
import time

import torch
from torch import distributed, multiprocessing
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from bench import task, torch_models


def wrapped(model, kind):
    if kind == "ddp":
        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, kind, name, tokens, ranks, steps, threads, port, results):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(threads)
    model = torch_models.make(name)
    parameters = sum(p.numel() for p in model.parameters())
    model = wrapped(model, kind)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=task.LR, betas=task.BETAS, eps=task.EPS,
        weight_decay=task.WEIGHT_DECAY, foreach=True)
    batches, seconds = task.Batches(tokens), []
    for _ in range(steps):
        begin = time.perf_counter()
        input_ids, labels = (
            torch.from_numpy(x[rank * len(x) // ranks:
                               (rank + 1) * len(x) // ranks])
            for x in batches.next())
        optimizer.zero_grad()
        logits = model(input_ids)
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        results.put({"seconds": seconds, "parameters": parameters})
    distributed.destroy_process_group()


def main():
    kind, name, tokens = sys.argv[1:4]
    ranks, steps, threads = map(int, sys.argv[4:7])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [context.Process(target=train, args=(
        rank, kind, name, tokens, ranks, steps, threads, port, results))
        for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit("a process of PyTorch has failed")
    print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
