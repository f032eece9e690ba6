# SPDX-License-Identifier: Apache-2.0
"""Trains one module in PyTorch and, exported, in onnx_fp8 on the same batches."""
import contextlib
import copy
import math
import pathlib
import tempfile
import warnings
import zlib

import numpy as np
import safetensors.torch
import torch

import onnx_fp8
import onnx_fp8.torch
from modules.case import value_of

STEPS = 10
LOSS_BOUND = 1e-4  # relative, at each step
BACK_BOUND = 1e-3  # of the largest number of an output
FP8_BOUND = 0.1  # relative, or absolute below 1: FP8 is an approximation
DECAY = 0.01
THREADS = 1  # more do not help modules of this size
# SGD trains the weights that go back. AdamW would not do: the gradient of a bias in front of a BatchNorm is rounding,
# and AdamW moves that bias as far as any other parameter. AdamW trains the session that is saved: it has moments.
OPTIMIZERS = {"sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=10 * lr),
              "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=DECAY)}


class Failed(Exception):
    pass


def outputs_of(module, feed):
    outputs = module(**feed) if isinstance(feed, dict) else module(*feed)
    if isinstance(outputs, torch.Tensor):
        return {"logits": outputs}
    return dict(outputs)


def perturb(module):
    """As after some training: no ones, no zeros, no equal tensors."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.1 * torch.randn_like(buffer)
            elif name.endswith("running_var"):
                buffer *= torch.empty_like(buffer).uniform_(0.5, 1.5)


class Trial:
    """A module in one state, its file and its batches. `file`: of the same module in another state; the state is then put
    into it as a checkpoint."""

    def __init__(self, case, state, folder, file=None):
        self.case = case
        torch.manual_seed(zlib.crc32(case.name.encode()))
        self.module = case.make()
        if state == "perturbed":
            perturb(self.module)
        feeds = [case.feed() for _ in range(STEPS + 1)]
        with torch.no_grad():
            shape = outputs_of(copy.deepcopy(self.module), feeds[0])[case.output].shape
        self.batches = [(feed, case.labels(shape) if case.labels else None) for feed in feeds]
        self.path = file or pathlib.Path(folder, "model.onnx")
        self.notes, self.weights = [], {}
        if file:
            self.weights = {"weights": pathlib.Path(folder, "state.safetensors")}
            tensors = {key: tensor.clone().contiguous() for key, tensor in self.module.state_dict().items()}
            safetensors.torch.save_file(tensors, self.weights["weights"])
        else:
            self.export(feeds[0])
        self.record = onnx_fp8.torch.record(self.path)

    def export(self, example):
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", onnx_fp8.Note)
            onnx_fp8.torch.export(self.module, example, self.path)
        self.notes = [str(note.message) for note in notes]

    # ---- PyTorch

    def reference(self, optimizer):
        """The losses, and the trained module."""
        module = copy.deepcopy(self.module)
        parameters = [p for p in module.parameters() if p.requires_grad]
        step, losses = OPTIMIZERS[optimizer](parameters, self.case.lr), []
        for feed, labels in self.batches[:STEPS]:
            loss = value_of(self.case, outputs_of(module, feed), labels)
            step.zero_grad()
            loss.backward()
            losses.append(loss.item())
            step.step()
        self.used = {key for key, p in module.named_parameters(remove_duplicate=False) if p.grad is not None}
        return losses, module

    # ---- onnx_fp8

    def session(self, optimizer, **options):
        case = self.case
        loss = {"loss": f"output:{case.output}"} if case.loss == "output" else {"loss": case.loss, "logits": case.output}
        rate = {"adamw": {"lr": case.lr, "weight_decay": DECAY}, "sgd": {"lr": 10 * case.lr}}[optimizer]
        return onnx_fp8.TrainingSession(self.path, optimizer=optimizer, threads=THREADS, **loss, **rate,
                                        **self.weights, **options)

    def batch(self, session, number):
        feed, labels = self.batches[number]
        tensors = [x for x in (feed.values() if isinstance(feed, dict) else feed) if isinstance(x, torch.Tensor)]
        names = [i.name for i in session.inputs if not i.is_label or labels is None]
        return dict(zip(names, tensors, strict=True)) | ({} if labels is None else {"labels": labels})

    def losses(self, session):
        return [session.step(self.batch(session, number)).loss for number in range(STEPS)]

    # ---- what must hold

    def check_parameters(self, session):
        """What trains is what PyTorch trains. Returns the count."""
        key_of = {name: entry.get("key") for name, entry in self.record["tensors"].items()}
        ties = {key: set(group) for group in self.record["tied"] for key in group}
        ours = {key for p in session.parameters if p.trained
                for key in ties.get(key_of.get(p.name, p.name), {key_of.get(p.name, p.name)})}
        wrong, missing = sorted(map(str, ours - self.used)), sorted(self.used - ours)
        if wrong or missing:
            raise Failed(f"trains {wrong[:3] or 'no others'} which PyTorch does not; does not train {missing[:3]}"
                         f" ({len(wrong)} and {len(missing)})")
        return len(ours)

    def compare(self, optimizer):
        """Both train. Returns the worst relative difference, the session and the reference."""
        expected, module = self.reference(optimizer)
        session = self.session(optimizer)
        self.check_parameters(session)
        got = self.losses(session)
        worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(got, expected))
        if not worst <= LOSS_BOUND:
            at = next(i for i, (a, b) in enumerate(zip(got, expected)) if not abs(a - b) <= LOSS_BOUND * max(abs(b), 1e-3))
            raise Failed(f"{optimizer}: at step {at + 1} the loss is {got[at]:.7g}, PyTorch's {expected[at]:.7g}")
        return worst, session, module

    def check_fp8(self):
        expected, _ = self.reference("adamw")
        got = self.losses(self.session("adamw", recipe="tensorwise", dtype="bfloat16"))
        worst = max(abs(a - b) / max(abs(b), 1) for a, b in zip(got, expected))
        if not (worst <= FP8_BOUND and all(map(math.isfinite, got))):
            raise Failed(f"tensorwise, bfloat16: losses {got[0]:.4g} … {got[-1]:.4g}, PyTorch's {expected[0]:.4g} … "
                         f"{expected[-1]:.4g}")
        return worst

    def check_resume(self, session, folder):
        session.save(folder)
        other = self.session("adamw")
        other.resume(folder)
        batch = self.batch(session, STEPS)
        if session.step(batch).loss != other.step(batch).loss:
            raise Failed("resume: another loss")
        ours, theirs = session.weights(), other.weights()
        different = [name for name in ours if not np.array_equal(ours[name], theirs[name], equal_nan=True)]
        if different:
            raise Failed(f"resume: other weights in {different[0]}")

    def check_back(self, weights, trained):
        """The file of weights in a fresh module: it computes what PyTorch's trained one does."""
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.normal_()
        onnx_fp8.torch.load_weights(module, weights)
        feed = self.batches[0][0]
        with torch.no_grad():
            got, expected = outputs_of(module.eval(), feed), outputs_of(trained.eval(), feed)
        output = expected[self.case.output]
        worst = ((got[self.case.output] - output).abs().max() / output.abs().max().clamp(min=1e-3)).item()
        if not worst <= BACK_BOUND:
            raise Failed(f"weights back: outputs differ by {worst:.2g} of the largest")
        return worst


def try_case(case, row, once):
    """Fills the row as far as it gets. `once`: the module is exported when it is fresh, and not again."""
    with contextlib.ExitStack() as folders:
        file = None
        for state in ("fresh", "perturbed"):
            folder = folders.enter_context(tempfile.TemporaryDirectory())
            trial = Trial(case, state, folder, file)
            file = trial.path if once else None
            row["exporter"] = trial.record["exporter"]
            row["notes"] = sorted({*row.get("notes", []), *trial.notes})
            weights = folder + "/weights.safetensors"
            for optimizer in OPTIMIZERS:
                worst, session, module = trial.compare(optimizer)
                row[f"{state}, {optimizer}"] = f"{worst:.0e}"
                if optimizer == "sgd":
                    session.export(weights)
                    trained = module
            if state == "perturbed":
                row["trained"] = str(trial.check_parameters(session))
                row["fp8"] = f"{trial.check_fp8():.0e}"
                trial.check_resume(session, folder + "/checkpoint")
                # Such a note is a false alarm here: each loss is PyTorch's.
                alarms = [note for note in row["notes"] if "differs from the module's" in note]
                if alarms:
                    raise Failed(f"the export says what is not so: {alarms[0]}")
                row["back"] = f"{trial.check_back(weights, trained):.0e}"
