# SPDX-License-Identifier: Apache-2.0
"""Exported models with a batch: our fixtures, and the corpus where it exists."""
import json
import os

import onnx
from program import leave_out, run
from safetensors.numpy import load_file, save_file
from sessions import ROOT

CORPUS = ROOT.parent / "shared/corpus"
if "ONNX_FP8_CORPUS" in os.environ:
    CORPUS = type(ROOT)(os.environ["ONNX_FP8_CORPUS"])


def corpus(names):
    """These models of the corpus; ONNX_FP8_ORT_MODELS=all: every one, of both exporters, but the one with Dropout,
    whose masks each runtime draws for itself."""
    if not CORPUS.is_dir():
        leave_out(f"the corpus at {CORPUS}: its models are not run in onnxruntime")
        return []
    if os.environ.get("ONNX_FP8_ORT_MODELS") == "all":
        every = [*CORPUS.glob("*/d18.onnx"), *CORPUS.glob("*/l17.onnx")]
        return sorted(model for model in every if model.parent.name != "mlp_dropout")
    return [CORPUS / name / "d18.onnx" for name in names]


def fixtures():
    return sorted((ROOT / "tests/fixtures").glob("*/d18.onnx"))


def name_of(value):
    if not isinstance(value, type(ROOT)):
        return str(value)
    return value.parent.name if value.stem == "d18" else f"{value.parent.name}_{value.stem}"


class Case:
    def __init__(self, model, tmp):
        self.model, self.tmp = model, tmp
        self.reference = json.loads((model.parent / "reference.json").read_text())
        arrays = load_file(model.parent / "reference.safetensors")
        self.feeds = {name.split(".", 1)[1]: array for name, array in arrays.items()
                      if name.startswith(("input.", "label."))}
        self.data = tmp / "data.safetensors"
        save_file(self.feeds, self.data)

    def inputs(self):
        """The feeds that the model itself takes, in its dtypes."""
        kinds = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
                 for i in onnx.load(self.model, load_external_data=False).graph.input}
        return {name: array.astype(kinds[name], copy=False) for name, array in self.feeds.items() if name in kinds}

    def loss(self):
        r = self.reference
        if r["loss_in_graph"]:
            return ["--loss", f"output:{r['outputs'][0]}"]
        kinds = {"bce": "bce_with_logits", "vae": "bce_with_logits", "mse": "mse"}
        return ["--loss", kinds.get(r["loss_kind"], "cross_entropy"), "--label", r["labels"][0]]

    def flags(self, recipe):
        return [*self.loss(), "--optimizer", "adamw", "--lr", "1e-3", "--recipe", recipe]

    def batch(self):
        labels = self.reference["labels"]
        return len(self.feeds[labels[0]] if labels else next(iter(self.feeds.values())))

    def shapes(self):
        sizes = {}
        for value in onnx.load(self.model, load_external_data=False).graph.input:
            for i, axis in enumerate(value.type.tensor_type.shape.dim):
                if axis.dim_param:
                    sizes[axis.dim_param] = self.feeds[value.name].shape[i]
        return ",".join(f"{axis}={size}" for axis, size in sizes.items())

    def step_file(self, recipe):
        path = self.tmp / "step.onnx"
        run("rewrite", self.model, "-o", path, *self.flags(recipe), "--shape", self.shapes())
        return path

    def trained_losses(self, recipe, steps):
        out = self.tmp / "run"
        run("train", self.model, "--data", self.data, *self.flags(recipe), "--batch-size", self.batch(),
            "--no-shuffle", "--steps", steps, "--out", out)
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if "loss" in line]
