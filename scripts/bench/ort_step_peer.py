# SPDX-License-Identifier: Apache-2.0
"""Runs a training step of `onnx-fp8 rewrite` in a stock onnxruntime. WHO computes:
`ep`, our provider, or `bodies`, the runtime itself, which runs our ops by their bodies.
Usage: python -m bench.ort_step_peer WHO STEP.onnx TOKENS LIBRARY"""
import os
import sys

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

from bench import task, turns

EP = "onnx_fp8"


def open_session(who, path, library):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if who == "bodies":
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    onnxruntime.register_execution_provider_library(EP, library)
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    settings.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == EP], {})
    return onnxruntime.InferenceSession(path, settings, enable_fallback=0)


def prepare():
    who, path, tokens, library = sys.argv[1:5]
    proto = onnx.load(path)
    session = open_session(who, path, library)
    bindings = {b.key: b.value for b in proto.training_info[0].update_binding}
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    old = {i.name: value(numpy.array(numpy_helper.to_array(i)))
           for i in proto.graph.initializer if i.name in bindings}
    new = {name: value(numpy.zeros_like(state.numpy())) for name, state in old.items()}
    batches = task.Batches(tokens)
    outputs = [o.name for o in session.get_outputs()
               if o.name == "loss" or o.name not in bindings.values()]

    def step():
        nonlocal old, new
        feeds = dict(zip(("input_ids", "labels"), batches.next()))
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for name in old:
            binding.bind_ortvalue_input(name, old[name])
            binding.bind_ortvalue_output(bindings[name], new[name])
        for name in outputs:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        old, new = new, old
        return binding.get_outputs()[len(new) + outputs.index("loss")].numpy()

    return step, {"threads": len(os.listdir("/proc/self/task"))}


if __name__ == "__main__":
    turns.serve(prepare)
