# SPDX-License-Identifier: Apache-2.0
"""The training task that all programs are given: sizes, data, optimizer."""
import numpy

LAYERS = 4
WIDTH = 256
HEADS = 8
KV_HEADS = 4  # of the LLaMA-style model
VOCABULARY = 4096
BATCH = 8
SEQ = 256
TOKENS = BATCH * SEQ
MODELS = ("gpt", "llama")

LR = 1e-3
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.01

# (inputs, outputs): the number of nn.Linear of this size in a model. In a step
# each has three products of 2048 rows: forward, dgrad and wgrad.
LINEARS = {
    "gpt": {(256, 768): 4, (256, 256): 4, (256, 1024): 4, (1024, 256): 4,
            (256, 4096): 1},
    "llama": {(256, 256): 8, (256, 128): 8, (256, 768): 8, (768, 256): 4,
              (256, 4096): 1},
}


def write_tokens(path, batches):
    """Random tokens: the amount of work does not depend on them."""
    random = numpy.random.default_rng(0)
    count = batches * TOKENS + 1
    random.integers(0, VOCABULARY, count).astype("<u2").tofile(path)


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
