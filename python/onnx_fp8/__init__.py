# SPDX-License-Identifier: Apache-2.0
"""Trains exported ONNX models in FP8:

    session = onnx_fp8.TrainingSession("model.onnx", loss="cross_entropy", recipe="tensorwise", lr=1e-3)
    for batch in batches:
        print(session.step(batch).loss)
    session.export("trained.onnx")

`onnx_fp8.train` has the loop of the command line, `onnx_fp8.torch` exports PyTorch's modules and takes the trained
weights back, `onnx_fp8.ort` is the provider for ONNX Runtime.
"""
from ._core import __version__
from ._errors import Error, MissingFileError, OptionError
from ._notes import Note
from ._pack import pack
from .commands import calibrate, compare, evaluate, export, inspect, recipes, report, rewrite, sensitivity, train
from .session import (EvalResult, GradientResult, InputInfo, ParameterInfo, StepResult, TrainingSession)

__all__ = ["Error", "EvalResult", "GradientResult", "InputInfo", "MissingFileError", "Note", "OptionError",
           "ParameterInfo", "StepResult", "TrainingSession", "__version__", "calibrate", "compare", "evaluate", "export",
           "inspect", "pack", "recipes", "report", "rewrite", "sensitivity", "train"]
