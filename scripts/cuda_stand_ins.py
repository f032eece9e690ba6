#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes `import torch` work without the CUDA libraries of PyPI (1.7 GB).

  cuda_stand_ins.py TORCH_LIB

PyTorch's wheel loads these libraries on a machine without a GPU, too, but calls
nothing in them. Its folder of libraries gets one library with all their functions,
each of which says that there is no device, and links to it with their names. A second
run replaces the library.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

NO_DEVICE = 100  # cudaErrorNoDevice
# Functions whose answer is no error.
SPECIAL = {
    "cudaGetErrorString": 'const char* cudaGetErrorString(int e) { return "no CUDA-capable device is detected"; }',
    "cudaGetErrorName": 'const char* cudaGetErrorName(int e) { return "cudaErrorNoDevice"; }',
    # The package transformers asks in every forward pass.
    "cudaStreamIsCapturing": "int cudaStreamIsCapturing(void* stream, int* status) { *status = 0; return 0; }",
}


def run(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout


def main():
    folder = pathlib.Path(sys.argv[1])
    users = sorted(folder.glob("lib*.so*"))
    needed = set(re.findall(r"NEEDED +(lib(?:cu|nccl|nvrtc|nvshmem)\S+)", run("objdump", "-p", *users)))
    functions = collections.defaultdict(set)  # by version
    for name, version in re.findall(r"^ +U ((?:__cuda|cu|nccl|nvrtc|nvshmem)\w*)@?(\S*)$",
                                    run("nm", "-D", "--undefined-only", *users), re.M):
        functions[version].add(name)
    code = "".join(SPECIAL.get(name, f"int {name}(void) {{ return {NO_DEVICE}; }}") + "\n"
                   for name in sorted(set().union(*functions.values())))
    # The loader wants the versions with which PyTorch was linked.
    versions = "".join(f"{version} {{ {'; '.join(sorted(names))}; }};\n"
                       for version, names in sorted(functions.items()) if version)
    made = folder / "cuda_stand_ins.so"
    with tempfile.TemporaryDirectory() as work:
        source, script = pathlib.Path(work, "a.c"), pathlib.Path(work, "a.map")
        source.write_text(code)
        script.write_text(versions)
        run("cc", "-w", "-fno-builtin", "-fPIC", "-shared", f"-Wl,--version-script={script}", "-o", made, source)
    for name in needed - {user.name for user in users}:
        (folder / name).symlink_to(made.name)


if __name__ == "__main__":
    main()
