# SPDX-License-Identifier: Apache-2.0
"""Files and folders that somebody else made: nothing is written in places that the user did not name, nothing is read
through links, and a message names a file that is cut while it is read."""
import json
import os
import shutil
import time

import numpy as np
import onnx
import pytest
from program import FIXTURES, losses, run, start, state_bytes, write_random
from test_external_data import write_model

MLP = FIXTURES / "mlp" / "d18.onnx"
CE = ["--loss", "cross_entropy"]
SECONDS = 60


def flags_of(tmp):
    return [MLP, "--data", write_random(tmp / "d.npz", 64), *CE, "--batch-size", 8]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with d.npz and run/, of three steps."""
    tmp = tmp_path_factory.mktemp("whole")
    run("train", *flags_of(tmp), "--steps", 3, "--out", tmp / "run")
    return tmp


@pytest.fixture
def foreign(whole, tmp_path):
    """A copy of that run, as somebody may have sent it."""
    shutil.copytree(whole / "run", tmp_path / "run")
    return tmp_path / "run"


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ---- temporary names

WRITERS = {
    "t.onnx": ["export", "RUN", "-o"],
    "t.safetensors": ["export", "RUN", "-o"],
    "fp8.onnx": ["rewrite", MLP, "--recipe", "tensorwise", "-o"],
    "beside.onnx": ["rewrite", MLP, "--recipe", "tensorwise", "--external-data", "-o"],
    "scales.json": ["calibrate", MLP, "--data", "DATA", *CE, "--steps", 1, "-o"],
    "grads.npz": ["grad", MLP, "--data", "DATA", *CE, "-o"],
    "out.safetensors": ["run", MLP, "--data", "DATA", "-o"],
}


@pytest.mark.parametrize("what", ["link", "hard link", "leftover"])
@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_writes_through_what_has_its_temporary_name(name, what, whole, tmp_path):
    """A link that somebody put there, or a file that a killed process of the same number left."""
    words = {"RUN": whole / "run", "DATA": whole / "d.npz"}
    command = [words.get(word, word) for word in WRITERS[name]]
    victim, out = tmp_path / "victim", tmp_path / "to" / name
    victim.write_text("precious")
    out.parent.mkdir()
    names = [name, f"{name}.data"] if "--external-data" in command else [name]

    def plant():
        for each in names:
            temporary = f"{out.parent / each}.tmp-{os.getpid()}"
            if what == "link":
                os.symlink(victim, temporary)
            elif what == "hard link":
                os.link(victim, temporary)
            else:
                open(temporary, "w").close()

    run(*command, out, preexec_fn=plant)
    assert victim.read_text() == "precious"
    assert sorted(p.name for p in out.parent.iterdir()) == names
    for each in names:
        path = out.parent / each
        assert not path.is_symlink() and path.stat().st_nlink == 1 and path.stat().st_size > 100


def test_a_run_follows_no_temporary_name(whole, foreign, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/state.safetensors").write_text("precious")
    before = files(tmp_path / "elsewhere")

    def plant():
        for name in ("config.json", "metrics.jsonl", "latest"):
            os.symlink(tmp_path / "elsewhere/state.safetensors", f"{foreign}/{name}.tmp-{os.getpid()}")
        for step in (3, 4, 5):
            os.symlink(tmp_path / "elsewhere", f"{foreign}/checkpoints/step_{step:08}.tmp-{os.getpid()}")

    run("train", "--resume", "--out", foreign, "--steps", 5, preexec_fn=plant)
    assert files(tmp_path / "elsewhere") == before
    assert not [p for p in foreign.rglob("*") if ".tmp-" in p.name or p.is_symlink()]
    run("train", *flags_of(tmp_path), "--steps", 5, "--out", tmp_path / "own")
    assert state_bytes(foreign) == state_bytes(tmp_path / "own")


# ---- the folder of a run

@pytest.mark.parametrize("flag,words", [
    ("--profile", ["PATH"]),
    ("MODEL", ["m.onnx", "--profile=PATH"]),
    ("--out", ["PATH"]),
])
def test_a_config_names_no_file_to_write(flag, words, whole, foreign, tmp_path):
    outside = tmp_path / "outside.json"
    config = json.loads((foreign / "config.json").read_text())
    config.pop("crc32")
    config["flags"][flag] = [word.replace("PATH", str(outside)) for word in words]
    (foreign / "config.json").write_text(json.dumps(config))
    run("eval", foreign, "--data", whole / "d.npz")
    run("export", foreign, "-o", tmp_path / "t.onnx")
    run("train", "--resume", "--out", foreign, "--steps", 4)
    assert not outside.exists()
    assert not {flag, "--profile"} & set(json.loads((foreign / "config.json").read_text())["flags"])


def test_a_profile_is_of_the_start_that_asks_for_it(tmp_path):
    run("train", *flags_of(tmp_path), "--steps", 1, "--out", tmp_path / "run", "--profile", tmp_path / "a.json")
    (tmp_path / "a.json").unlink()
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 2)
    assert not (tmp_path / "a.json").exists()
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 3, "--profile", tmp_path / "b.json")
    assert json.loads((tmp_path / "b.json").read_text())


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "latest", "model", "checkpoints"])
@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_in_a_run_is_refused(name, target, whole, foreign, tmp_path):
    kept, elsewhere = foreign / name, tmp_path / target
    if target == "elsewhere":
        kept.rename(elsewhere)
    elif kept.is_dir():
        shutil.rmtree(kept)
    else:
        kept.unlink()
    kept.symlink_to(elsewhere)
    before = files(tmp_path)
    commands = [["train", "--resume", "--out", foreign, "--steps", 5],
                ["train", *flags_of(whole), "--steps", 5, "--out", foreign],
                ["eval", foreign, "--data", whole / "d.npz"], ["export", foreign, "-o", tmp_path / "t.onnx"]]
    for command in commands:
        done = run(*command, code=1)
        kind = "a folder" if name in ("model", "checkpoints") else "a file"
        assert f"[{kept}] expected {kind} of the run, got a link: put what it leads to in its place" in done.stderr
        assert files(tmp_path) == before and kept.is_symlink()
    assert target == "elsewhere" or not elsewhere.exists()


def test_a_pipe_in_a_run_is_not_waited_for(foreign, whole):
    (foreign / "latest").unlink()
    os.mkfifo(foreign / "latest")
    for command in (["train", "--resume", "--out", foreign, "--steps", 5], ["eval", foreign, "--data", whole / "d.npz"]):
        assert "expected a file of the run, got a device or pipe" in run(*command, code=1, timeout=SECONDS).stderr


def test_metrics_of_another_name_do_not_grow(foreign, tmp_path):
    """As a hard link, which looks like any file."""
    os.link(foreign / "metrics.jsonl", tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    run("train", "--resume", "--out", foreign, "--steps", 5)
    assert (tmp_path / "precious").read_bytes() == before
    assert sorted(losses(foreign)) == [1, 2, 3, 4, 5]


# ---- external data

def test_a_cache_of_links_is_refused_with_a_way_out(tmp_path):
    """As in a hub's cache: snapshots with links to files that are named by their content."""
    write_model(tmp_path / "plain")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for blob, name in (("aa", "m.onnx"), ("bb", "w.bin")):
        shutil.copy(tmp_path / "plain" / name, blobs / blob)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    done = run("inspect", snapshot / "m.onnx", code=1)
    assert (f"[{snapshot}/w.bin] is a link, which may lead anywhere: copy the folder with what its links name "
            "(cp -rL FOLDER COPY) and use the copy") in done.stderr
    shutil.copytree(snapshot, tmp_path / "copy")  # follows links, as cp -rL does
    run("inspect", tmp_path / "copy/m.onnx")
    # Only the model itself may be a link.
    (snapshot / "w.bin").unlink()
    shutil.copy(blobs / "bb", snapshot / "w.bin")
    run("inspect", snapshot / "m.onnx")


