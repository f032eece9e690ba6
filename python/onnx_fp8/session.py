# SPDX-License-Identifier: Apache-2.0
"""Training step by step: the caller has the loop and the data."""
import dataclasses
import os

import numpy as np

from . import _core
from ._arrays import from_core, to_core
from ._errors import Error, OptionError
from ._options import ModelFile, documented, naming_missing_files
from ._ranks import watch_ranks


@dataclasses.dataclass(frozen=True)
class StepResult:
    """One optimizer step. `loss` is that before the update, the mean over the micro-batches with labels that count; if
    there are none it is NaN, and the step is skipped with this `cause`. `update_amax` is the largest |update| of a weight
    in units of its learning rate, without decoupled weight decay, where moments are not float32; -1: not measured."""
    step: int
    loss: float
    grad_norm: float
    loss_scale: float
    update_amax: float
    skipped: bool
    cause: str
    remark: str


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """`cause` names the first tensor that is not finite; "": all are. FP8 can't hold Inf, so the loss is then NaN.
    `of_averages`: the numbers are of the averages of weights (`eval_with="ema"`)."""
    loss: float | None
    outputs: dict[str, np.ndarray]
    cause: str = ""
    of_averages: bool = False


@dataclasses.dataclass(frozen=True)
class GradientResult:
    loss: float
    outputs: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    input_gradients: dict[str, np.ndarray]
    cause: str = ""  # as EvalResult's


