# SPDX-License-Identifier: Apache-2.0
"""`train`: its output, how it goes on, and its errors."""
import json
import resource

import numpy as np
import pytest
from program import FIXTURES, losses, metrics, reference, run, start, state_bytes, write_batch, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


@pytest.mark.parametrize("case,batch", [("mlp", 16), ("nanogpt", 4)])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_follows_pytorchs_losses(tmp_path, case, batch, optimizer):
    """Every step on the reference's one batch, with the default settings."""
    data = write_batch(case, tmp_path / "d.npz")
    truth = json.loads((FIXTURES / case / "reference.json").read_text())
    out = tmp_path / "run"
    run("train", FIXTURES / case / "d18.onnx", "--data", data, *CE, "--batch-size", batch, "--steps", 20,
        "--optimizer", optimizer, "--lr", truth[optimizer]["lr"], "--out", out)
    ours = [losses(out)[i] for i in range(1, 21)]
    np.testing.assert_allclose(ours, reference(case)[f"{optimizer}.losses"][:20], rtol=1e-4)


def test_metrics_have_one_line_a_step(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    val = write_random(tmp_path / "v.npz", 11, seed=1)
    out = tmp_path / "run"
    done = run("train", MLP, "--data", data, "--val-data", val, "--val-every", 4, *CE, "--batch-size", 8,
               "--steps", 10, "--schedule", "linear:warmup=5", "--out", out, "--json")
    lines = metrics(out)
    steps = [m for m in lines if "loss" in m]
    assert [m["step"] for m in steps] == list(range(1, 11))
    for m in steps:
        assert m.keys() == {"step", "loss", "grad_norm", "lr", "samples_per_second"}
    assert steps[0]["lr"] == pytest.approx(1e-3 / 5) and steps[4]["lr"] == pytest.approx(1e-3)
    validations = [m for m in lines if "val_loss" in m]
    assert [m["step"] for m in validations] == [4, 8, 10]
    assert all(0 <= m["val_accuracy"] <= 1 for m in validations)
    summary = json.loads(done.stdout)
    assert summary["steps"] == 10 and summary["skipped_steps"] == 0
    assert summary["val_loss"] == validations[-1]["val_loss"]
    assert summary["peak_bytes"] > summary["arena_bytes"] > 0
    assert "step 1/10" in done.stderr
    last = next(line for line in done.stderr.splitlines() if "step 10/10  loss" in line)
    assert last.endswith("ETA 0.0 s")


def test_a_warmup_longer_than_the_run_is_said(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 8, "--schedule", "cosine:warmup=10", "--lr", 0.01]
    done = run(*flags, "--steps", 4, "--out", tmp_path / "short")
    assert "the warm-up takes 10 steps and the run 4: it ends at a rate of 0.004 (--schedule)" in done.stderr
    assert "warm-up takes" not in run(*flags, "--steps", 10, "--out", tmp_path / "long").stderr


def test_a_run_keeps_the_recipe_of_a_file(tmp_path):
    """--resume still uses it although the file is gone."""
    data = write_random(tmp_path / "d.npz", 40)
    (tmp_path / "mine.json").write_text('{"recipe": "delayed", "amax_history": 4, "margin": 1}')
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 8, "--recipe", "mine.json", "--recipe-for",
             "*=mine.json"]
    run(*flags, "--steps", 6, "--out", tmp_path / "whole", cwd=tmp_path)
    run(*flags, "--steps", 3, "--out", tmp_path / "parts", cwd=tmp_path)
    (tmp_path / "mine.json").unlink()
    run("train", "--resume", "--out", tmp_path / "parts", "--steps", 6)
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
    assert json.loads((tmp_path / "parts/config.json").read_text())["flags"]["--recipe"] == [
        "i:del4_ten_e4m3,w:del4_ten_e4m3,go:del4_ten_e5m2,margin:1"]


