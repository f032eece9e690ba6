# SPDX-License-Identifier: Apache-2.0
"""Sessions of ONNX Runtime without our library."""
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(4)


def stock_session(model, **kwargs):
    """`model`: a path or a ModelProto. The session runs on one thread: more threads would spin between
    the small nodes of tests."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"], **kwargs)
