#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs portable wheels here and in chroots of an older and a newer Debian, and trains there.

  try_wheels.py BUILD WHEELS CHROOTS

BUILD is build/portable, WHEELS the folder of make_wheel.py. debootstrap makes the chroots once. pip picks a wheel for
Python 3.11 here, and for Debian 13's Python there. Debian 11 has no Python that a wheel is for: there the program of
BUILD trains, and ld.so loads the libraries of all wheels and finds every symbol. All trained weights must equal, byte by
byte, the weights that the program of BUILD trains here. The script needs root.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples/digits_mlp"
TRAIN = ("train", "digits_mlp.onnx", "--data", "train.npz", "--loss", "cross_entropy", "--lr", "1e-3", "--batch-size", "32",
         "--steps", "20", "--recipe", "tensorwise")
LIBRARIES = ("libonnx_fp8_ort.so", "libonnx_fp8_crypto.so")


def run(*command, **options):
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        sys.exit(f"try_wheels.py: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def mirror():
    """The mirror of Debian that this machine uses."""
    lines = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages").splitlines()
    [host, *_] = sorted(line.removesuffix(" bookworm") for line in lines if line.endswith(" bookworm"))
    return host


class Chroot:
    """A minimal system, with a folder /try that is made anew."""

    def __init__(self, folder, suite, packages):
        self.root = folder / suite
        if not (self.root / "complete").exists():
            print(f"making a chroot of Debian {suite}", flush=True)
            shutil.rmtree(self.root, ignore_errors=True)
            run("debootstrap", "--variant=minbase", f"--include={packages}", suite, self.root, mirror())
            (self.root / "complete").touch()
        self.folder = self.root / "try"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(SAMPLE, self.folder)

    def run(self, *command):
        return run("unshare", "--mount", "--pid", "--fork", f"--mount-proc={self.root}/proc", "chroot", self.root,
                   "sh", "-c", 'cd /try && exec "$@"', "sh", *command)

    def trained(self, *program):
        self.run(*program, *TRAIN, "--out", "run")
        return weights(self.folder / "run")


def weights(run_folder):
    [state] = run_folder.glob("checkpoints/*/state.safetensors")
    return state.read_bytes()


def trained_here(program, run_folder):
    shutil.rmtree(run_folder, ignore_errors=True)
    run(program, *TRAIN, "--out", run_folder, cwd=SAMPLE)
    return weights(run_folder)


def pip(python, *words):
    return run(python, "-m", "pip", *words[:1], "--quiet", "--disable-pip-version-check", *words[1:])


def check_libm(file):
    """zig's run-time library has functions of libm, too, with other results."""
    if not re.search(r"\*UND\*.* logf$", run("objdump", "-T", file), re.M):
        sys.exit(f"try_wheels.py: {file.name}: expected logf of the system's libm, got one inside")


def load_all(chroot, wheel):
    """Loads the libraries of a wheel by the chroot's ld.so."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(chroot.folder / wheel.stem)
    package = f"{wheel.stem}/onnx_fp8"
    for name in LIBRARIES:
        chroot.run("python3", "-c", f"import ctypes, os; ctypes.CDLL('{package}/{name}', os.RTLD_NOW)")
    [core] = (chroot.folder / package).glob("_core*.so")
    for file in (core, core.with_name("libonnx_fp8_ort.so")):
        check_libm(file)
    said = chroot.run("ldd", "-r", f"{package}/{core.name}")
    missing = [name for name in re.findall(r"^undefined symbol: (\w+)", said, re.M) if not re.match("_?Py", name)]
    if missing or "not found" in said or "Py_" not in said:
        sys.exit(f"try_wheels.py: {wheel.name}: expected all symbols but Python's, got\n{said}")


def main():
    build, wheels, chroots = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    files = sorted(wheels.glob("*.whl"))
    if len(files) != 2:
        sys.exit(f"try_wheels.py: expected two wheels in {wheels}, got {[file.name for file in files]}")
    chroots.mkdir(parents=True, exist_ok=True)

    check_libm(build / "onnx-fp8")
    expected = trained_here(build / "onnx-fp8", chroots / "here")
    packages = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", ROOT / "scripts/requirements-build.txt")
    venv = chroots / "venv"
    run(sys.executable, "-m", "venv", "--clear", venv)
    pip(venv / "bin/python", "install", *packages)
    pip(venv / "bin/python", "install", "--no-index", "--find-links", wheels, "onnx-fp8")
    if trained_here(venv / "bin/onnx-fp8", chroots / "here") != expected:
        sys.exit("try_wheels.py: here: the wheel's program and the build's program train different models")
    print(f"here: pip installs a wheel for Python 3.{sys.version_info[1]}, and its program trains the same model")

    older = Chroot(chroots, "bullseye", "python3")
    shutil.copy(build / "onnx-fp8", older.folder)
    if older.trained("./onnx-fp8") != expected:
        sys.exit("try_wheels.py: Debian 11: another trained model than here")
    for wheel in files:
        load_all(older, wheel)
    print("Debian 11: the program trains the same model, and all libraries load")

    newer = Chroot(chroots, "trixie", "python3,python3-venv")
    for wheel in files:
        shutil.copy(wheel, newer.folder)
    pip(sys.executable, "download", "--python-version", "3.13", "-d", newer.folder, *packages)
    newer.run("python3", "-m", "venv", "venv")
    newer.run("venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", ".", "onnx-fp8")
    if newer.trained("venv/bin/onnx-fp8") != expected:
        sys.exit("try_wheels.py: Debian 13: another trained model than here")
    print(newer.run("venv/bin/python", "-c", "import onnx_fp8.ort as o; print(o.get_library_path())").strip())
    print("Debian 13: pip installs a wheel, and its program trains the same model")


if __name__ == "__main__":
    main()
