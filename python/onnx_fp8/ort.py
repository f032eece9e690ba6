# SPDX-License-Identifier: Apache-2.0
"""The provider for ONNX Runtime, as a plugin:

    devices = onnx_fp8.ort.register()
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {"recipe": "tensorwise"})
    session = onnxruntime.InferenceSession("model.onnx", options)
"""
import pathlib

from ._errors import Error

_NAME = "onnx_fp8"


def get_library_path() -> str:
    """The path of the shared library. Error: this build of the package lacks it."""
    path = pathlib.Path(__file__).parent / "libonnx_fp8_ort.so"
    if not path.is_file():
        raise Error(f"[{path}] expected the library for ONNX Runtime, got none: this package was built without it")
    return str(path)


def get_ep_name() -> str:
    """The provider's name in ONNX Runtime."""
    return _NAME


def get_ep_names() -> list[str]:
    return [_NAME]


def register(severity: int | None = 3) -> list:
    """Registers the library with ONNX Runtime, once in a process, and returns the devices that it offers. Never
    unregister it while a session lives: ONNX Runtime crashes then.

    `severity` becomes ONNX Runtime's default for messages: 3 are errors. A written step has its state as inputs with
    defaults, and ONNX Runtime warns of each. None leaves the default as it is."""
    import onnxruntime
    path = get_library_path()
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise Error(f"[onnxruntime {onnxruntime.__version__}] expected 1.23 or newer, which takes plugins")

    def devices():
        return [device for device in onnxruntime.get_ep_devices() if device.ep_name == _NAME]

    if severity is not None:
        onnxruntime.set_default_logger_severity(severity)
    if not devices():
        onnxruntime.register_execution_provider_library(_NAME, path)
    return devices()
