# SPDX-License-Identifier: Apache-2.0
"""The commands of `onnx-fp8`, as functions: keywords are its flags, with underscores."""
import json
import os

from . import _core
from ._arrays import to_core
from ._batches import Batches, are_files
from ._columns import Columns
from ._errors import OptionError
from ._metrics import Measures
from ._notebook import NotebookProgress, Result, in_notebook
from ._notes import note
from ._loss import function_of
from ._options import ModelFile, documented, naming_missing_files
from ._progress import Progress
from ._ranks import watch_ranks
from ._tables import Dataset, Files, Rows, are_tables, is_dataset


_FILES = ("data", "weights", "init", "lora", "scales", "ort_training", "checkpoint", "like")


def _run(name, model, options, command=None):
    """Runs the command by its name, or by `command`, a function of its options."""
    data = options.get("data")
    if not are_files(data) or are_tables(data):
        got = "a table" if are_files(data) else "arrays" if hasattr(data, "items") else type(data).__name__
        raise OptionError(f"`data`: expected files, got {got}: arrays, tables and batches are for onnx_fp8.train and "
                          "onnx_fp8.evaluate")
    file = ModelFile(model)
    options = {**file.options, **options}
    with naming_missing_files(*(options.get(key) for key in ("MODEL", "RUN", *_FILES))):
        return command(options) if command else _core.run_command(name, options, note)


@documented("inspect")
def inspect(model, **options) -> dict:
    """What training would do with a model: parameters, matrix products, memory."""
    return Result(json.loads(_run("inspect", model, {**options, "json": True})))


@documented("eval")
def evaluate(model, *, data=None, compute_metrics=None, **options) -> dict:
    """Loss, and accuracy or perplexity, of a model or of the folder of a run over all samples of `data`.

    `data`: as `val_data` of onnx_fp8.train, with the options of tables and batches.
    With `stats` the result has `casts`, the statistics of the casts to FP8: dicts that have the keys of statistics.jsonl
    (docs/formats.md).
    `compute_metrics(outputs, labels)`: returns a dict of numbers about all outputs and labels, which the result has, too.
    """
    watch = None if compute_metrics is None else Measures(compute_metrics).watch
    source = _sources({"data": data}, options, once="data").get("data")
    if isinstance(source, Batches):
        _refuse_beside_batches("data", options)
    if source is None and hasattr(data, "items"):
        source = to_core(data, "data")
    if source is None:
        options["data"] = data
    given = {**options, "json": True}
    return Result(json.loads(_run("eval", model, given, lambda options: _core.evaluate(options, watch, note, source))))


@documented("rewrite")
def rewrite(model=None, out=None, *, ort_training=None, **options) -> dict:
    """Writes the model with its linear layers in FP8; with `loss` its whole training step. Returns `out`, and unless
    it is a step its products, `gemms`, with the decision about each.

    `ort_training`: in place of a model, a folder of onnxruntime.training.artifacts; `out` is then the new folder.
    """
    given = {"out": out, "ort_training": ort_training, **options, "json": True}
    return Result(json.loads(_run("rewrite", model, given)))


@documented("export")
def export(run, out=None, **options) -> None:
    """Writes the weights of a run, or of artifacts: .onnx, .safetensors, or a list of both; of a run with
    `checkpoint` also .ckpt, which onnxruntime-training loads. `adapter`: a folder for the adapters of `lora`, in
    PEFT's format. With `format`, `out` is a file or folder for programs that serve the model."""
    _run("export", None, {"RUN": run, "out": out, **options})


@documented("calibrate")
def calibrate(model, out, **options) -> dict:
    """Writes scales for static scaling, from the largest values of some batches of `data`. `casts`: as onnx_fp8.evaluate's."""
    return Result(json.loads(_run("calibrate", model, {"out": os.path.abspath(os.fspath(out)), **options, "json": True})))


@documented("sensitivity")
def sensitivity(model, out=None, **options) -> dict:
    """Which layers stand which FP8 recipe: the noise of each product and the change of the loss, measured on some batches
    of `data`. `out` is a file of recipes for layers, which `recipe` takes. The result: the keys of `layers` are in
    docs/formats.md."""
    out = None if out is None else os.path.abspath(os.fspath(out))
    return Result(json.loads(_run("sensitivity", model, {"out": out, **options, "json": True})))


@documented("report")
def report(runs, out, **options) -> None:
    """Writes one HTML page about the folders of runs, which a browser opens offline (docs/report.md)."""
    folders = [os.fspath(run) for run in (runs if isinstance(runs, (list, tuple)) else [runs])]
    _core.run_command("report", {"RUN": folders, "out": os.path.abspath(os.fspath(out)), **options}, note)


@documented("compare")
def compare(a, b, **options) -> dict:
    """Where two dumps of `train` (`dump`, `at_steps`) part: `first`, and all `tensors` in the order of the step
    (docs/formats.md). `a`, `b`: folders of runs, folders of dumps, or files."""
    paths = [os.fspath(path) for path in (a, b)]
    return json.loads(_core.run_command("compare", {"DUMP": paths, **options, "json": True}, note))


def recipes() -> list[dict]:
    """The recipes known by name: `name`, `summary`, `label`, and `recipe` with all settings."""
    return json.loads(_core.run_command("recipes", {"json": True}, note))


_OF_BATCHES = {"columns": None, "pad_to": None, "pad_id": 0, "shift_labels": False, "prefetch": 2}


