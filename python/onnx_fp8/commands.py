# SPDX-License-Identifier: Apache-2.0
"""The commands of `onnx-fp8`, as functions: keywords are its flags, with underscores."""
import json
import os
import tempfile

import numpy as np

from . import _core
from ._errors import OptionError
from ._options import ModelFile, flags, naming_missing_files
from ._progress import Progress


def _run(name, model, options, *more):
    file = ModelFile(model)
    with naming_missing_files(file.path, options.get("data"), options.get("init"), options.get("scales")):
        return _core.run_command(name, [file.path, *flags(options), *more])


def inspect(model, **options) -> dict:
    """What training would do with a model: parameters, matrix products, memory."""
    return json.loads(_run("inspect", model, options, "--json"))


def evaluate(model, **options) -> dict:
    """Loss, and accuracy or perplexity, of a model or of the folder of a run over the files `data`."""
    return json.loads(_run("eval", model, options, "--json"))


def rewrite(model, out, **options) -> str:
    """Writes the model with its linear layers in FP8; with `loss` its whole training step. Returns the report."""
    return _run("rewrite", model, {"out": out, **options})


def export(run, out, **options) -> None:
    """Writes the weights of a run: .onnx, .safetensors, or a list of both."""
    _run("export", run, {"out": out, **options})


def calibrate(model, out, **options) -> dict:
    """Writes scales for static scaling, from the largest values of some batches of `data`."""
    return json.loads(_run("calibrate", model, options, "--json", "-o", os.path.abspath(os.fspath(out))))


def recipes() -> list[dict]:
    """The recipes known by name: `name`, `summary`, `label`, and `recipe` with all settings."""
    return json.loads(_core.run_command("recipes", ["--json"]))


def _files(data, folder, name):
    """A dict of arrays becomes a file in `folder`."""
    if not hasattr(data, "items"):
        return data
    path = os.path.join(folder, name)
    np.savez(path, **{key: np.asarray(array) for key, array in data.items()})
    return path


def train(model=None, *, data=None, val_data=None, out=None, on_step=None, on_validation=None, on_checkpoint=None,
          progress: bool = True, **options) -> dict:
    """A whole run, as `onnx-fp8 train`: shuffled batches, a schedule, validation, checkpoints and metrics in `out`.

    `data`, `val_data`: files, or a dict of arrays. `on_step`, `on_validation` and `on_checkpoint` are called with a
    dict; their exceptions end the run after it is saved. So does Ctrl-C; `resume=True` with the same `out` goes on.
    Returns the summary of `--json`.
    """
    line = Progress()

    def watch(kind, event):
        if progress and kind in ("step", "validation"):
            getattr(line, kind)(event)
        if kind == "warning":
            line.note("onnx_fp8: warning: " + event["text"])
        call = {"step": on_step, "validation": on_validation, "checkpoint": on_checkpoint}.get(kind)
        if call:
            call(event)

    if options.get("mesh") and any(hasattr(d, "items") for d in (data, val_data)):
        raise OptionError("`data`: expected files, which all ranks of `mesh` read, got arrays")
    with tempfile.TemporaryDirectory(prefix="onnx_fp8.") as folder:
        given = {"data": _files(data, folder, "data.npz"), "val_data": _files(val_data, folder, "val_data.npz"),
                 "out": out, **options, "json": True}
        file = ModelFile(model) if model is not None else None
        path = [file.path] if file else []
        try:
            with naming_missing_files(*path, given["data"], given["val_data"], options.get("init")):
                text = _core.train(path + flags(given), watch)
        except KeyboardInterrupt:
            line.note(f"onnx_fp8: interrupted; onnx_fp8.train(out={str(out)!r}, resume=True) goes on")
            raise
        finally:
            line.close()
    return json.loads(text) if text else {}
