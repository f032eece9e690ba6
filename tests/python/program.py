# SPDX-License-Identifier: Apache-2.0
"""The program under test, and small data that the CLI tests share."""
import json
import os
import pathlib
import subprocess

import numpy as np
from safetensors.numpy import load_file

BIN = os.environ["ONNX_FP8_BIN"]
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"


def start(*arguments, **kwargs):
    """The program, running; both outputs are pipes unless `kwargs` say otherwise."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([BIN, *map(str, arguments)], **(pipes | kwargs))


def run(*arguments, code=0, **kwargs):
    """Runs the program to its end; it must exit with `code`, if that is not None."""
    done = subprocess.run([BIN, *map(str, arguments)], capture_output=True, text=True, **kwargs)
    assert code is None or done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done


def reference(case):
    return load_file(FIXTURES / case / "reference.safetensors")


def write_batch(case, path, repeat=1):
    """The reference's batch, `repeat` times, as .npz."""
    arrays = {k.split(".", 1)[1]: v for k, v in reference(case).items() if k.startswith(("input.", "label."))}
    np.savez(path, **{k: np.concatenate([v] * repeat) for k, v in arrays.items()})
    return path


def write_random(path, samples, seed=0):
    """Random samples for the mlp, which are all different."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 24)).astype(np.float32)
    classes = reference("mlp")["output.logits"].shape[1]
    np.savez(path, x=x, labels=rng.integers(0, classes, samples))
    return path


def metrics(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def losses(folder):
    return {m["step"]: m["loss"] for m in metrics(folder) if "loss" in m}


def state_bytes(folder):
    """Every byte of the newest checkpoint's state."""
    folder = pathlib.Path(folder)
    latest = (folder / "latest").read_text().strip()
    return (folder / "checkpoints" / latest / "state.safetensors").read_bytes()


def metrics_without_speed(folder):
    return [{k: v for k, v in m.items() if not k.endswith("_per_second")} for m in metrics(folder)]


_left_out = set()


def leave_out(what):
    """Reports that something is not tested here, in the summary of the tests."""
    _left_out.add(f"left out: {what}")


def left_out_lines():
    return sorted(_left_out)
