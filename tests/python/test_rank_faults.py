# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stop, can't write or differ from others: the job ends with the rank's number and the reason, and the
run goes on from a whole checkpoint."""
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import time
import zlib

import pytest
from program import BIN, FIXTURES, losses, run, write_random
from rank_jobs import MODULE, Job, job_of, need_mpi
from safetensors import safe_open

MLP = FIXTURES / "mlp" / "d18.onnx"
DIGITS = pathlib.Path(__file__).resolve().parents[2] / "samples/digits_mlp"
FLAGS = ["--loss", "cross_entropy", "--batch-size", 8]


@pytest.fixture(params=["mpirun", "variables"])
def launcher(request):
    if request.param == "mpirun":
        need_mpi()
    return request.param


def latest(out):
    return int((out / "latest").read_text().strip().split("_")[1])


@pytest.mark.parametrize("launcher,sent,failing", [
    ("mpirun", signal.SIGKILL, 1), ("variables", signal.SIGKILL, 1), ("variables", signal.SIGKILL, 0),
    ("mpirun", signal.SIGSTOP, 0), ("variables", signal.SIGSTOP, 2)], indirect=["launcher"])
def test_a_rank_that_dies_or_stops_ends_the_job(tmp_path, launcher, sent, failing):
    reason = "the process was killed or has crashed" if sent == signal.SIGKILL else "no sign of life for 5 s"
    out = tmp_path / "run"
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *FLAGS]
    job = job_of(3, "train", *flags, "--steps", 10**8, "--save-every", 50, "--out", out, launcher=launcher)
    job.wait_for((out / "latest").exists)
    pids = job.all_pids()
    begin = time.monotonic()
    os.kill(pids[failing], sent)
    others = {rank: pid for rank, pid in pids.items() if rank != failing}
    while any(os.path.exists(f"/proc/{pid}/exe") for pid in others.values()):
        assert time.monotonic() - begin < 10
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[failing], signal.SIGKILL)
    codes, text = job.end()
    assert 0 not in codes
    said = text.count(f", pid {pids[failing]}): {reason}")
    if launcher == "variables":
        assert said == 2 and text.count(f"rank {failing} of 3 (") == 2, text
    elif sent == signal.SIGSTOP:  # mpirun ends the others when the first one ends, and when it sees that one was killed
        assert said >= 1, text
    done = run("train", "--resume", "--out", out, "--steps", latest(out) + 1)
    assert "trained 1 steps" in done.stdout


def test_the_folder_is_locked_as_long_as_a_rank_lives(tmp_path):
    """The first rank is killed while another one is stopped. (mpirun would kill that, too.)"""
    out = tmp_path / "run"
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *FLAGS]
    job = job_of(2, "train", *flags, "--steps", 10**8, "--save-every", 50, "--out", out, "--shard", "parameters",
                 launcher="variables")
    job.wait_for((out / "latest").exists)
    pids = job.all_pids()
    try:
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        while os.path.exists(f"/proc/{pids[0]}/exe"):
            time.sleep(0.02)
        resume = ["train", "--resume", "--out", out, "--steps", latest(out) + 1]
        assert "another process trains in this folder" in run(*resume, code=1).stderr
    finally:
        job.kill()
    assert "trained 1 steps" in run(*resume).stdout


def test_ctrl_c_saves_once(tmp_path, launcher):
    out = tmp_path / "run"
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *FLAGS, "--save-every", 10**6]
    job = job_of(2, "train", *flags, "--steps", 10**8, "--out", out, launcher=launcher)
    job.wait_for(lambda: (out / "metrics.jsonl").exists() and len((out / "metrics.jsonl").read_text().splitlines()) > 3)
    for process in job.processes:
        process.send_signal(signal.SIGINT)
    codes, text = job.end()
    # mpirun at times ends with 0 after a signal, whatever its ranks end with.
    assert launcher == "mpirun" or 0 not in codes
    step = latest(out)
    assert text.count(f"interrupted after step {step} of ") == 1
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"step_{step:08d}"]
    assert list(losses(out)) == list(range(1, step + 1))


def two_programs(tmp_path, other_program=BIN, other_flags=(), other_data=40, other_model=MLP):
    """Rank 1's differs. Each has its files in a folder of its own, under the same path."""
    programs = []
    for rank, (program, flags, samples, model) in enumerate([(BIN, (), 40, MLP),
                                                             (other_program, other_flags, other_data, other_model)]):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        write_random(folder / "d.npz", samples)
        shutil.copy(model, folder / "m.onnx")
        words = [program, "train", "/proc/self/cwd/m.onnx", "--data", "/proc/self/cwd/d.npz", *FLAGS, "--steps", "9",
                 "--out", tmp_path / "run", "--mesh", "dp=2", "--threads", "1", *flags]
        programs.append(["sh", "-c", 'cd "$0" && exec "$@"', folder, *words])
    return programs


