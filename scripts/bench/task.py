# SPDX-License-Identifier: Apache-2.0
"""The training task that all programs are given: sizes, data, optimizer."""
import os

import numpy

# What differs from the default task, by --size. Programs that take part find
# the choice in the environment.
VARIABLE = "ONNX_FP8_BENCH_SIZE"
DEFAULT = {"LAYERS": 4, "WIDTH": 256, "HEADS": 8, "KV_HEADS": 4,
           "VOCABULARY": 4096, "BATCH": 8, "SEQ": 256, "TIED": False,
           "HIDDEN": None}  # of the LLaMA; None: 3 * WIDTH
SIZES = {
    "default": {},
    "t1024": {"BATCH": 1, "SEQ": 1024},
    "t4096": {"BATCH": 1, "SEQ": 4096},
    "v32000": {"VOCABULARY": 32000},
    "w1024": {"WIDTH": 1024, "HEADS": 16, "KV_HEADS": 8},
    # GPT-2 with 124 M parameters (its embedding is the weight of lm_head, too),
    # and a LLaMA of these sizes.
    "gpt2": {"LAYERS": 12, "WIDTH": 768, "HEADS": 12, "KV_HEADS": 4,
             "VOCABULARY": 50304, "BATCH": 1, "SEQ": 1024, "TIED": True},
}
# Enough tokens for a GPU.
SIZES["gpt2_b16"] = {**SIZES["gpt2"], "BATCH": 16}
# Four layers of Llama-3-8B's width (bench.graphs.LLAMA3).
SIZES["llama3_8b_4"] = {"LAYERS": 4, "WIDTH": 4096, "HEADS": 32, "KV_HEADS": 8,
                        "HIDDEN": 14336, "VOCABULARY": 128256, "BATCH": 1,
                        "SEQ": 8192}
MODELS = ("gpt", "llama")
# A ViT also has these sizes. Its layers and widths are the GPT's.
IMAGE, PATCH, CLASSES = 224, 16, 1000
PATCHES = (IMAGE // PATCH) ** 2


def linears():
    """{model: {(inputs, outputs): the number of nn.Linear of this size}}. In a
    step each has three products of TOKENS rows: forward, dgrad and wgrad."""
    kv = KV_HEADS * (WIDTH // HEADS)
    head = {(WIDTH, VOCABULARY): 1}
    return {
        "gpt": {(WIDTH, 3 * WIDTH): LAYERS, (WIDTH, WIDTH): LAYERS,
                (WIDTH, 4 * WIDTH): LAYERS, (4 * WIDTH, WIDTH): LAYERS, **head},
        "llama": {(WIDTH, WIDTH): 2 * LAYERS, (WIDTH, kv): 2 * LAYERS,
                  (WIDTH, HIDDEN): 2 * LAYERS, (HIDDEN, WIDTH): LAYERS,
                  **head},
    }


def choose(size):
    """Sets the sizes of this module, and of programs that are started."""
    os.environ[VARIABLE] = size
    chosen = globals()
    chosen.update(DEFAULT | SIZES[size])
    # 2/3 of 4 * WIDTH, rounded up to multiples of 256.
    chosen["HIDDEN"] = HIDDEN or 3 * WIDTH
    chosen["TOKENS"] = BATCH * SEQ
    chosen["LINEARS"] = linears()


choose(os.environ.get(VARIABLE, "default"))

LR = 1e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.01

def write_tokens(path, batches):
    """Random tokens: the amount of work does not depend on them."""
    random = numpy.random.default_rng(0)
    count = batches * TOKENS + 1
    random.integers(0, min(VOCABULARY, 1 << 16), count).astype("<u2").tofile(path)


class Batches:
    """Windows of SEQ tokens one after the other, as `train --no-shuffle` reads
    the file; after its end it starts again. BATCH · SEQ is always TOKENS."""

    def __init__(self, path):
        self._tokens = numpy.fromfile(path, "<u2").astype(numpy.int64)
        self._count = (len(self._tokens) - 1) // TOKENS
        self._next = 0

    def next(self):
        """(input_ids, labels), each (BATCH, SEQ) int64."""
        begin = self._next % self._count * TOKENS
        self._next += 1
        part = self._tokens[begin:begin + TOKENS + 1]
        return (part[:-1].reshape(BATCH, SEQ).copy(),
                part[1:].reshape(BATCH, SEQ).copy())