def test_more_steps_and_the_whole_command_line(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 8]
    run(*flags, "--steps", 9, "--out", tmp_path / "whole")
    run(*flags, "--steps", 4, "--out", tmp_path / "parts")
    run(*flags, "--steps", 9, "--out", tmp_path / "parts", "--resume")
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "whole")
    done = run(*flags, "--steps", 9, "--out", tmp_path / "parts", "--resume")
    assert "is finished" in done.stdout
    done = run("train", "--resume", "--out", tmp_path / "parts")
    assert "9 of 9 steps" in done.stdout


def test_gradient_accumulation_is_the_larger_batch(tmp_path):
    data = write_random(tmp_path / "d.npz", 48)
    flags = ["train", MLP, "--data", data, *CE, "--optimizer", "sgd", "--lr", 0.1, "--steps", 3, "--no-shuffle"]
    run(*flags, "--batch-size", 16, "--out", tmp_path / "whole")
    run(*flags, "--batch-size", 4, "--grad-accum", 4, "--out", tmp_path / "parts")
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert [parts[i] for i in (1, 2, 3)] == pytest.approx([whole[i] for i in (1, 2, 3)], rel=1e-5)


def test_accumulation_by_tokens_is_the_larger_batch(tmp_path):
    """Three of eight labels of the first batch do not count."""
    data = write_random(tmp_path / "d.npz", 16)
    arrays = dict(np.load(data))
    arrays["labels"][:3] = -100
    np.savez(data, **arrays)
    flags = ["train", MLP, "--data", data, *CE, "--optimizer", "sgd", "--lr", 0.1, "--steps", 3, "--no-shuffle"]
    run(*flags, "--batch-size", 16, "--out", tmp_path / "whole")
    parts = ["--batch-size", 8, "--grad-accum", 2]
    run(*flags, *parts, "--grad-accum-by", "tokens", "--out", tmp_path / "tokens")
    run(*flags, *parts, "--out", tmp_path / "batches")
    whole = [losses(tmp_path / "whole")[i] for i in (1, 2, 3)]
    assert [losses(tmp_path / "tokens")[i] for i in (1, 2, 3)] == pytest.approx(whole, rel=1e-5)
    assert [losses(tmp_path / "batches")[i] for i in (1, 2, 3)] != pytest.approx(whole, rel=1e-3)
    done = run("train", "--resume", "--out", tmp_path / "batches", "--steps", 4, "--grad-accum-by", "tokens", code=1)
    assert "was started with grad_accum_by batches, got tokens (--grad-accum-by)" in done.stderr


def test_an_epoch_ends_with_a_smaller_group(tmp_path):
    """Five batches: two steps of two and one of one."""
    flags = ["train", MLP, "--data", write_random(tmp_path / "d.npz", 40), *CE, "--batch-size", 8, "--grad-accum", 2]
    done = run(*flags, "--epochs", 2, "--out", tmp_path / "run")
    assert "an epoch has 5 batches, and its last step takes 1 of 2 (--grad-accum)" in done.stderr
    assert list(losses(tmp_path / "run")) == [1, 2, 3, 4, 5, 6]
    run(*flags, "--steps", 4, "--out", tmp_path / "parts")
    run("train", "--resume", "--steps", 6, "--out", tmp_path / "parts")
    assert state_bytes(tmp_path / "parts") == state_bytes(tmp_path / "run")


