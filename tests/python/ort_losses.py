# SPDX-License-Identifier: Apache-2.0
"""Runs in onnxruntime-training's own environment: makes artifacts of a small model with a loss.

usage: ort_losses.py LOSS FOLDER     writes the artifacts, the model as model.onnx, and feeds.npz
"""
import pathlib
import sys

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
sys.path.insert(0, str(FIXTURES / "ort_training"))
import generate  # noqa: E402  it imports the parts of onnxruntime.training
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnxruntime.training import onnxblock  # noqa: E402

BATCH, WIDTH, CLASSES = 8, 24, 10
RNG = np.random.default_rng(3)


def base(end):
    """x → Gemm → Relu → Gemm → `end`: lines of ONNX's text form that make the outputs of `hidden` and `scores`."""
    outputs = ", ".join(f"float[N,{size}] {name}" for name, size in end["outputs"].items())
    model = onnx.parser.parse_model(f'''
        <ir_version: 7, opset_import: ["" : 14]>
        net (float[N,{WIDTH}] x) => ({outputs})
        <float[{WIDTH},40] w1, float[40] b1, float[40,{CLASSES}] w2, float[{CLASSES}] b2, float[40,{WIDTH}] w3> {{
          first = Gemm(x, w1, b1)
          hidden = Relu(first)
          {end["nodes"]}
        }}''')
    used = {name for node in model.graph.node for name in node.input}
    del model.graph.value_info[:]
    for name, shape in {"w1": (WIDTH, 40), "b1": 40, "w2": (40, CLASSES), "b2": CLASSES, "w3": (40, WIDTH)}.items():
        if name in used:
            array = (0.3 * RNG.standard_normal(shape)).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


SCORES = {"nodes": "scores = Gemm(hidden, w2, b2)", "outputs": {"scores": CLASSES}}
PROBABILITIES = {"nodes": "logits = Gemm(hidden, w2, b2)\n scores = Sigmoid(logits)", "outputs": {"scores": CLASSES}}
COPY = {"nodes": "copy = MatMul(hidden, w3)", "outputs": {"copy": WIDTH}}
HEADS = {"nodes": SCORES["nodes"] + "\n" + COPY["nodes"], "outputs": SCORES["outputs"] | COPY["outputs"]}


class Reconstruction(onnxblock.Block):
    """The target is the model's own input."""

    def __init__(self):
        super().__init__()
        self.loss = onnxblock.loss.MSELoss()

    def build(self, copy):
        return self.loss(copy, target_name="x")


class TwoLosses(onnxblock.Block):
    def __init__(self):
        super().__init__()
        self.classes = onnxblock.loss.CrossEntropyLoss()
        self.copies = onnxblock.loss.L1Loss()
        self.add = onnxblock.blocks.Add()

    def build(self, scores, copy):
        return self.add(self.classes(scores), self.copies(copy))


# The end of the model, the loss, its target.
FLOATS, LABELS = RNG.random((BATCH, CLASSES), np.float32), RNG.integers(CLASSES, size=BATCH)
LOSSES = {
    "mse": (SCORES, generate.artifacts.LossType.MSELoss, {"target": FLOATS}),
    "l1": (SCORES, generate.artifacts.LossType.L1Loss, {"target": FLOATS}),
    "bce": (SCORES, generate.artifacts.LossType.BCEWithLogitsLoss, {"target": FLOATS.round()}),
    "cross_entropy": (SCORES, generate.artifacts.LossType.CrossEntropyLoss, {"labels": LABELS}),
    "summed_cross_entropy": (SCORES, onnxblock.loss.CrossEntropyLoss(reduction="sum"), {"labels": LABELS}),
    "ignoring_cross_entropy": (SCORES, onnxblock.loss.CrossEntropyLoss(ignore_index=LABELS[0]), {"labels": LABELS}),
    "mse_of_probabilities": (PROBABILITIES, onnxblock.loss.MSELoss(reduction="sum"), {"target": FLOATS}),
    "reconstruction": (COPY, Reconstruction(), {}),
    "two_losses": (HEADS, TwoLosses(), {"labels": LABELS, "target": RNG.random((BATCH, WIDTH), np.float32)}),
}


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    end, loss, target = LOSSES[name]
    model = base(end)
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    generate.artifacts.generate_artifacts(
        model, requires_grad=[w.name for w in model.graph.initializer], loss=loss,
        optimizer=generate.artifacts.OptimType.AdamW, artifact_directory=folder)
    np.savez(folder / "feeds.npz", x=RNG.standard_normal((BATCH, WIDTH)).astype(np.float32), **target)


if __name__ == "__main__":
    main()
