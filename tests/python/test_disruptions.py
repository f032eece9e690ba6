# SPDX-License-Identifier: Apache-2.0
"""Disruptions of a run: signals, full and read-only disks, too little memory, odd paths, two runs at once."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from program import BIN, FIXTURES, leave_out, losses, run, start, state_bytes, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"


def flags_of(tmp):
    return [MLP, "--data", write_random(tmp / "d.npz", 64), "--loss", "cross_entropy", "--batch-size", 8]


def wait_for_first_step(process):
    while "step 1/" not in process.stderr.readline():
        assert process.poll() is None


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_prints_the_resume_command(tmp_path, sent):
    flags = ["train", *flags_of(tmp_path), "--threads", 1]
    process = start(*flags, "--steps", 100000000, "--out", tmp_path / "run")
    wait_for_first_step(process)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    command = errors.splitlines()[-1].strip().split(" ")
    assert command == [BIN, "train", "--resume", "--out", str(tmp_path / "run")]
    done = max(losses(tmp_path / "run"))
    assert f"after step {done} " in errors
    run(*command[1:], "--steps", done + 3)
    run(*flags, "--steps", done + 3, "--out", tmp_path / "whole")
    assert state_bytes(tmp_path / "run") == state_bytes(tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def mounted(script, *words):
    """Runs a shell script with the right to mount. That needs no root if the system allows it; None if it does not. The
    mounts are gone afterwards."""
    shell = ["unshare", "-rm", "sh", "-ec"]
    if subprocess.run([*shell, "mount -t tmpfs none /tmp"], capture_output=True).returncode != 0:
        leave_out("full and read-only disks: `unshare -rm` may not mount here")
        return None
    return subprocess.run([*shell, script, "sh", *map(str, words)], capture_output=True, text=True)


def mount_point(tmp):
    (tmp / "disk").mkdir()
    return tmp / "disk"


def test_full_disk(tmp_path):
    """Without room for another checkpoint the last one stays, and the run goes on to its end."""
    flags = flags_of(tmp_path)
    run("train", *flags, "--steps", 2, "--out", tmp_path / "run")
    before = state_bytes(tmp_path / "run")
    done = mounted('mount -t tmpfs -o size=$(($(du -sk "$1/run" | cut -f1) + 8))k none "$2"; cp -r "$1/run" "$2"; '
                   '"$3" train --resume --out "$2/run" --steps 8 --save-every 3 || echo "code $?"; '
                   'cp -r "$2/run" "$1/after"', tmp_path, mount_point(tmp_path), BIN)
    if done is None:
        return
    assert done.returncode == 0 and done.stdout.endswith("code 1\n"), done
    for words in ("step 3 can't be saved", "No space left on device", "the checkpoint of step 2 stays", "the run goes on",
                  "the last step is not saved"):
        assert words in done.stderr, words
    after = tmp_path / "after"
    assert state_bytes(after) == before
    assert not [path for path in after.rglob("*") if ".tmp" in path.name]
    run("train", "--resume", "--out", after, "--steps", 8)
    run("train", *flags, "--steps", 8, "--out", tmp_path / "whole")
    assert state_bytes(after) == state_bytes(tmp_path / "whole")
    assert losses(after) == losses(tmp_path / "whole")


def writers(tmp):
    """Commands that write a file, by the words that come before its name."""
    run("train", *flags_of(tmp), "--steps", 1, "--out", tmp / "run")
    data = ["--data", tmp / "d.npz"]
    loss = ["--loss", "cross_entropy"]
    return {
        "t.onnx": ["export", tmp / "run", "-o"],
        "t.safetensors": ["export", tmp / "run", "-o"],
        "step.onnx": ["rewrite", MLP, "--recipe", "tensorwise", *loss, "--optimizer", "sgd", "--shape", "batch=8", "-o"],
        "scales.json": ["calibrate", MLP, *data, *loss, "--steps", 1, "-o"],
        "grads.safetensors": ["grad", MLP, *data, *loss, "-o"],
        "out.npz": ["run", MLP, "--data", tmp / "d.npz", "-o"],
        "new": ["train", *flags_of(tmp), "--steps", 1, "--out"],
    }


@pytest.mark.parametrize("mount,reason", [
    ("mount -t tmpfs -o size=4k none {0}; head -c 8000 /dev/zero > {0}/filler || true", "No space left on device"),
    ("mount -t tmpfs -o ro none {0}", "Read-only file system"),
], ids=["full", "read_only"])
def test_nothing_can_be_written(tmp_path, mount, reason):
    """One line says so, and no incomplete file stays."""
    disk = mount_point(tmp_path)
    commands = {name: [BIN, *map(str, words), str(disk / name)] for name, words in writers(tmp_path).items()}
    (tmp_path / "commands.json").write_text(json.dumps(commands))
    each = ("import json, subprocess, sys, os\n"
            "done = {}\n"
            "for name, words in json.load(open(sys.argv[1] + '/commands.json')).items():\n"
            "    d = subprocess.run(words, capture_output=True, text=True)\n"
            "    done[name] = [d.returncode, d.stderr, sorted(os.listdir(sys.argv[2]))]\n"
            "print(json.dumps(done))\n")
    done = mounted(mount.format('"$2"') + '; "$3" -c "$4" "$1" "$2"', tmp_path, disk, sys.executable, each)
    if done is None:
        return
    assert done.returncode == 0, done
    for name, (code, errors, entries) in json.loads(done.stdout).items():
        assert code == 1 and reason in errors and str(disk) in errors, (name, errors)
        assert set(entries) <= {"filler", "new"}, name


def test_a_read_only_run_is_read(tmp_path):
    run("train", *flags_of(tmp_path), "--steps", 2, "--out", tmp_path / "run")
    done = mounted('mount -t tmpfs none "$2"; cp -r "$1/run" "$2"; mount -t tmpfs -o remount,ro none "$2"; '
                   '"$3" eval "$2/run" --data "$1/d.npz" --json; "$3" export "$2/run" -o "$1/t.onnx"; '
                   '"$3" train --resume --out "$2/run" --steps 4 || echo "code $?"', tmp_path, mount_point(tmp_path), BIN)
    if done is None:
        return
    assert done.returncode == 0 and done.stdout.endswith("code 1\n"), done
    assert "Read-only file system" in done.stderr.splitlines()[-1]
    assert (tmp_path / "t.onnx").exists()


def test_paths_with_spaces_and_other_scripts(tmp_path):
    odd = tmp_path / "Мои данные, 訓練 $x 'a' \"b\" -é"
    odd.mkdir()
    model = shutil.copy(MLP, odd / "модель 1.onnx")
    data = write_random(odd / "d ata.npz", 64)
    flags = ["train", model, "--data", data, "--loss", "cross_entropy", "--batch-size", 8, "--threads", 1]
    process = start(*flags, "--steps", 100000000, "--out", odd / "run é")
    wait_for_first_step(process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    # The command that it prints can be pasted into a shell.
    done = max(losses(odd / "run é"))
    pasted = errors.splitlines()[-1].strip() + f" --steps {done + 2}"
    subprocess.run(pasted, shell=True, check=True, capture_output=True)
    assert max(losses(odd / "run é")) == done + 2
    run("eval", odd / "run é", "--data", data)
    run("export", odd / "run é", "-o", odd / "вес.safetensors")
    run("train", *flags[1:], "--steps", 1, "--init", odd / "вес.safetensors", "--out", odd / "b")
    run("rewrite", model, "--recipe", "tensorwise", "-o", odd / "re write.onnx")
    run("inspect", odd / "re write.onnx")


def test_only_one_process_trains_in_a_folder(tmp_path):
    flags = ["train", *flags_of(tmp_path), "--threads", 1]
    process = start(*flags, "--steps", 100000000, "--out", tmp_path / "run")
    wait_for_first_step(process)
    for words in (["train", "--resume", "--out", tmp_path / "run"], [*flags, "--steps", 3, "--out", tmp_path / "run"]):
        assert "another process trains in this folder" in run(*words, code=1).stderr
    process.kill()
    process.communicate(timeout=60)


def test_of_two_starts_at_once_one_runs(tmp_path):
    """On a folder that does not exist yet, and on one that does."""
    flags = ["train", *flags_of(tmp_path), "--threads", 1, "--steps", 20]
    run(*flags, "--out", tmp_path / "whole")
    for round in range(4):
        out = tmp_path / f"run{round}"
        if round % 2:
            out.mkdir()
        both = [start(*flags, "--out", out) for _ in range(2)]
        errors = [process.communicate(timeout=60)[1] for process in both]
        assert sorted(process.returncode for process in both) == [0, 1], errors
        lost = next(text for process, text in zip(both, errors) if process.returncode == 1)
        assert "another process trains in this folder" in lost or "holds a run already" in lost
        assert state_bytes(out) == state_bytes(tmp_path / "whole")
        assert sorted(losses(out)) == list(range(1, 21))


OUT_OF_MEMORY = (r"onnx-fp8: (?:\[\S+\] can't be mapped: )?out of memory: expected (\d+) bytes more, got none: "
                 r"use smaller batches.*")


# The system ends a program that it can't map.
PROGRAM_BYTES = os.path.getsize(BIN)


def within(limit, command):
    """Runs the command with a limit on the bytes of addresses."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def test_little_memory_is_said(tmp_path):
    """A run without enough memory says so in one line."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 61, (512, 24))
    np.savez(tmp_path / "d.npz", input_ids=tokens, labels=tokens)
    flags = [BIN, "train", GPT, "--data", tmp_path / "d.npz", "--loss", "cross_entropy", "--batch-size", 512, "--steps", 1,
             "--threads", 2, "--out"]
    # MiB beside the program: less than the first step takes (60); the last is enough.
    for limit in (13, 21, 29, 37, 45, 265):
        done = within(PROGRAM_BYTES + (limit << 20), [*flags, tmp_path / f"run{limit}"])
        if limit == 265:
            assert done.returncode == 0, done.stderr
            continue
        found = re.fullmatch(OUT_OF_MEMORY, done.stderr.splitlines()[-1])
        assert done.returncode == 1 and found and int(found[1]) > 1 << 24, (limit, done.returncode, done.stderr)


def test_so_is_the_first_byte_that_is_not_there():
    """From a limit at which the loader can load the program to one at which the program can load the model."""
    codes = []
    for limit in range(PROGRAM_BYTES, PROGRAM_BYTES + (32 << 20), 128 << 10):
        done = within(limit, [BIN, "inspect", GPT])
        codes.append(done.returncode)
        if codes[-1] == 1:
            found = re.fullmatch(OUT_OF_MEMORY, done.stderr.splitlines()[-1])
            assert found and int(found[1]) > 0, (limit, done.stderr)
        if codes[-3:] == [0, 0, 0]:
            break
    # 127 is the loader's exit code.
    assert set(codes) == {127, 1, 0} and codes[0] == 127 and codes.count(1) > 20, codes