def test_folder_of_a_run_is_refused(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    flags = ["train", MLP, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run"]
    run(*flags)
    before = state_bytes(tmp_path / "run")
    done = run(*flags, code=1)
    assert "--resume" in done.stderr and "holds a run" in done.stderr
    assert state_bytes(tmp_path / "run") == before


def test_resume_without_checkpoint_begins(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    flags = ["train", MLP, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run", "--resume"]
    done = run(*flags)
    assert "starts at the beginning" in done.stderr
    assert sorted(losses(tmp_path / "run")) == [1, 2]


@pytest.mark.parametrize("flag,value", [("--batch-size", 2), ("--seed", 1), ("--grad-accum", 2)])
def test_resume_refuses_other_batches(tmp_path, flag, value):
    data = write_random(tmp_path / "d.npz", 8)
    run("train", MLP, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run", "--batch-size", 4)
    done = run("train", "--resume", "--out", tmp_path / "run", flag, value, "--steps", 4, code=1)
    assert flag in done.stderr
    assert "another" not in done.stderr


def test_resume_refuses_another_model(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    run("train", MLP, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run")
    other = FIXTURES / "mlp" / "l17.onnx"
    done = run("train", other, "--resume", "--out", tmp_path / "run", "--steps", 4, code=1)
    assert "is not the model of this run" in done.stderr


def test_a_killed_run_goes_on(tmp_path):
    data = write_random(tmp_path / "d.npz", 64)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 8, "--threads", 1, "--save-every", 1]
    process = start(*flags, "--steps", 100000000, "--out", tmp_path / "run")
    while "step 1/" not in process.stderr.readline():
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=60)
    total = max(losses(tmp_path / "run"), default=0) + 3
    run("train", *flags[1:], "--resume", "--steps", total, "--out", tmp_path / "run")
    run(*flags, "--steps", total, "--out", tmp_path / "whole")
    assert state_bytes(tmp_path / "run") == state_bytes(tmp_path / "whole")
    assert not list((tmp_path / "run").rglob("*.tmp*"))


def limit_file_size(limit):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def test_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    """To the program, a limit on the size of files is like a full disk."""
    data = write_random(tmp_path / "d.npz", 64)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 2, "--out", out)
    before = state_bytes(out)
    assert len(before) > 24000
    done = run("train", "--resume", "--out", out, "--steps", 8, "--save-every", 3, code=1,
               preexec_fn=limit_file_size(24000))
    assert "step 3 can't be saved" in done.stderr and "the checkpoint of step 2 stays" in done.stderr
    assert "the run goes on" in done.stderr
    assert "the last step is not saved" in done.stderr
    assert state_bytes(out) == before
    assert sorted(losses(out)) == list(range(1, 9))
    done = run("train", "--resume", "--out", out, "--steps", 8)
    assert sorted(losses(out)) == list(range(1, 9))
    run("train", MLP, "--data", data, *CE, "--steps", 8, "--out", tmp_path / "whole")
    assert state_bytes(out) == state_bytes(tmp_path / "whole")


def test_full_disk_under_the_metrics_is_caught_up(tmp_path):
    data = write_random(tmp_path / "d.npz", 64)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 2, "--out", out)
    done = run("train", "--resume", "--out", out, "--steps", 6, code=1, preexec_fn=limit_file_size(500))
    assert "metrics.jsonl" in done.stderr
    lines = (out / "metrics.jsonl").read_text()
    assert lines.endswith("\n") and len(lines) <= 500
    run("train", "--resume", "--out", out, "--steps", 6)
    assert sorted(losses(out)) == list(range(1, 7))


def test_a_step_that_is_not_finite_is_skipped(tmp_path):
    data = tmp_path / "d.npz"
    write_random(data, 8)
    arrays = dict(np.load(data))
    arrays["x"][5, 0] = np.inf
    np.savez(data, **arrays)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 4, "--no-shuffle", "--steps", 4]
    done = run(*flags, "--out", tmp_path / "run", "--json")
    assert json.loads(done.stdout)["skipped_steps"] == 2
    assert "step 2 is skipped, nothing changed" in done.stderr
    lines = metrics(tmp_path / "run")
    assert [m.get("skipped", False) for m in lines] == [False, True, False, True]


def test_freeze_and_train(tmp_path):
    from safetensors.numpy import load_file
    data = write_random(tmp_path / "d.npz", 8)
    names = json.loads((FIXTURES / "mlp" / "d18.params.json").read_text()).keys()
    kept = sorted(names)[0]
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 2, "--freeze", "*", "--train", kept, "--out", out)
    run("export", out, "-o", tmp_path / "after.safetensors")
    run("train", MLP, "--data", data, *CE, "--steps", 1, "--lr", 0, "--weight-decay", 0, "--out", tmp_path / "still")
    run("export", tmp_path / "still", "-o", tmp_path / "before.safetensors")
    before, after = load_file(tmp_path / "before.safetensors"), load_file(tmp_path / "after.safetensors")
    assert {k for k in before if not np.array_equal(before[k], after[k])} == {kept}
    done = run("train", MLP, "--data", data, *CE, "--steps", 1, "--freeze", "nothing*", "--out", tmp_path / "x", code=1)
    assert "nothing*" in done.stderr


def test_matrices_alone_decay(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    flags = [MLP, *CE, "--weight-decay", 0.5]
    steps = ["--data", data, "--batch-size", 8, "--lr", 0.1, "--steps", 3]
    still = "--decay matrices: 3 of 6 trained tensors do not decay: fc1.bias, fc2.bias, head.bias"
    assert still in run("train", *flags, *steps, "--decay", "matrices", "--out", tmp_path / "rule").stderr
    done = run("train", *flags, *steps, "--group", "*.bias=weight_decay:0", "--out", tmp_path / "named")
    assert "do not decay" not in done.stderr
    assert state_bytes(tmp_path / "rule") == state_bytes(tmp_path / "named")
    run("train", *flags, *steps, "--out", tmp_path / "all")
    assert state_bytes(tmp_path / "all") != state_bytes(tmp_path / "named")
    # A group's decay comes first.
    report = json.loads(run("inspect", *flags, "--decay", "matrices", "--group", "fc1.bias=weight_decay:0.5", "--group",
                            "fc2.weight=weight_decay:0.25", "--json").stdout)
    remarks = {row["fqn"]: row.get("remark", "") for row in report["initializers"] if row["role"] == "trained"}
    assert {name: text.split("; ")[-1] for name, text in remarks.items() if "decay" in text} == {
        "fc2.bias": "weight decay 0", "head.bias": "weight decay 0", "fc2.weight": "weight decay 0.25"}
    assert any("2 of 6 trained tensors do not decay: fc2.bias, head.bias" in note for note in report["notes"])


def test_layers_alone_decay(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    flags = [MLP, *CE, "--weight-decay", 0.5]
    steps = ["--data", data, "--batch-size", 8, "--lr", 0.1, "--steps", 3]
    still = "--decay layers: 3 of 6 trained tensors do not decay (3 biases): fc1.bias, fc2.bias, head.bias"
    assert still in run("train", *flags, *steps, "--decay", "layers", "--out", tmp_path / "rule").stderr
    run("train", *flags, *steps, "--group", "*.bias=weight_decay:0", "--out", tmp_path / "named")
    assert state_bytes(tmp_path / "rule") == state_bytes(tmp_path / "named")
    report = json.loads(run("inspect", *flags, "--decay", "layers", "--json").stdout)
    remarks = {row["fqn"]: row.get("remark", "").split("; ")[-1] for row in report["initializers"] if row["role"] == "trained"}
    assert {name: text for name, text in remarks.items() if "decay" in text} == {
        f"{layer}.bias": "weight decay 0 (biases)" for layer in ("fc1", "fc2", "head")}
    assert any(still in note for note in report["notes"])


def test_embeddings_and_norms_do_not_decay(tmp_path):
    """Their tables have two axes; the last layer of this fixture has a matrix of its own or shares the table."""
    report = json.loads(run("inspect", GPT, *CE, "--weight-decay", 0.5, "--decay", "layers", "--json").stdout)
    trained = [row for row in report["initializers"] if row["role"] == "trained"]
    still = {row["fqn"]: row["remark"].split("; ")[-1] for row in trained if "weight decay 0" in row.get("remark", "")}
    assert still
    layers = {row["fqn"] for row in report["gemms"]}
    for row in trained:
        assert (row["fqn"] in layers) == (row["fqn"] not in still), row["fqn"]
    assert "weight decay 0 (of norms)" in still.values() or "weight decay 0 (factors)" in still.values()


def test_averages_of_weights_are_told_exported_and_dropped(tmp_path):
    words = ["inspect", MLP, *CE, "--shape", "batch=8", "--json"]
    memory = [json.loads(run(*words, "--ema", decay).stdout)["memory"] for decay in (0, 0.9)]
    assert memory[0]["averages"] == 0 and memory[1]["averages"] > 0
    assert memory[1]["moments"] == memory[0]["moments"]
    data = write_random(tmp_path / "d.npz", 40)
    out = tmp_path / "run"
    done = run("train", MLP, "--data", data, *CE, "--batch-size", 8, "--ema", "0.75,every=2", "--steps", 3, "--out", out)
    said = f"--ema 0.75: averages of weights: 6 ({memory[1]['averages']} bytes), moved by 1 of 2 updates"
    assert said in done.stderr
    done = run("export", out, "--ema", "-o", tmp_path / "w.safetensors")
    assert "the averages of the weights of step 3" in done.stdout
    done = run("train", "--resume", "--out", out, "--steps", 4, "--ema", 0)
    assert "6 averages of weights are dropped" in done.stderr
    assert "expected a run with --ema" in run("eval", out, "--data", data, "--eval-with", "ema", code=2).stderr


def test_init_and_bad_data(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    flags = [MLP, "--data", data, *CE, "--batch-size", 8]
    run("train", *flags, "--steps", 3, "--out", tmp_path / "run")
    run("export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    run("train", *flags, "--steps", 1, "--init", tmp_path / "w.safetensors", "--out", tmp_path / "warm")
    evaluated = json.loads(run("eval", tmp_path / "run", "--data", data, "--json").stdout)["loss"]
    assert losses(tmp_path / "warm")[1] == pytest.approx(evaluated, rel=1e-6)
    # The file may be removed: a resumed run has its weights.
    (tmp_path / "w.safetensors").unlink()
    run("train", "--resume", "--out", tmp_path / "warm", "--steps", 2)

    arrays = dict(np.load(data))
    for wrong, message in [({"x": arrays["x"]}, "labels"), ({**arrays, "labels": arrays["labels"][:5]}, "samples"),
                           ({**arrays, "x": arrays["x"][:, :5]}, "x"),
                           ({**arrays, "labels": arrays["labels"] * 0 + 1000}, "1000")]:
        np.savez(tmp_path / "wrong.npz", **wrong)
        done = run("train", MLP, "--data", tmp_path / "wrong.npz", *CE, "--steps", 1, "--batch-size", 4,
                   "--out", tmp_path / "wrong", code=1)
        assert message in done.stderr
    done = run("train", *flags[:-1], 64, "--steps", 1, "--out", tmp_path / "wrong", code=1)
    assert "at least one batch of 64" in done.stderr


@pytest.mark.parametrize("text,message", [
    ("", "expected a run's configuration"),
    ("[1]", "expected a run's configuration"),
    ("{", "expected a run's configuration"),
    ('{"format": 3}', "of format 2, got 3"),
    ('{"format": "x"}', "expected a run's configuration"),
    ('{"format": 2}', "expected a run's configuration"),
    ('{"format": 2, "model": {"file": "/etc/passwd", "crc32": "0"}, "flags": {}}', "a model inside the run's folder"),
    ('{"format": 2, "model": {"file": "m", "crc32": "0"}, "flags": {"--steps": 3}}', "expected a run's configuration"),
])
def test_damaged_configuration(tmp_path, text, message):
    data = write_random(tmp_path / "d.npz", 8)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 1, "--out", out)
    (out / "config.json").write_text(text)
    for command in (["eval", out, "--data", data], ["export", out, "-o", tmp_path / "t.onnx"],
                    ["train", "--resume", "--out", out]):
        assert message in run(*command, code=1).stderr


def test_choices_for_speed_are_of_one_start(tmp_path):
    """A run does not keep them: on the CPU they would be errors."""
    data = write_random(tmp_path / "d.npz", 8)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 1, "--out", out)
    config = json.loads((out / "config.json").read_text())
    config.pop("crc32")
    config["flags"] |= {"--tune": [], "--nondeterministic": []}
    (out / "config.json").write_text(json.dumps(config))
    run("eval", out, "--data", data)
    run("train", "--resume", "--out", out, "--steps", 2)
    assert not {"--tune", "--nondeterministic"} & set(json.loads((out / "config.json").read_text())["flags"])


def test_damaged_run(tmp_path):
    data = write_random(tmp_path / "d.npz", 8)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, *CE, "--steps", 1, "--out", out)
    config = json.loads((out / "config.json").read_text())
    config.pop("crc32")
    good = json.dumps(config)
    for flag in ("--bogus", "--lr", "--help"):
        config = json.loads(good)
        config["flags"][flag] = ["fast"]
        (out / "config.json").write_text(json.dumps(config))
        assert flag in run("eval", out, "--data", data, code=1).stderr
    (out / "config.json").write_text(good)
    run("eval", out, "--data", data)
    state = next(out.glob("checkpoints/*/state.safetensors"))
    state.write_bytes(state.read_bytes()[:-10])
    assert "truncated" in run("eval", out, "--data", data, code=1).stderr
    with open(out / config["model"]["file"], "ab") as file:
        file.write(b"x")
    for command in (["eval", out, "--data", data], ["train", "--resume", "--out", out]):
        assert "not the file that the run was started with" in run(*command, code=1).stderr


def test_memory_report(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=2)
    flags = [GPT, "--data", data, *CE, "--batch-size", 8, "--steps", 2, "--memory-report", "--threads", 1]
    kinds = {}
    for recipe in ("off", "tensorwise", "delayed"):
        done = json.loads(run("train", *flags, "--recipe", recipe, "--out", tmp_path / recipe, "--json").stdout)
        memory = done["memory"]
        kinds[recipe] = memory["kinds"]
        in_arena = sum(memory["kinds"][k] for k in ("saved_activations", "fp8_copies", "gradients_of_parameters",
                                                    "gradients_of_activations", "temporaries"))
        # Each value takes a multiple of 64 bytes.
        assert in_arena <= memory["arena_live_bytes"] <= in_arena + 64 * len(memory["values"])
        assert memory["arena_live_bytes"] <= memory["arena_bytes"] == done["arena_bytes"]
        assert sum(v["bytes"] for v in memory["values"]) == sum(memory["kinds"].values())
        assert memory["peak_bytes"] >= done["peak_bytes"] > memory["other_bytes"] > 0
        # The batch's state: parameters, two moments of each, two counters.
        parameters = memory["kinds"]["parameters"]
        assert memory["kinds"]["optimizer_state"] == 2 * parameters + 16
        assert memory["gradients_held_bytes"] == parameters
        assert done["state_bytes"] == sum(memory["kinds"][k] for k in ("parameters", "optimizer_state", "fp8_state"))
    assert kinds["off"]["fp8_copies"] == kinds["off"]["fp8_state"] == kinds["tensorwise"]["fp8_state"] == 0
    assert kinds["delayed"]["fp8_state"] > 0
    # The backward keeps only the 8-bit copy of a linear layer's input.
    assert kinds["tensorwise"]["fp8_copies"] > 0
    assert kinds["tensorwise"]["saved_activations"] < kinds["off"]["saved_activations"]
    text = run("train", *flags, "--recipe", "tensorwise", "--out", tmp_path / "text").stdout
    for words in ("Memory where the step needs most of it: node ", "saved activations", "peak of the process",
                  "all wait for the last", "Largest values there", "blocks.0.fc.weight"):
        assert words in text, words


def test_profile_summary(tmp_path):
    data = write_batch("nanogpt", tmp_path / "d.npz", repeat=2)
    flags = [GPT, "--data", data, *CE, "--batch-size", 4, "--recipe", "tensorwise", "--filter-fqns", "lm_head",
             "--profile-summary", "--threads", 1]
    profile = json.loads(run("train", *flags, "--steps", 4, "--out", tmp_path / "a", "--json").stdout)["profile"]
    assert profile["steps"] == 3 and not profile["cold"]
    assert {row["role"] for row in profile["roles"]} == {
        "forward", "dgrad", "wgrad", "quantize", "norm", "attention", "optimizer", "other"}
    for rows in (profile["roles"], profile["ops"], profile["nodes"]):
        assert [row["ms"] for row in rows] == sorted((row["ms"] for row in rows), reverse=True)
        assert sum(row["ms"] for row in rows) == pytest.approx(profile["ms_in_nodes"])
    assert sum(row["share"] for row in profile["roles"]) == pytest.approx(1)
    assert 0 < profile["ms_in_nodes"] <= profile["ms"]
    assert all(value > 0 for value in profile["peaks"].values())
    # 36 products in FP8 (four layers, twice, three roles each, without lm_head).
    calls = {row["op"]: row["calls"] for row in profile["ops"]}
    gemms = json.loads(run("inspect", GPT, "--json", *CE, "--recipe", "tensorwise", "--filter-fqns",
                           "lm_head").stdout)["gemms"]
    assert calls["onnx_fp8.ScaledMatMul"] + calls["onnx_fp8.ScaledMatMulBias"] == sum(g["fp8"] for g in gemms)
    head = {n["role"]: n for n in profile["nodes"] if n["fqn"] == "lm_head.weight"}
    assert head.keys() == {"forward", "dgrad", "wgrad"} and all(n["op"] == "Gemm" for n in head.values())
    for node in profile["nodes"]:
        peak = profile["peaks"]["fp8_gflops" if "ScaledMatMul" in node["op"] else "gflops"]
        assert node["flops_share"] == pytest.approx(node["gflops"] / peak)
    text = run("train", *flags, "--steps", 1, "--out", tmp_path / "b").stdout
    for words in ("of the first step alone", "Longest nodes", "GB/s", "quantize"):
        assert words in text, words


def test_a_timeline_is_of_a_gpu(tmp_path):
    data = write_random(tmp_path / "d.npz", 16)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 8, "--steps", 2, "--out", tmp_path / "run"]
    done = run(*flags, "--timeline", tmp_path / "t.json", code=2)
    assert "--timeline: expected the provider cuda, got cpu" in done.stderr and "--profile writes" in done.stderr
    done = run(*flags, "--timeline-steps", 2, code=2)
    assert "--timeline-steps needs --timeline" in done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "t.json").exists()