def test_a_link_to_a_model_says_where_its_data_are_expected(tmp_path):
    model = write_model(tmp_path / "model")
    (tmp_path / "m.onnx").symlink_to(model)
    done = run("inspect", tmp_path / "m.onnx", code=1)
    assert f"the model is a link, and its data are expected beside the link: give {model} instead" in done.stderr
    run("inspect", model)


def test_data_of_another_model_are_not_replaced(tmp_path):
    """A data file with the name that the new file's own would have."""
    run("rewrite", MLP, "-o", tmp_path / "a.onnx", "--recipe", "tensorwise", "--external-data")
    model = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    onnx.save(model, tmp_path / "b.onnx")  # refers to a.onnx.data
    (tmp_path / "a.onnx").unlink()
    before = files(tmp_path)
    done = run("rewrite", MLP, "-o", tmp_path / "a.onnx", "--recipe", "tensorwise", "--external-data", code=1)
    assert f"[{tmp_path}/a.onnx.data] would be replaced by the external data of {tmp_path}/a.onnx" in done.stderr
    assert files(tmp_path) == before


# ---- files that are cut

def wait_for(words, path):
    end = time.monotonic() + SECONDS
    while words not in path.read_text():
        assert time.monotonic() < end, path.read_text()
        time.sleep(0.02)


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path):
    arrays = np.load(write_random(tmp_path / "d.npz", 4096))
    np.save(tmp_path / "x.npy", arrays["x"])
    np.save(tmp_path / "labels.npy", arrays["labels"])
    errors = tmp_path / "errors"
    with open(errors, "w") as stderr:
        process = start("train", MLP, "--data", tmp_path / "x.npy", tmp_path / "labels.npy", *CE, "--batch-size", 8,
                        "--threads", 1, "--steps", 100000000, "--out", tmp_path / "run", stderr=stderr)
    try:
        wait_for("step 1/", errors)
        os.truncate(tmp_path / "x.npy", 0)
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)
    last = errors.read_text().splitlines()[-1]
    assert process.returncode == 1, last
    assert last.startswith(f"onnx-fp8: [{tmp_path}/x.npy] became shorter while it was read"), last
