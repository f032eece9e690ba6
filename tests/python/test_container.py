# SPDX-License-Identifier: Apache-2.0
"""The container files. Their last stages are built here by buildah, from an installed prefix of the build that is tested;
`./dev container` also builds the first stages, which takes minutes. What stands for debian:12 has only the packages that
the program needs, and apt needs them, too, so the real one has them."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import program
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["ONNX_FP8_BIN"]).resolve()
FILES = ["Dockerfile", "Dockerfile.cuda"]
CUDA = BIN.with_name("libonnx_fp8_cuda.so")
OF_PYPI = ["libcublasLt.so.13", "libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"]
NEEDED = ["libc6", "libgcc-s1", "libstdc++6", "zlib1g"]
sys.path.insert(0, str(ROOT / "scripts"))
import try_container  # noqa: E402
from try_wheels import SAMPLE  # noqa: E402


def instructions(file):
    """[(keyword, the rest)]"""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def lacking():
    """Why no image can be built here, or nothing."""
    if os.geteuid():
        return "root"
    if not shutil.which("dpkg"):
        return "Debian"
    if not shutil.which("buildah"):
        return "buildah, which ./dev container installs"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        return "the right to mount folders"
    if subprocess.run(["dpkg-query", "-W", *NEEDED], capture_output=True).returncode:
        return f"one of the packages {', '.join(NEEDED)}"
    return ""


def install_debian(root):
    """Copies the files of this machine's packages, without the programs and the documentation."""
    for folder in ("lib", "lib64"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for line in subprocess.run(["dpkg", "-L", *NEEDED], text=True, capture_output=True, check=True).stdout.splitlines():
        file = pathlib.Path(line)
        if re.match(r"(/usr)?/lib(64)?/", line) and not file.is_dir():
            target = root / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target, follow_symlinks=False)


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    if lacking():
        program.leave_out(f"the images of the container files: this machine lacks {lacking()}")
        pytest.skip(lacking())
    folder = tmp_path_factory.mktemp("containers")
    made = try_container.Storage(folder)
    made.make_base(install_debian)
    yield made
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What the first stages leave. Empty files stand for the libraries that PyPI has, and for a provider that is not
    built here."""
    folder = tmp_path_factory.mktemp("built")
    prefix = folder / "prefix"
    try_container.run("cmake", "--install", BIN.parent, "--prefix", prefix)
    for name in (*OF_PYPI, CUDA.name):
        (prefix / "lib" / name).touch()
    return folder


@pytest.fixture(scope="module")
def images(storage, built):
    """The storage, where each container file has an image of its name."""
    for file in FILES:
        storage.build(ROOT / file, file.lower(), f"--build-context=build={built}")
    return storage


@pytest.mark.parametrize("file", FILES)
def test_the_image_trains_the_same_model(file, images, tmp_path):
    assert images.trained(file.lower(), tmp_path / "in") == try_container.trained_outside(BIN, tmp_path / "out")


def providers(images, name, folder):
    """What the image's program can open. buildah may lose the last words of a short program: it is asked again."""
    for _ in range(5):
        said = images.run(name, folder, "version", "--json")
        if found := re.search(r'"providers":"(.*?)"', said):
            return found[1]
    raise AssertionError(f"{name}: expected providers, got {said!r}")


def test_the_image_has_the_provider_cuda(images, tmp_path):
    """The library opens without a driver."""
    if not CUDA.exists():
        program.leave_out("the provider cuda in an image, which this build lacks")
    assert providers(images, "dockerfile", tmp_path) == "cpu"
    assert providers(images, "dockerfile.cuda", tmp_path) == ("cpu, cuda" if CUDA.exists() else "cpu")


def test_commands_of_the_pages(images, tmp_path):
    """buildah stands for docker. The user is nobody that the image knows."""
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/containers.md"))
    files = re.findall(r"`docker build -t onnx-fp8(?:-cuda -f (\S+))? \.`", text)
    assert {file or FILES[0] for file in files} == {*FILES} and len(files) == text.count("docker build ")
    shutil.copy(SAMPLE / "digits_mlp.onnx", tmp_path / "model.onnx")
    shutil.copy(SAMPLE / "train.npz", tmp_path)
    os.chown(tmp_path, 12345, 12345)
    runs = re.findall(r'`docker run --rm(?: --user ".*?" -v \S+)? onnx-fp8 (.*?)`', text)
    assert len(runs) == text.count("docker run ")
    for words in runs:
        images.run("dockerfile", tmp_path, *words.split(), user="12345:12345")
    assert (tmp_path / "runs/first/latest").exists()


@pytest.mark.parametrize("file", FILES)
def test_the_first_stage_builds_this_tree(file):
    first, *rest = instructions(file)
    assert first == ("FROM", "debian:12 AS build")
    assert [words for keyword, words in rest if keyword == "FROM"] == ["debian:12"]
    assert [words for keyword, words in rest if keyword == "COPY" and "--from" not in words] == [". /onnx_fp8"]
    commands = [words for keyword, words in rest if keyword == "RUN"]
    assert "./dev install /prefix" in commands[0]
    usage = (ROOT / "dev").read_text()
    for command, option in re.findall(r"\./dev (\w+) (--\w+)?", " ".join(commands)):
        assert re.search(rf"^  {command} .*{re.escape(option)}", usage, re.M), command


def test_libraries_of_cuda():
    """The pinned packages have them, whose versions begin as the names end, and the provider opens them."""
    pins = "".join((ROOT / f"scripts/requirements-{name}.txt").read_text() for name in ("cuda", "cudnn"))
    assert re.search(r"^nvidia-cublas==13\.", pins, re.M) and re.search(r"^nvidia-cudnn-jit-cu13==9\.", pins, re.M)
    opened = {name for source in (ROOT / "providers/cuda").rglob("*_library.cc")
              for name in re.findall(r'"(lib\w+\.so\.\d+)"', source.read_text())}
    assert {*OF_PYPI[:2]} <= opened


def test_what_a_build_does_not_need_stays_outside():
    ignored = (ROOT / ".dockerignore").read_text().split()
    wanted = (ROOT / ".gitignore").read_text().split()
    assert ".git" in ignored
    assert {line.strip("/") for line in wanted if line.endswith("/")} <= {line.removeprefix("**/") for line in ignored}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert not [file for file in tracked.splitlines() if {*file.split("/")[:1]} & {*ignored}]