def test_a_resumed_run_reports_only_if_asked(tmp_path):
    data = write_random(tmp_path / "d.npz", 16)
    flags = [MLP, "--data", data, *CE, "--batch-size", 8, "--out", tmp_path / "run"]
    run("train", *flags, "--steps", 2, "--memory-report", "--profile-summary")
    held = json.loads((tmp_path / "run" / "config.json").read_text())["flags"]
    assert "--memory-report" not in held and "--profile-summary" not in held
    resume = ["train", "--resume", "--out", tmp_path / "run"]
    assert "Memory where" not in run(*resume, "--steps", 3).stdout
    assert "Memory where" in run(*resume, "--steps", 4, "--memory-report").stdout


def test_accumulate_as_a_hopper_gpu(tmp_path):
    """Sums of FP8 products differ, but little, from those in float32; fp32 products stay the same."""
    data = write_random(tmp_path / "d.npz", 64)
    for recipe in ("off", "tensorwise", "rowwise", "mxfp8"):
        for accumulate in ("float32", "hopper"):
            run("train", MLP, "--data", data, *CE, "--batch-size", 16, "--steps", 8, "--recipe", recipe,
                "--accumulate", accumulate, "--out", tmp_path / f"{recipe}_{accumulate}")
        plain, hopper = (np.array(list(losses(tmp_path / f"{recipe}_{kind}").values())) for kind in ("float32", "hopper"))
        np.testing.assert_allclose(hopper, plain, rtol=5e-3)
        assert np.array_equal(hopper, plain) == (recipe == "off"), recipe
        model = MLP
        if recipe != "off":
            model = tmp_path / f"{recipe}.onnx"
            run("rewrite", MLP, "-o", model, "--recipe", recipe)
        outputs = []
        for accumulate in ("float32", "hopper"):
            run("run", model, "--data", data, "--accumulate", accumulate, "-o", tmp_path / "out.npz")
            outputs.append(np.load(tmp_path / "out.npz")["logits"])
        assert np.linalg.norm(outputs[1] - outputs[0]) <= 1e-2 * np.linalg.norm(outputs[0])
        assert np.array_equal(*outputs) == (recipe == "off"), recipe
    resumed = tmp_path / "tensorwise_hopper"
    run("train", "--resume", "--out", resumed, "--steps", 9)  # as it began
    for kind, flags in [("same", ["--accumulate", "hopper"]), ("other", [])]:
        run("train", MLP, "--data", data, *CE, "--batch-size", 16, "--steps", 9, "--recipe", "tensorwise", *flags,
            "--out", tmp_path / kind)
    assert losses(resumed) == losses(tmp_path / "same") != losses(tmp_path / "other")