def _sources(data, options, once="val_data"):
    """By name: what gives the samples or the batches of a run that are neither files of the program nor arrays. Takes
    the options of such data out of `options`. `once`: the data that are read once and kept."""
    given = {key: options.pop(key, preset) for key, preset in _OF_BATCHES.items()}
    ahead = given.pop("prefetch")
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
        raise OptionError(f"`prefetch`: expected a number of batches of at least 0, got {ahead!r}")
    sources = {}
    for name, value in data.items():
        if value is None or (hasattr(value, "items") and not is_dataset(value)) or (are_files(value) and not are_tables(value)):
            continue
        columns = Columns(name, segments=options.get("segment_ids"), **given)
        if are_files(value):
            paths = value if isinstance(value, (list, tuple)) else [value]
            sources[name] = Rows(Files([os.fspath(path) for path in paths]), columns)
        elif is_dataset(value):
            sources[name] = Rows(Dataset(name, value), columns)
        else:
            sources[name] = Batches(name, value, name == once, columns, ahead)
    used = [key for key, value in given.items() if value != _OF_BATCHES[key]]
    if used and not sources:
        raise OptionError(f"`{used[0]}` is for tables, datasets and batches, not for arrays and other files")
    return sources


def _refuse_beside_batches(data, options):
    for name in ("batch_size", "data_weights", "no_shuffle", "shuffle_block", "seq_len", "token_dtype", "eod"):
        if options.get(name) not in (None, False):
            raise OptionError(f"`{name}` is for files and arrays: the batches of `{data}` have their own size and order")


@documented("train")
def train(model=None, *, ort_training=None, data=None, val_data=None, out=None, on_step=None, on_validation=None,
          on_checkpoint=None, on_stats=None, compute_metrics=None, progress: bool | str = "auto", **options) -> dict:
    """A whole run, as `onnx-fp8 train`: shuffled batches, a schedule, validation, checkpoints and metrics in `out`.

    `ort_training`: in place of a model, a folder of onnxruntime.training.artifacts.
    `loss`: a name, a file, or a function of PyTorch's tensors, as for TrainingSession; the run keeps what it exports.
    `data`, `val_data`: files; or a dict of arrays, which are not copied (with `mesh` all ranks give the same ones); or
    an iterable of batches, as a DataLoader: each is a dict, or a tuple in the order of the model's inputs with the label
    last. Batches have their own size and order; `data` is iterated again at its end, `val_data` is read once. A generator
    function is called for each pass, another function with the index of each batch. Files may be .parquet, .arrow and
    .feather (package pyarrow); a datasets.Dataset has rows as they do. For these and for batches there are more options.
    `columns`: {column: input} for other names, None leaves a column out. `pad_to`: lengths to which sequences are padded,
    each one plan; `pad_id`: the token of the padding. `shift_labels`: position i gets the label of the next token.
    `prefetch`: batches that a thread draws ahead; 0: none.
    `on_step`, `on_validation`, `on_checkpoint` and `on_stats` are called with a dict; their exceptions end the run after
    it is saved. So does Ctrl-C; `resume=True` with the same `out` goes on. `on_stats` follows a step that `stats`
    measures, with `step` and `casts`, a list of dicts that have the keys of statistics.jsonl (docs/formats.md).
    `compute_metrics(outputs, labels)` returns a dict of numbers about all outputs of a validation, which the events of
    `on_validation` have, too. `save_best="loss"` or `"accuracy"` keeps the checkpoint with the best validation. Returns
    the summary of `--json`; its `trains` says what was trained, which `progress` prints when the run begins.
    `progress`: "auto" (or True) shows a bar and the curve of the loss in a notebook, elsewhere lines on sys.stderr; "line"
    shows lines everywhere, False nothing.
    """
    if progress not in (True, False, "auto", "line"):
        raise OptionError(f"`progress`: expected auto, line, True or False, got {progress!r}")
    line = NotebookProgress() if progress != "line" and in_notebook() else Progress()
    measures = Measures(compute_metrics)

    def watch(kind, event):
        if kind in ("outputs", "measures"):
            return measures.watch(kind, event)
        if progress and kind in ("begun", "step", "validation"):
            getattr(line, kind)(event)
        call = {"step": on_step, "validation": on_validation, "checkpoint": on_checkpoint}.get(kind)
        if call:
            call(event)
        if on_stats and kind == "step" and "casts" in event:
            on_stats({"step": event["step"], "casts": event["casts"]})

    def tell(text):
        line.close()
        note(text)

    data = {"data": data, "val_data": val_data}
    sources = _sources(data, options)
    function = None
    if callable(options.get("loss")):
        function = function_of(options["loss"], model, data["data"], options, sources.get("data"))
        options["loss"] = function.path
    arrays = {name: to_core(value, name) for name, value in data.items() if name not in sources and hasattr(value, "items")}
    files = {name: value for name, value in data.items() if name not in sources and are_files(value)}
    batches = {name: source for name, source in sources.items() if isinstance(source, Batches)}
    if "data" in sources and "data" not in batches and options.get("data_weights") is not None:
        raise OptionError("`data_weights` is for several files: tables and datasets are one source")
    if "data" in batches:
        _refuse_beside_batches("data", options)
    if "val_data" in batches and options.get("val_batch_size") is not None:
        raise OptionError("`val_batch_size` is for files and arrays: the batches of `val_data` have their own size")
    file = ModelFile(model)
    given = file.options | files | {"out": out, "ort_training": ort_training, **options, "json": True}
    if options.get("mesh"):
        watch_ranks()
    try:
        with naming_missing_files(*(given.get(key) for key in ("MODEL", "val_data", *_FILES))):
            text = _core.train(given, watch, tell, compute_metrics is not None, **arrays, **sources)
    except KeyboardInterrupt:
        line.print(f"onnx_fp8: interrupted; onnx_fp8.train(out={str(out)!r}, resume=True) goes on")
        raise
    finally:
        for source in sources.values():
            source.close()
        line.close()
    return Result(json.loads(text) if text else {})
