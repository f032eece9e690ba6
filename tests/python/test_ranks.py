# SPDX-License-Identifier: Apache-2.0
"""`train --mesh dp=N` under mpirun, against one process."""
import json
import os
import subprocess

import numpy as np
import onnx
import pytest
from program import BIN, FIXTURES, losses, metrics, run, write_batch, write_random
from rank_jobs import LAUNCHER, need_mpi
from test_training_info import by_blocks, data

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


@pytest.fixture(autouse=True)
def mpi():
    need_mpi()


def ranks(n, *arguments, code=0, mesh=None):
    """The program on n ranks, to its end."""
    done = subprocess.run([LAUNCHER, "-n", str(n), BIN, *map(str, arguments), "--mesh", mesh or f"dp={n}",
                           "--threads", "1"], capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == (code == 0), f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done


def gpt_data(path):
    """Samples that differ, with labels that do not count."""
    write_batch("nanogpt", path, repeat=3)
    arrays = dict(np.load(path))
    rng = np.random.default_rng(0)
    for name, values in arrays.items():
        for row in values:
            rng.shuffle(row)
    labels = arrays["labels"]
    labels[0, :] = -100
    labels[3, ::2] = -100
    np.savez(path, **arrays)
    return path


def close(a, b, rtol=1e-6):
    assert a.keys() == b.keys() and len(a) > 0
    np.testing.assert_allclose([a[i] for i in a], [b[i] for i in a], rtol=rtol)


@pytest.mark.parametrize("n,batch", [(2, 4), (3, 5)])
def test_losses_are_those_of_one_process(tmp_path, n, batch):
    flags = [GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--batch-size", batch, "--steps", 10]
    run("train", *flags, "--out", tmp_path / "one")
    done = ranks(n, "train", *flags, "--out", tmp_path / "many")
    close(losses(tmp_path / "one"), losses(tmp_path / "many"))
    # Only the first rank prints and writes.
    assert done.stdout.count("trained 10 steps") == 1
    assert len(metrics(tmp_path / "many")) == 10


def test_resumes_in_one_process_and_back(tmp_path):
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *CE, "--batch-size", 8]
    run("train", *flags, "--steps", 9, "--out", tmp_path / "one")
    out = tmp_path / "many"
    ranks(2, "train", *flags, "--steps", 3, "--out", out)
    run("train", "--resume", "--steps", 6, "--out", out)
    ranks(2, "train", "--resume", "--steps", 9, "--out", out)
    close(losses(tmp_path / "one"), losses(out))
    # Delayed scales are state of the checkpoint too.
    out = tmp_path / "delayed"
    ranks(2, "train", *flags, "--steps", 3, "--out", out, "--recipe", "delayed")
    run("train", "--resume", "--steps", 6, "--out", out)
    assert list(losses(out)) == [1, 2, 3, 4, 5, 6]


def test_validation_and_accumulation(tmp_path):
    data, val = write_random(tmp_path / "d.npz", 40), write_random(tmp_path / "v.npz", 11, seed=1)
    flags = [MLP, "--data", data, "--val-data", val, "--val-every", 2, *CE, "--batch-size", 8, "--grad-accum", 2,
             "--steps", 4]
    run("train", *flags, "--out", tmp_path / "one")
    ranks(2, "train", *flags, "--out", tmp_path / "many")
    close(losses(tmp_path / "one"), losses(tmp_path / "many"))
    validations = [[m["val_loss"] for m in metrics(tmp_path / f) if "val_loss" in m] for f in ("one", "many")]
    assert len(validations[0]) == 2
    np.testing.assert_allclose(*validations, rtol=1e-6)


@pytest.mark.parametrize("shard", ["none", "optimizer", "parameters"])
def test_accumulation_by_tokens_is_the_large_batch(tmp_path, shard):
    """Of twelve samples, some of whose labels do not count."""
    flags = ["train", GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--no-shuffle", "--optimizer", "sgd", "--lr", 0.1, "--steps", 3]
    run(*flags, "--batch-size", 12, "--out", tmp_path / "whole")
    ranks(2, *flags, "--batch-size", 4, "--grad-accum", 3, "--grad-accum-by", "tokens", "--shard", shard, "--out", tmp_path / "parts")
    close(losses(tmp_path / "whole"), losses(tmp_path / "parts"), rtol=1e-5)


@pytest.mark.parametrize("shard", ["none", "parameters"])
def test_all_ranks_end_early_together(tmp_path, shard):
    """Only the first rank validates if the state is whole. A rate of zero: no validation is better than the first."""
    data, val = write_random(tmp_path / "d.npz", 40), write_random(tmp_path / "v.npz", 11, seed=1)
    done = ranks(2, "train", MLP, "--data", data, "--val-data", val, "--val-every", 1, *CE, "--batch-size", 8, "--lr", 0,
                 "--early-stop", 2, "--steps", 9, "--shard", shard, "--out", tmp_path / "run")
    assert "the run ends after step 3 of 9" in done.stderr and "stopped_early" in done.stdout
    assert [m["step"] for m in metrics(tmp_path / "run") if m.get("stopped_early")] == [3]
    done = ranks(2, "train", "--resume", "--out", tmp_path / "run")
    assert done.stdout.count("the run ends after step 3 of 9") == 1


@pytest.mark.parametrize("n,shard", [(2, "parameters"), (3, "gradients"), (2, "optimizer")])
def test_shared_state_trains_and_resumes_as_whole_state(tmp_path, n, shard):
    val = write_batch("nanogpt", tmp_path / "v.npz", repeat=2)
    flags = [GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--batch-size", 6, "--val-data", val, "--val-every", 2,
             "--save-every", 2, "--recipe", "tensorwise"]
    ranks(n, "train", *flags, "--steps", 6, "--out", tmp_path / "whole")
    out = tmp_path / "parts"
    ranks(n, "train", *flags, "--steps", 4, "--out", out, "--shard", shard)
    newest = out / "checkpoints" / (out / "latest").read_text().strip()
    assert sorted(f.name for f in newest.glob("state*")) == \
        [f"state.{r:05d}.safetensors" for r in range(1, n)] + ["state.safetensors"]
    # A resumed run may divide the state in another way: here each rank keeps all of it.
    ranks(n, "train", "--resume", "--steps", 6, "--out", out)
    assert losses(out) == losses(tmp_path / "whole")
    validations = [[m["val_loss"] for m in metrics(tmp_path / f) if "val_loss" in m] for f in ("whole", "parts")]
    assert len(validations[0]) == 3
    np.testing.assert_allclose(*validations, rtol=1e-6)
    run("export", out, "-o", tmp_path / "m.onnx")


@pytest.mark.parametrize("mesh,n,shard", [
    ("tp=2", 2, "none"), ("dp=2,tp=2", 4, "none"), ("dp=2,tp=2", 4, "parameters"), ("replicate=2,dp=2", 4, "parameters")])
def test_meshes(tmp_path, mesh, n, shard):
    """Losses of one process; then one process goes on, and the mesh again."""
    val = write_batch("nanogpt", tmp_path / "v.npz", repeat=2)
    flags = [GPT, "--data", gpt_data(tmp_path / "d.npz"), *CE, "--batch-size", 8, "--val-data", val, "--val-every", 2]
    run("train", *flags, "--steps", 6, "--out", tmp_path / "one")
    out = tmp_path / "many"
    done = ranks(n, "train", *flags, "--steps", 2, "--out", out, "--shard", shard, mesh=mesh)
    assert done.stdout.count("trained 2 steps") == 1
    run("train", "--resume", "--steps", 4, "--out", out, "--shard", "none")
    ranks(n, "train", "--resume", "--steps", 6, "--out", out, "--shard", shard, mesh=mesh)
    close(losses(tmp_path / "one"), losses(out))
    validations = [[m["val_loss"] for m in metrics(tmp_path / f) if "val_loss" in m] for f in ("one", "many")]
    assert len(validations[0]) == 3
    np.testing.assert_allclose(*validations, rtol=1e-6)
    run("export", out, "-o", tmp_path / "m.onnx")


def test_inspect_tells_what_ranks_divide():
    text = run("inspect", GPT, *CE, "--mesh", "tp=2").stdout
    assert "Layers on the mesh tp=2: 10 of 11 are divided" in text
    layers = {(row["fqn"], row["part"]): row
              for row in json.loads(run("inspect", GPT, *CE, "--mesh", "tp=2", "--json").stdout)["layers"]}
    assert layers["blocks.0.fc.weight", "columns"]["reason"] == ""
    assert ("blocks.0.proj.weight", "rows") in layers and ("lm_head.weight", "table") in layers
    assert layers["wpe.weight", "whole"]["reason"] == "it has no row for each class of a divided loss"


def test_communication_is_hidden_or_exposed(tmp_path):
    flags = [MLP, "--data", write_random(tmp_path / "d.npz", 40), *CE, "--batch-size", 8, "--steps", 6]
    summaries = []
    for number, more in enumerate([["--profile-summary", "--profile", tmp_path / "trace.json"],
                                   ["--no-overlap", "--bucket-bytes", 0]]):
        done = ranks(2, "train", *flags, *more, "--out", tmp_path / str(number), "--json")
        summaries.append(json.loads(done.stdout))
    assert losses(tmp_path / "0") == losses(tmp_path / "1")
    for summary in summaries:
        times = [summary[key] for key in ("communication_ms", "hidden_ms", "exposed_ms")]
        assert min(times) >= 0 and times[0] > 0
    # Without overlap all of it is waited for.
    assert summaries[1]["exposed_ms"] == pytest.approx(summaries[1]["communication_ms"])
    assert summaries[1]["hidden_ms"] == pytest.approx(0, abs=1e-9)
    assert summaries[0]["profile"]["communication"]["ms"] > 0
    # The gradients run in a row of their own.
    events = json.loads((tmp_path / "trace.json").read_text())
    assert {e["tid"] for e in events if e["cat"] != "onnx_fp8.AllReduce"} == {1}
    assert 2 in {e["tid"] for e in events if e["cat"] == "onnx_fp8.AllReduce"}


def test_errors(tmp_path):
    data = write_random(tmp_path / "d.npz", 40)
    flags = [MLP, "--data", data, *CE, "--steps", 2, "--out", tmp_path / "run"]
    for mesh in ("dp=0", "dp=two", "pp=2", "dp", "dp=2,dp=2"):
        done = run("train", *flags, "--mesh", mesh, code=2)
        assert "--mesh: expected axes such as dp=4 or dp=2,tp=2 (replicate, dp, tp; at most 65536 ranks), " \
            f"got '{mesh}'" in done.stderr
    assert "--shard needs --mesh dp=N" in run("train", *flags, "--shard", "parameters", code=2).stderr
    text = run("train", *flags, "--mesh", "dp=2", code=1).stderr
    assert "[MPI] expected 2 ranks, the product of the mesh, got 1 from " in text
    other = os.environ | {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    text = run("train", *flags, "--mesh", "dp=2", code=1, env=other).stderr
    assert "[MPI] expected rank 1 of 2, as Open MPI has launched, got rank 0 of 1 from " in text
    text = run("train", *flags, code=1, env=other).stderr
    assert "expected --mesh dp=2 for the 2 processes that Open MPI has launched, got no mesh" in text
    text = ranks(2, "train", *flags, "--batch-size", 1, code=1).stderr
    assert "expected a sample for each of the 2 ranks, got a batch of 1 (--batch-size)" in text
    text = ranks(2, "train", *flags, mesh="dp=3", code=1).stderr
    assert "[MPI] expected 3 ranks, the product of the mesh, got 2 from " in text
    assert not (tmp_path / "run").exists()


def test_a_step_of_a_file_is_for_one_process(tmp_path):
    ours, other = tmp_path / "step.onnx", tmp_path / "other.onnx"
    run("rewrite", MLP, "-o", ours, *CE, "--shape", "batch=2")
    onnx.save(by_blocks(), other)
    flags = "--batch-size", 2, "--steps", 1, "--out", tmp_path / "run", "--data", tmp_path / "d.npz"
    write_random(tmp_path / "d.npz", 8)
    text = ranks(2, "train", ours, *flags, code=1).stderr
    assert "expected the model that the step was made from for several ranks, with the options of the step" in text, text
    data(tmp_path)
    text = ranks(2, "train", other, *flags, code=1).stderr
    assert "expected one process, because a file has no sums over ranks" in text, text