def other_version(tmp_path):
    """The program with another number of its version in place of its own."""
    version = run("--version").stdout.split()[1]
    other = "9" + version[1:]
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / pathlib.Path(BIN).name
    program.write_bytes(pathlib.Path(BIN).read_bytes().replace(f"onnx-fp8 {version}".encode(), f"onnx-fp8 {other}".encode()))
    program.chmod(0o755)
    for module in MODULE.parent.glob("libonnx_fp8_*.so"):
        (tmp_path / "bin" / module.name).symlink_to(module)
    return program, version, other


@pytest.mark.parametrize("what", ["version", "model", "samples", "value", "switch", "shard"])
def test_a_rank_that_differs(tmp_path, launcher, what):
    if what == "version":
        program, version, other = other_version(tmp_path)
        programs = two_programs(tmp_path, other_program=program)
        expected, got = f"program onnx-fp8 {version}", f"program onnx-fp8 {other}"
    elif what == "model":
        model = tmp_path / "other.onnx"
        model.write_bytes(MLP.read_bytes() + b"\x7a\x00")  # no metadata: the same model in other bytes
        programs = two_programs(tmp_path, other_model=model)
        expected, got = (f"model {zlib.crc32(path.read_bytes()):08x}" for path in (MLP, model))
    elif what == "samples":
        programs = two_programs(tmp_path, other_data=48)
        expected, got = "samples 40", "samples 48"
    elif what == "value":
        programs = two_programs(tmp_path, other_flags=["--lr", "0.25"])
        expected, got = "no --lr", "--lr 0.25"
    elif what == "switch":
        programs = two_programs(tmp_path, other_flags=["--no-shuffle"])
        expected, got = "no --no-shuffle", "--no-shuffle"
    else:
        programs = two_programs(tmp_path, other_flags=["--shard", "parameters"])
        expected, got = "no --shard", "--shard parameters"
    codes, text = Job(programs, launcher=launcher).end()
    assert 0 not in codes
    assert f"[ranks] expected {expected}, as rank 0, got {got} on rank 1" in text, text
    assert not (tmp_path / "run" / "latest").exists()


def test_a_full_disk_of_one_rank(tmp_path, launcher):
    """The job keeps its last checkpoint, goes on, and says at its end that it could not save."""
    out = tmp_path / "run"
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *FLAGS, "--shard", "parameters", "--out", out]
    job = job_of(2, "train", *flags, "--steps", 10**8, "--save-every", 20, launcher=launcher)
    job.wait_for((out / "latest").exists)
    resource.prlimit(job.all_pids()[1], resource.RLIMIT_FSIZE, (512, 512))
    full = max(losses(out))
    job.wait_for(lambda: max(losses(out)) > full + 60)
    for process in job.processes:
        process.send_signal(signal.SIGINT)
    codes, text = job.end()
    # mpirun at times ends with 0 after a signal, whatever its ranks end with.
    assert launcher == "mpirun" or 0 not in codes
    assert latest(out) <= full + 1
    step = latest(out) + 20
    assert f"step {step} can't be saved: rank 1: [" in text, text
    assert "state.00001.safetensors] " in text and "File too large" in text
    assert f"the checkpoint of step {latest(out)} stays" in text and "could not be saved" in text
    checked_state(out)
    assert len(list((out / "checkpoints").iterdir())) <= 2
    assert "trained 1 steps" in run("train", "--resume", "--out", out, "--steps", latest(out) + 1).stdout


