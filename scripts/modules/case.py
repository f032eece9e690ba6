# SPDX-License-Identifier: Apache-2.0
"""A module to train beside PyTorch: how it is made, what it is fed, and which loss it has."""
import dataclasses
from collections.abc import Callable

import torch
from torch.nn import functional as F

CASES = {}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    package: str
    make: Callable  # the module, with small random weights
    feed: Callable  # a dict of its inputs by its arguments' names, or a tuple
    loss: str  # a loss of ours over `output`, or `output` itself
    output: str
    labels: Callable | None  # of its inputs and its output's shape
    ci: bool
    lr: float


def case(name, package, feed, loss="output", output=None, labels=None, ci=False, lr=1e-3):
    """Registers the function that makes a module."""
    def register(make):
        CASES[name] = Case(name, package, make, feed, loss, output or ("loss" if loss == "output" else "logits"), labels,
                           ci, lr)
        return make
    return register


# ---- inputs -----------------------------------------------------------------

VOCABULARY = 64


def ids(batch=4, length=8, name="input_ids", **more):
    return lambda: {name: torch.randint(3, VOCABULARY, (batch, length))} | {key: make() for key, make in more.items()}


def with_labels(feed, name="labels"):
    """Labels beside the inputs: the loss is in the graph."""
    return lambda: feed() | {name: torch.randint(3, VOCABULARY, (4, 8))}


def image(size=32, channels=3, batch=4, name="pixel_values"):
    return lambda: {name: torch.randn(batch, channels, size, size)}


def images(size=32, channels=3, batch=4):
    return lambda: (torch.randn(batch, channels, size, size),)


def rows(*widths, batch=8):
    return lambda: tuple(torch.randn(batch, width) for width in widths)


# ---- labels -----------------------------------------------------------------

def classes(shape):
    return torch.randint(0, shape[-1], shape[:-1])


def numbers(shape):
    return torch.randn(shape)


def value_of(case, outputs, labels):
    """The loss as PyTorch computes it."""
    output = outputs[case.output]
    if case.loss == "output":
        return output
    if case.loss == "cross_entropy":
        return F.cross_entropy(output.flatten(0, -2), labels.flatten())
    if case.loss == "mse":
        return F.mse_loss(output, labels)
    return F.binary_cross_entropy_with_logits(output, labels)
