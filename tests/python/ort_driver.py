# SPDX-License-Identifier: Apache-2.0
"""Runs in onnxruntime-training's own environment, which has no pytest.

usage: ort_driver.py < JSON     prints JSON: for {"folder", "feeds", "steps"} the losses of training on one batch; with
"save" also writes a checkpoint after the last step; with "load" starts from that checkpoint; with "eval" also the loss in
evaluation, before the steps; with "library" uses its custom ops
"""
import json
import pathlib
import sys

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
sys.path.insert(0, str(FIXTURES / "ort_training"))
import generate  # noqa: E402  it imports the parts of onnxruntime.training
import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402


def main():
    job = json.load(sys.stdin)
    folder = pathlib.Path(job["folder"])
    inputs = list(np.load(job["feeds"]).values())
    inputs[-1] = inputs[-1].reshape(-1)
    api = generate.api
    state = api.CheckpointState.load_checkpoint(job.get("load", str(folder / "checkpoint")))
    settings = onnxruntime.SessionOptions()
    if "library" in job:
        settings.register_custom_ops_library(job["library"])
    evaluates = folder / "eval_model.onnx"
    module = api.Module(str(folder / "training_model.onnx"), state, str(evaluates) if evaluates.exists() else None,
                        session_options=settings)
    optimizer = api.Optimizer(str(folder / "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(generate.LR)
    result = {"losses": []}
    if "eval" in job:
        module.eval()
        result["eval"] = float(module(*inputs))
    module.train()
    for _ in range(job["steps"]):
        result["losses"].append(float(module(*inputs)))
        optimizer.step()
        module.lazy_reset_grad()
    if "save" in job:
        api.CheckpointState.save_checkpoint(state, job["save"], include_optimizer_state=True)
    for key in job.get("properties", []):
        result[key] = state.properties[key]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