# ---- random kills

def checked_state(out):
    """The bytes of all tensors of the checkpoint that `latest` names, by name. It must be whole: every part is there, with
    the size and the checksum in the manifest."""
    folder = out / "checkpoints" / (out / "latest").read_text().strip()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert folder.name.startswith(f"step_{manifest['step']:08d}")
    sizes = {"state.safetensors": manifest["state_bytes"]} | manifest.get("files", {})
    assert {path.name: path.stat().st_size for path in folder.glob("state*")} == sizes
    state = {}
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(safe_open(folder / name, "np")) for name in sizes}
        for name, entry in manifest["tensors"].items():
            parts = entry.get("shards") or [{"file": "state.safetensors", "crc32": entry["crc32"]}]
            state[name] = b""
            for part in parts:
                data = files[part["file"]].get_tensor(name).tobytes()
                assert f"{zlib.crc32(data):08x}" == part["crc32"], (name, part)
                state[name] += data
    return state


def entries(out):
    """Names of checkpoints, and of folders that a killed save has left."""
    return sorted(path.name for path in (out / "checkpoints").glob("*"))


def test_random_kills(tmp_path):
    """Ranks that share state save after each step, and are killed at drawn moments. What the run computes is what it
    computes without kills, bit for bit."""
    need_mpi()
    kills = int(os.environ.get("ONNX_FP8_KILLS", "6"))
    seed = int(os.environ.get("ONNX_FP8_KILLS_SEED", "1"))
    print(f"ONNX_FP8_KILLS={kills} ONNX_FP8_KILLS_SEED={seed}")
    drawn = random.Random(seed)
    out = tmp_path / "run"
    train = ["train", DIGITS / "digits_mlp.onnx", "--data", DIGITS / "train.npz", "--loss", "cross_entropy", "--optimizer",
             "adamw", "--batch-size", 16, "--recipe", "tensorwise", "--shard", "parameters"]
    saved, cut = 0, 0
    for kill in range(kills):
        launcher = drawn.choice(["mpirun", "torchrun", "variables"])
        killed = drawn.choice([[0], [1], [0, 1]])
        seconds = drawn.uniform(0, 1.2)
        print(f"kill {kill}: ranks {killed} of {launcher}, after {seconds:.3f} s at step {saved}")
        job = job_of(2, *train, "--resume", "--steps", 10**8, "--save-every", 1, "--out", out, launcher=launcher)
        pids = job.all_pids()
        if launcher == "variables":  # nobody ends a rank that waits for one that never comes
            job.wait_for(lambda: (out / "latest").exists() and latest(out) > saved)
        time.sleep(seconds)
        for rank in killed:
            with contextlib.suppress(ProcessLookupError):  # the launcher has ended it, after the other rank
                os.kill(pids[rank], signal.SIGKILL)
        codes, text = job.end()
        assert any(codes), text
        if saved or (out / "latest").exists():
            checked_state(out)
            assert latest(out) >= saved
            saved = latest(out)
            cut += any(".tmp-" in name for name in entries(out))
    steps = saved + 3
    codes, text = job_of(2, *train, "--resume", "--steps", steps, "--out", out).end(300)
    assert codes == [0], text
    codes, text = job_of(2, *train, "--steps", steps, "--out", tmp_path / "whole").end(300)
    assert codes == [0], text
    print(f"{steps} steps; {cut} kills cut a save")
    assert losses(out) == losses(tmp_path / "whole") and list(losses(out)) == list(range(1, steps + 1))
    assert checked_state(out) == checked_state(tmp_path / "whole")
    assert not [name for name in entries(out) if ".tmp-" in name]
