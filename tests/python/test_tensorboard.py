# SPDX-License-Identifier: Apache-2.0
"""`--tensorboard`: the package tensorboard reads the numbers of metrics.jsonl and statistics.jsonl back."""
import json
import shutil

import numpy as np
import pytest
from program import FIXTURES, metrics, run, state_bytes, write_batch, write_random
from rank_jobs import need_mpi
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util
from test_ranks import ranks

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


def scalars(folder):
    """{tag: [(step, value)]}, as the stock package reads the folder, in its older and in its newer way."""
    everything = {"scalars": 0, "tensors": 0}
    older = event_accumulator.EventAccumulator(str(folder), everything).Reload()
    newer = plugin_event_accumulator.EventAccumulator(str(folder), everything).Reload()
    assert older.file_version == newer.file_version == 2
    # A tag whose numbers were all dropped stays in the list.
    read = {tag: [(event.step, event.value) for event in older.Scalars(tag)] for tag in older.Tags()["scalars"]}
    also = {tag: [(event.step, float(tensor_util.make_ndarray(event.tensor_proto))) for event in newer.Tensors(tag)]
            for tag in newer.Tags()["tensors"]}
    np.testing.assert_equal(also, read)
    return {tag: values for tag, values in read.items() if values}


def in_lines(folder):
    """The same of the run's own files; numbers that JSON lacks are NaN."""
    tags = {}
    for line in metrics(folder):
        for name, value in line.items():
            if name not in ("step", "skipped", "nonfinite", "val_weights", "stopped_early"):
                tags.setdefault(name, []).append((line["step"], np.nan if value is None else float(np.float32(value))))
    statistics = folder / "statistics.jsonl"
    for line in map(json.loads, statistics.read_text().splitlines() if statistics.exists() else []):
        use = f".{line['use']}" if line["use"] > 1 else ""
        for name in {"sqnr", "saturated", "flushed", "amax"} & line.keys():
            tag = f"casts/{line['fqn']}/{line['gemm']}/{line['operand']}{use}/{name}"
            tags.setdefault(tag, []).append((line["step"], float(np.float32(line[name]))))
    return tags


def test_a_classifier_and_its_casts(tmp_path):
    data, val = write_random(tmp_path / "d.npz", 64), write_random(tmp_path / "v.npz", 11, seed=1)
    run("train", MLP, "--data", data, "--val-data", val, "--val-every", 3, *CE, "--recipe", "tensorwise", "--batch-size", 16,
        "--steps", 8, "--schedule", "linear:warmup=4", "--stats", "every=2", "--out", tmp_path / "run", "--tensorboard",
        tmp_path / "new" / "events")
    read = scalars(tmp_path / "new" / "events")
    assert read == in_lines(tmp_path / "run")
    assert {"loss", "grad_norm", "lr", "samples_per_second", "val_loss", "val_accuracy"} <= read.keys()
    assert [step for step, _ in read["val_loss"]] == [3, 6, 8]
    casts = [tag.split("/") for tag in read if tag.startswith("casts/")]
    assert {words[3] for words in casts} == {"input", "weight", "grad_output", "product"}
    assert {words[4] for words in casts} == {"sqnr", "saturated", "flushed", "amax"}
    assert len(list((tmp_path / "new" / "events").iterdir())) == 1


def test_tokens_in_float16(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=3)
    run("train", GPT, "--data", data, "--val-data", data, *CE, "--dtype", "float16", "--moments", "bfloat16", "--batch-size", 4,
        "--steps", 3, "--out", tmp_path / "run", "--tensorboard", tmp_path / "events")
    read = scalars(tmp_path / "events")
    # update_amax may be infinite, which JSON has not.
    assert {"tokens_per_second", "loss_scale", "update_amax", "val_perplexity"} <= read.keys()
    lines = in_lines(tmp_path / "run")
    del read["update_amax"], lines["update_amax"]
    assert read == lines


def test_numbers_that_are_not_finite(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    arrays = dict(np.load(data))
    arrays["x"][5, 0] = np.inf
    np.savez(data, **arrays)
    run("train", MLP, "--data", data, *CE, "--batch-size", 4, "--no-shuffle", "--steps", 4, "--out", tmp_path / "run",
        "--tensorboard", tmp_path / "events")
    losses = scalars(tmp_path / "events")["loss"]
    assert [step for step, _ in losses] == [1, 2, 3, 4]
    assert [bool(np.isfinite(value)) for _, value in losses] == [True, False, True, False]


def test_a_resumed_run_drops_the_steps_that_it_does_again(tmp_path):
    """Also if the process was killed while it wrote an event."""
    data, whole, parts, events = (tmp_path / name for name in ("d.npz", "whole", "parts", "events"))
    write_random(data, 64)
    run("train", MLP, "--data", data, "--val-data", data, "--val-every", 1, *CE, "--batch-size", 16, "--steps", 6,
        "--save-every", 3, "--out", whole, "--tensorboard", events)
    assert scalars(events) == in_lines(whole)
    assert "--tensorboard" not in json.loads((whole / "config.json").read_text())["flags"]
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / "checkpoints" / "step_00000006")
    (parts / "latest").write_text("step_00000003\n")
    [first] = events.iterdir()
    first.write_bytes(first.read_bytes()[:-5])
    run("train", "--resume", "--out", parts, "--steps", 5, "--tensorboard", events)
    assert scalars(events) == in_lines(parts)
    assert [step for step, _ in scalars(events)["loss"]] == [1, 2, 3, 4, 5]
    assert sorted(events.iterdir())[0] == first and len(list(events.iterdir())) == 2
    # The run's folder does not keep the option.
    run("train", "--resume", "--out", parts, "--steps", 6)
    assert len(list(events.iterdir())) == 2


def test_a_folder_that_can_not_be_made_ends_no_run(tmp_path):
    data = write_random(tmp_path / "d.npz", 64)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 16, "--steps", 4, "--save-every", 2]
    run(*flags, "--out", tmp_path / "plain")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    done = run(*flags, "--out", tmp_path / "run", "--tensorboard", tmp_path / "link" / "events")
    assert f"[{tmp_path}/link/events] can't be created: " in done.stderr
    assert "the run goes on and tries again" in done.stderr
    assert state_bytes(tmp_path / "run") == state_bytes(tmp_path / "plain")
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.parametrize("option", ["--logging-dir", "--report-to"])
def test_names_of_others(option):
    done = run("train", MLP, option, "x", "--out", "run", code=2)
    assert f"there is no option {option}; did you mean --tensorboard?" in done.stderr


def test_one_rank_writes(tmp_path):
    need_mpi()
    data = write_random(tmp_path / "d.npz", 64)
    ranks(2, "train", MLP, "--data", data, *CE, "--batch-size", 16, "--steps", 3, "--shard", "parameters", "--out",
          tmp_path / "run", "--tensorboard", tmp_path / "events")
    assert len(list((tmp_path / "events").iterdir())) == 1
    assert scalars(tmp_path / "events") == in_lines(tmp_path / "run")