@dataclasses.dataclass(frozen=True)
class InputInfo:
    """An input of the model, or the label. -1 in `shape`: an open axis. The shape of a label that only the loss reads is ()."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    axis_names: tuple[str, ...]
    is_label: bool


@dataclasses.dataclass(frozen=True)
class ParameterInfo:
    """A tensor of the model. `fqn` is PyTorch's name, if the file tells it. `role`: parameter, frozen, unused (the loss
    does not depend on it), tied, statistic, constant, or another state; `reason` says why."""
    name: str
    fqn: str
    dtype: str
    shape: tuple[int, ...]
    trained: bool
    role: str
    reason: str


def _micro_batches(batches, session):
    """A list of dicts. Error: arrays without names, as in `step((x, y))`."""
    given = list(batches) if hasattr(batches, "__iter__") else None
    if given is None or not all(hasattr(b, "items") for b in given):
        names = [i.name for i in session.inputs]
        example = "{" + ", ".join(f'"{name}": …' for name in names) + "}"
        got = type(batches).__name__ if given is None else f"a {type(batches).__name__} of {len(given)}"
        raise Error(f"[batch] expected a dict of arrays by the names of inputs, {example}, or with `grad_accum` a list of "
                    f"such dicts, got {got}")
    return given


@documented("TrainingSession")
class TrainingSession:
    """Trains one model.

    `model`: a path, bytes, or a ModelProto of the package onnx. `ort_training`: in place of a model, a folder of
    onnxruntime.training.artifacts; `checkpoint`: another checkpoint than the one in that folder. A batch is a dict of arrays by the names of the
    inputs, with the label under `labels` (option `label`). Arrays are numpy's or speak DLPack, as PyTorch's tensors
    on the CPU do; row-major ones are not copied. Threads may share a session: they take turns.

    `loss`: a name, a file, or a function of PyTorch's tensors that returns one number. Its parameters have names of
    the model's outputs and of label arrays, as in `def loss(logits, target, weight): …`; it is exported when the first
    batch shows the labels.
    """

    def __init__(self, model=None, *, ort_training=None, **options):
        self._file = ModelFile(model)
        self._function = None
        self._changed = False
        if callable(options.get("loss")):
            self._function = options.pop("loss")
        self._options = {"ort_training": ort_training, **options}
        self._core = self._make()
        if options.get("mesh"):
            watch_ranks()

    def _make(self, **more):
        options = {**self._file.options, **self._options, **more}
        files = ("MODEL", "ort_training", "weights", "init", "lora", "scales", "checkpoint", "loss",
                 "class_weights")
        with naming_missing_files(*(options.get(key) for key in files)):
            return _core.Session(options)

    def _know_loss(self, batch, trains=True):
        """Exports the function that is the loss, once a batch shows its labels. Error: it `trains` without any."""
        if self._function is None or not hasattr(batch, "items"):
            return
        inputs = {row["name"]: batch[row["name"]] for row in self._core.inputs if row["name"] in batch}
        labels = {name: array for name, array in batch.items() if name not in inputs}
        if not labels:
            if trains:
                raise Error("[batch] expected the labels that the function `loss` reads, beside the inputs, got none")
            return
        from ._loss import LossFunction
        outputs = self._core.eval(to_core(inputs))[1]
        loss = LossFunction(self._function, from_core(outputs), inputs, labels)
        core = self._make(loss=loss.path)
        if self._changed:
            core.load_state(*self._core.state(False))
        loss.check(core.eval(to_core(batch))[0])
        self._core, self._function = core, None

    def step(self, batch, lr: float | None = None) -> StepResult:
        """One optimizer step. `batch`: a dict, or a list of `grad_accum` dicts, or of less at the end of an epoch. `lr`:
        for this step alone; None: the option `lr`. An array that does not fit is an error that leaves the state
        unchanged."""
        if lr is not None:
            if isinstance(lr, (bool, str, bytes)) or not hasattr(lr, "__float__"):
                raise OptionError(f"`lr`: expected a number, got {lr!r}")
            lr = float(lr)
        alone = hasattr(batch, "items")
        batches = [batch] if alone else _micro_batches(batch, self)
        if batches:
            self._know_loss(batches[0])
        return StepResult(**self._core.step([to_core(b) for b in batches], lr, alone))

    def eval(self, batch) -> EvalResult:
        """The loss and the outputs; only the forward pass. Without a label, or without the option `loss`, the loss is
        None. If no label counts, it is NaN."""
        self._know_loss(batch, trains=False)
        loss, outputs, cause, of_averages = self._core.eval(to_core(batch))
        return EvalResult(loss, from_core(outputs), cause, of_averages)

    def predict(self, batch) -> dict[str, np.ndarray]:
        """The outputs, as in `eval`; a label is not needed."""
        return self.eval(batch).outputs

    def gradients(self, batch, input_gradients: bool = False) -> GradientResult:
        """Loss, outputs and the gradient of every trained parameter, in training mode but without dropout."""
        self._know_loss(batch)
        loss, *arrays, cause = self._core.gradients(to_core(batch), input_gradients)
        return GradientResult(loss, *map(from_core, arrays), cause)

    def state(self, copy: bool = True) -> dict:
        """All that the run needs to go on: {"step": int, "notes": {…}, "tensors": {name: array}}. With `copy=False`
        the arrays may share the session's memory, which the next step changes."""
        step, notes, tensors = self._core.state(copy)
        return {"step": step, "notes": notes, "tensors": from_core(tensors)}

    def load_state(self, state: dict) -> None:
        """Goes on from `state()` of a session of the same model."""
        try:
            step, notes, tensors = state["step"], state["notes"], state["tensors"]
        except (KeyError, TypeError):
            raise Error('[state] expected a dict with "step", "notes" and "tensors"') from None
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(notes, dict):
            raise Error(f"[state] expected an int as \"step\" and a dict as \"notes\", got {step!r} and "
                        f"{type(notes).__name__}")
        self._core.load_state(step, notes, to_core(tensors))
        self._changed = True

    def weights(self, copy: bool = True) -> dict[str, np.ndarray]:
        """The model's tensors by the names of their initializers. `copy`: as for `state`."""
        return from_core(self._core.weights(copy))

    def load_weights(self, weights: dict) -> None:
        """Replaces some or all of these tensors; dtypes and shapes stay. Their averages (`ema`) begin anew from them;
        moments stay."""
        self._core.load_weights(to_core(weights))
        self._changed = True

    def save(self, folder) -> None:
        """Writes a checkpoint, as `onnx-fp8 train` does."""
        self._core.save(os.fspath(folder))

    def resume(self, folder) -> None:
        """Goes on from the newest checkpoint in `folder`: of `save`, or the folder of a run."""
        with naming_missing_files(folder):
            self._core.restore(os.fspath(folder))
        self._changed = True

    restore = resume

    def export(self, path, external_data: bool = False, *, format: str | None = None, like=None) -> list[str]:
        """Writes the model with its present weights, in evaluation mode (.onnx), or the weights and the statistics of
        BatchNorm in PyTorch's names and layout (.safetensors). Adapters are merged into the weights.

        `format`: for programs that serve the model, as in onnx_fp8.export: a new folder `path` with the FP8 codes and
        scales of the next evaluation ("hf-fp8") or with bfloat16 weights ("bf16"), or an .onnx file of the forward with
        codes and scales ("onnx-fp8"). `like`: a folder of Hugging Face whose config.json is completed in the new folder,
        and whose tokenizer is copied. Returns remarks: names that the file had lost, layers without codes.
        """
        path = os.fspath(path)
        if format is not None:
            with naming_missing_files(like):
                return self._core.export_served(path, format, "" if like is None else os.fspath(like), external_data)
        if like is not None:
            raise OptionError("`like` needs `format` hf-fp8 or bf16")
        if path.endswith(".safetensors"):
            return self._core.export_safetensors(path)
        if not path.endswith(".onnx"):
            raise OptionError(f"`path`: expected a name that ends in .onnx or .safetensors, got {path} (folders need `format`)")
        self._core.export_onnx(path, external_data)
        return []

    def export_adapter(self, folder) -> None:
        """Writes the adapters of the option `lora`, and parameters that are trained beside them, as PEFT does:
        adapter_model.safetensors and adapter_config.json. `export` merges them into the weights."""
        self._core.export_adapter(os.fspath(folder))

    @property
    def steps(self) -> int:
        """Optimizer steps done, including skipped ones."""
        return self._core.step_count

    @property
    def skipped_steps(self) -> int:
        return self._core.skipped_steps

    @property
    def inputs(self) -> list[InputInfo]:
        return [InputInfo(**row) for row in self._core.inputs]

    @property
    def parameters(self) -> list[ParameterInfo]:
        return [ParameterInfo(**row) for row in self._core.parameters]

    @property
    def scales(self) -> dict[str, float]:
        """Delayed and static scales by layer, product and operand; empty before the first step. 0: not known yet."""
        return self._core.scales

    @property
    def notes(self) -> list[str]:
        """Facts about how this model trains."""
        return self._core.notes