def spoil(path, sample):
    """The data with a label that is no class."""
    with np.load(path) as data:
        arrays = dict(data)
    arrays["labels"][sample] = 1000
    np.savez(path, **arrays)
    return path


def test_an_error_in_validation_keeps_the_steps(tmp_path):
    data, good = write_random(tmp_path / "d.npz", 40), write_random(tmp_path / "v.npz", 8, seed=1)
    bad = spoil(write_random(tmp_path / "bad.npz", 8, seed=1), 5)
    flags = ["train", MLP, "--data", data, "--val-every", 3, *CE, "--batch-size", 8, "--steps", 5, "--threads", 2]
    run(*flags, "--val-data", good, "--out", tmp_path / "whole")
    parts = tmp_path / "parts"
    for resume in ([], ["--resume"]):  # it comes first again
        done = run(*flags, "--val-data", bad, "--out", parts, *resume, code=1)
        assert "1000" in done.stderr
        assert ("an error ends the run; step 3 is saved" in done.stderr) == (not resume)
        assert (parts / "latest").read_text() == "step_00000003\n"
        assert [m["step"] for m in metrics(parts)] == [1, 2, 3]
    run("train", "--resume", "--out", parts, "--val-data", good)
    assert state_bytes(parts) == state_bytes(tmp_path / "whole")
    keys = ("step", "loss", "val_loss")
    assert [[m.get(k) for k in keys] for m in metrics(parts)] == [
        [m.get(k) for k in keys] for m in metrics(tmp_path / "whole")]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_an_error_in_a_step_keeps_those_before(tmp_path, accumulation):
    data = spoil(write_random(tmp_path / "d.npz", 32), 30)
    done = run("train", MLP, "--data", data, *CE, "--batch-size", 8 // accumulation, "--grad-accum", accumulation,
               "--no-shuffle", "--steps", 9, "--out", tmp_path / "run", code=1)
    assert "1000" in done.stderr and "step 3 is saved, --resume goes on from there" in done.stderr
    manifest = json.loads((tmp_path / "run/checkpoints/step_00000003/manifest.json").read_text())
    assert manifest["step"] == 3 and manifest["next_batch"] == 3 * accumulation
    assert not any("micro" in name for name in manifest["tensors"])


def test_an_error_in_the_first_step_leaves_no_checkpoint(tmp_path):
    data = spoil(write_random(tmp_path / "d.npz", 8), 0)
    run("train", MLP, "--data", data, *CE, "--batch-size", 8, "--steps", 2, "--out", tmp_path / "run", code=1)
    assert not (tmp_path / "run/latest").exists()
