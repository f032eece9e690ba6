# SPDX-License-Identifier: Apache-2.0
"""Sessions of onnxruntime with our library, and small models."""
import os
import pathlib

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LIBRARY = os.environ["ONNX_FP8_ORT_LIBRARY"]
EP = "onnx_fp8"
CPU = "CPUExecutionProvider"
ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
# Since this version a session tells which provider has which node.
TELLS_ASSIGNMENT = VERSION >= (1, 24)
onnxruntime.set_default_logger_severity(4)


def register():
    """Once per process, as long as sessions may live."""
    if not any(device.ep_name == EP for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library(EP, LIBRARY)
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == EP]


def session(model, options=None, fallback=False, threads=None, optimized=True):
    """A session with our provider. `model`: a path or a ModelProto. Without
    `fallback` the session fails if a node is left to another provider. `optimized`:
    the session's own rewrites of the graph are on."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if not optimized:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads:
        settings.intra_op_num_threads = threads
    if not fallback:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.add_provider_for_devices(register(), options or {})
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, settings, enable_fallback=0)


def stock(model, library=None):
    """A session without our provider; `library`: with our custom ops."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    if library:
        settings.register_custom_ops_library(library)
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, settings, providers=[CPU])


def groups(running):
    """[(provider, the ops of one of its groups)], if the runtime tells."""
    return [(part.ep_name, sorted(node.op_type for node in part.get_nodes()))
            for part in running.get_provider_graph_assignment_info()]


def model(nodes, inputs, outputs, constants=None, opset=19):
    """`inputs`, `outputs`: {name: (ONNX type, shape)}; `constants`: {name: array}."""
    def infos(values):
        return [helper.make_tensor_value_info(name, kind, shape)
                for name, (kind, shape) in values.items()]

    graph = helper.make_graph(nodes, "test", infos(inputs), infos(outputs), [
        numpy_helper.from_array(array, name) for name, array in (constants or {}).items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)])


FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
