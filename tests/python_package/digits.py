# SPDX-License-Identifier: Apache-2.0
"""The model and the data that most tests use."""
import pathlib

import numpy as np

import onnx_fp8

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "samples/digits_mlp"
MODEL = FOLDER / "digits_mlp.onnx"
TRAIN, VAL = FOLDER / "train.npz", FOLDER / "val.npz"
OPTIONS = {"loss": "cross_entropy", "recipe": "delayed", "optimizer": "adamw", "lr": 1e-3}


def arrays():
    return dict(np.load(TRAIN))


def batch(index=0, size=32):
    rows = slice(index * size, (index + 1) * size)
    return {name: array[rows] for name, array in arrays().items()}


def session(model=MODEL, **options):
    return onnx_fp8.TrainingSession(model, **(OPTIONS | options))


def losses(session, steps, first=0):
    return [session.step(batch(first + i)).loss for i in range(steps)]
