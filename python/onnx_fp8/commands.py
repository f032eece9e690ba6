# SPDX-License-Identifier: Apache-2.0
"""The commands of `onnx-fp8`, as functions: keywords are its flags, with underscores."""
import json
import os

from . import _core
from ._arrays import to_core
from ._errors import OptionError
from ._notes import note
from ._options import ModelFile, flags, naming_missing_files
from ._progress import Progress
from ._ranks import watch_ranks


def _run(name, model, options, *more):
    if hasattr(options.get("data"), "items"):
        raise OptionError("`data`: expected files, got arrays: these are for onnx_fp8.train and TrainingSession.eval")
    file = ModelFile(model)
    read = [options.get(key) for key in ("data", "init", "scales", "ort_training", "checkpoint")]
    with naming_missing_files(*file.words, *read):
        return _core.run_command(name, [*file.words, *flags(options), *more], note)


def inspect(model, **options) -> dict:
    """What training would do with a model: parameters, matrix products, memory."""
    return json.loads(_run("inspect", model, options, "--json"))


def evaluate(model, **options) -> dict:
    """Loss, and accuracy or perplexity, of a model or of the folder of a run over the files `data`."""
    return json.loads(_run("eval", model, options, "--json"))


def rewrite(model=None, out=None, *, ort_training=None, **options) -> dict:
    """Writes the model with its linear layers in FP8; with `loss` its whole training step. Returns `out`, and unless
    it is a step its products, `gemms`, with the decision about each.

    `ort_training`: in place of a model, a folder of onnxruntime.training.artifacts; `out` is then the new folder.
    """
    return json.loads(_run("rewrite", model, {"out": out, "ort_training": ort_training, **options}, "--json"))


def export(run, out, **options) -> None:
    """Writes the weights of a run, or of artifacts: .onnx, .safetensors, or a list of both; of a run with
    `checkpoint` also .ckpt, which onnxruntime-training loads."""
    _run("export", run, {"out": out, **options})


def calibrate(model, out, **options) -> dict:
    """Writes scales for static scaling, from the largest values of some batches of `data`."""
    return json.loads(_run("calibrate", model, options, "--json", "-o", os.path.abspath(os.fspath(out))))


def recipes() -> list[dict]:
    """The recipes known by name: `name`, `summary`, `label`, and `recipe` with all settings."""
    return json.loads(_core.run_command("recipes", ["--json"], note))


def train(model=None, *, ort_training=None, data=None, val_data=None, out=None, on_step=None, on_validation=None,
          on_checkpoint=None, progress: bool = True, **options) -> dict:
    """A whole run, as `onnx-fp8 train`: shuffled batches, a schedule, validation, checkpoints and metrics in `out`.

    `ort_training`: in place of a model, a folder of onnxruntime.training.artifacts.
    `data`, `val_data`: files, or a dict of arrays, which are not copied. With `mesh` all ranks give the same arrays.
    `on_step`, `on_validation` and `on_checkpoint` are called with a dict; their exceptions end the run after it is
    saved. So does Ctrl-C; `resume=True` with the same `out` goes on. Returns the summary of `--json`;
    its `trains` says what was trained, which `progress` prints when the run begins.
    """
    line = Progress()

    def watch(kind, event):
        if progress and kind in ("begun", "step", "validation"):
            getattr(line, kind)(event)
        call = {"step": on_step, "validation": on_validation, "checkpoint": on_checkpoint}.get(kind)
        if call:
            call(event)

    def tell(text):
        line.close()
        note(text)

    data = {"data": data, "val_data": val_data}
    arrays = {name: to_core(value) for name, value in data.items() if hasattr(value, "items")}
    files = {name: value for name, value in data.items() if name not in arrays}
    given = files | {"out": out, "ort_training": ort_training, **options, "json": True}
    file = ModelFile(model)
    if options.get("mesh"):
        watch_ranks()
    try:
        with naming_missing_files(*file.words, *files.values(), ort_training, options.get("init"),
                                  options.get("checkpoint")):
            text = _core.train(file.words + flags(given), watch, tell, **arrays)
    except KeyboardInterrupt:
        line.print(f"onnx_fp8: interrupted; onnx_fp8.train(out={str(out)!r}, resume=True) goes on")
        raise
    finally:
        line.close()
    return json.loads(text) if text else {}
