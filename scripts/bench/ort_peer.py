# SPDX-License-Identifier: Apache-2.0
"""Trains in onnxruntime-training.
Usage: python -m bench.ort_peer MODEL.onnx TOKENS FOLDER"""
import os
import pathlib
import sys
import types

import onnx
import onnxruntime

from bench import task, turns


def import_training():
    """onnxruntime.training's own __init__ imports PyTorch for a part that is not
    needed here; that would count as memory."""
    package = types.ModuleType("onnxruntime.training")
    package.__path__ = [
        str(pathlib.Path(onnxruntime.__file__).parent / "training")]
    sys.modules[package.__name__] = package
    from onnxruntime.training import api, artifacts, onnxblock
    return api, artifacts, onnxblock


def generate(model, folder, artifacts, onnxblock):
    proto = onnx.load(model)
    weights = [w.name for w in proto.graph.initializer
               if w.data_type == onnx.TensorProto.FLOAT
               and w.name.startswith("model.")]
    frozen = [w.name for w in proto.graph.initializer
              if w.name not in weights]
    artifacts.generate_artifacts(
        proto, requires_grad=weights, frozen_params=frozen,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=onnxblock.optim.AdamW(betas=task.BETAS, eps=task.EPS,
                                        weight_decay=task.WEIGHT_DECAY),
        artifact_directory=folder)
    return len(weights)


def prepare():
    model, tokens, folder = sys.argv[1:4]
    api, artifacts, onnxblock = import_training()
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    trained = generate(model, folder, artifacts, onnxblock)
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    module = api.Module(str(folder / "training_model.onnx"), state,
                        str(folder / "eval_model.onnx"))
    optimizer = api.Optimizer(str(folder / "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(task.LR)
    batches = task.Batches(tokens)
    module.train()

    def step():
        input_ids, labels = batches.next()
        loss = module(input_ids, labels.reshape(-1))
        optimizer.step()
        module.lazy_reset_grad()
        return loss

    # Its number of threads can neither be set nor read.
    return step, {"fp8_gemms": 0, "trained_tensors": trained,
                  "threads": len(os.listdir("/proc/self/task"))}


if __name__ == "__main__":
    turns.serve(prepare)
