# SPDX-License-Identifier: Apache-2.0
"""Runs in onnxruntime-training's own environment, which has no pytest.

usage: ort_driver.py < JSON     prints JSON: for {"folder", "feeds", "steps"} the losses of training on one batch; with
"save" also writes a checkpoint after the last step; with "load" starts from that checkpoint; with "eval" also the loss in
evaluation, before the steps; with "library" uses its custom ops; with "profile", a folder, also the kinds of nodes that
ran
"""
import json
import pathlib
import re
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
    if inputs[-1].dtype == np.int64:
        inputs[-1] = inputs[-1].reshape(-1)
    api = generate.api
    state = api.CheckpointState.load_checkpoint(job.get("load", str(folder / "checkpoint")))
    settings = onnxruntime.SessionOptions()
    if "library" in job:
        settings.register_custom_ops_library(job["library"])
    if "profile" in job:
        settings.enable_profiling = True
        settings.profile_file_prefix = job["profile"] + "/session"
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
    if "profile" in job:
        del module, optimizer, state  # the sessions end and write their profiles
        text = "".join(file.read_text() for file in pathlib.Path(job["profile"]).iterdir())
        result["ops"] = sorted(set(re.findall(r'"op_name" *: *"(\w+)"', text)))
    for key in job.get("properties", []):
        result[key] = state.properties[key]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
