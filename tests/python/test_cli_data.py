# SPDX-License-Identifier: Apache-2.0
"""What `train` reads: files, folders and documents, and the order of their samples."""
import json

import numpy as np
import onnx
import pytest
from program import FIXTURES, losses, metrics, run, write_random

MLP = FIXTURES / "mlp" / "d18.onnx"
GPT = FIXTURES / "nanogpt" / "d18.onnx"
CE = ["--loss", "cross_entropy"]


@pytest.mark.parametrize("size", [1, 4, 11, 50])
def test_batches_of_a_validation_have_their_own_size(tmp_path, size):
    """Eleven samples, of which three labels do not count: the last batch has the weight of its labels."""
    data, val = write_random(tmp_path / "d.npz", 40), write_random(tmp_path / "v.npz", 11, seed=1)
    arrays = dict(np.load(val))
    arrays["labels"][[0, 1, 9]] = -100
    np.savez(val, **arrays)
    out = tmp_path / "run"
    run("train", MLP, "--data", data, "--val-data", val, "--val-batch-size", size, *CE, "--batch-size", 8, "--steps", 2, "--out", out)
    [validation] = [m for m in metrics(out) if "val_loss" in m]
    truth = json.loads(run("eval", out, "--data", val, "--batch-size", 11, "--json").stdout)
    assert validation["val_loss"] == pytest.approx(truth["loss"], rel=1e-6)
    assert validation["val_accuracy"] == pytest.approx(truth["accuracy"])


def test_token_shards_go_on_where_they_were(tmp_path):
    """A folder with an index, shuffled by block: a run that is resumed twice is that of one piece, over an epoch's end."""
    shards = tmp_path / "shards"
    shards.mkdir()
    rng, listed = np.random.default_rng(0), []
    for i, count in enumerate((300, 170, 90)):
        rng.integers(0, 61, count).astype("<u2").tofile(shards / f"{i}.bin")
        listed.insert(0, {"file": f"{i}.bin", "tokens": count})
    index = {"token_dtype": "uint16", "shards": listed}
    (shards / "index.json").write_text(json.dumps(index))
    flags = ["--data", shards, "--seq-len", 16, *CE, "--batch-size", 4, "--shuffle-block", 5, "--seed", 3]
    run("train", GPT, *flags, "--steps", 11, "--out", tmp_path / "whole")
    run("train", GPT, *flags, "--steps", 4, "--out", tmp_path / "parts")
    for steps in (9, 11):
        run("train", "--resume", "--steps", steps, "--out", tmp_path / "parts")
    both = [losses(tmp_path / name) for name in ("whole", "parts")]
    assert both[0] == both[1] and len(both[0]) == 11
    # In the order of the index, as files.
    named = ["--data", *(shards / shard["file"] for shard in listed)]
    run("train", GPT, *named, *flags[2:], "--steps", 11, "--out", tmp_path / "files")
    assert losses(tmp_path / "files") == both[0]
    done = run("train", "--resume", "--steps", 12, "--shuffle-block", 6, "--out", tmp_path / "parts", code=1)
    assert "--shuffle-block" in done.stderr
    index["shards"].pop()
    (shards / "index.json").write_text(json.dumps(index))
    done = run("train", "--resume", "--steps", 12, "--out", tmp_path / "parts", code=1)
    assert "was started with samples" in done.stderr


def test_weights_of_sources_go_on_where_they_were(tmp_path):
    data = [write_random(tmp_path / f"{name}.npz", n, seed=n) for name, n in (("a", 24), ("b", 40))]
    flags = ["--data", *data, *CE, "--batch-size", 4, "--seed", 3, "--data-weights", "0.75,0.25"]
    done = run("train", MLP, *flags, "--steps", 9, "--out", tmp_path / "whole")
    assert "a.npz] gives 0.75 of" in done.stderr and "passes over its 24" in done.stderr
    run("train", MLP, *flags, "--steps", 4, "--out", tmp_path / "parts")
    run("train", "--resume", "--steps", 9, "--out", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    run("train", MLP, *flags[:-2], "--steps", 9, "--out", tmp_path / "other")
    assert losses(tmp_path / "other") != losses(tmp_path / "whole")
    for weights, text in (("1", "expected a number for each item of --data, 2, got 1"), ("1,0", "expected numbers above 0, got 0"),
                          ("1,x", "expected a number, got")):
        done = run("train", MLP, *flags[:-1], weights, "--steps", 9, "--out", tmp_path / "bad", code=None)
        assert done.returncode != 0 and text in done.stderr, done.stderr
    done = run("train", "--resume", "--data-weights", "0.5,0.5", "--steps", 12, "--out", tmp_path / "parts", code=1)
    assert "--data-weights" in done.stderr


def test_token_files(tmp_path):
    rng = np.random.default_rng(0)
    rng.integers(0, 61, 500).astype("<u4").tofile(tmp_path / "train.bin")
    rng.integers(0, 61, 100).astype("<u4").tofile(tmp_path / "val.bin")
    out = tmp_path / "run"
    tokens = ["--token-dtype", "uint32", "--seq-len", 16]
    run("train", GPT, "--data", tmp_path / "train.bin", "--val-data", tmp_path / "val.bin", *tokens, *CE,
        "--batch-size", 4, "--steps", 6, "--out", out)
    steps = [m for m in metrics(out) if "loss" in m]
    assert all(m["tokens_per_second"] == pytest.approx(16 * m["samples_per_second"]) for m in steps)
    val = [m for m in metrics(out) if "val_loss" in m]
    assert val[-1]["val_perplexity"] == pytest.approx(np.exp(val[-1]["val_loss"]))
    done = run("eval", out, "--data", tmp_path / "val.bin", "--json")
    assert json.loads(done.stdout)["loss"] == pytest.approx(val[-1]["val_loss"], rel=1e-6)
    done = run("train", GPT, "--data", tmp_path / "train.bin", "--token-dtype", "uint32", *CE, "--steps", 1,
               "--out", tmp_path / "other", code=1)
    assert "--seq-len" in done.stderr


def test_documents_of_token_files(tmp_path):
    """They train as arrays that tell the documents apart, and a run keeps both flags."""
    tokens = np.random.default_rng(0).integers(0, 8, 16 * 20 + 1)
    tokens.astype("<u2").tofile(tmp_path / "d.bin")
    ids, labels = tokens[:-1].reshape(20, 16), tokens[1:].reshape(20, 16)
    ends = (ids == 0).astype(np.int64)
    np.savez(tmp_path / "d.npz", input_ids=ids, labels=np.where(ends, -100, labels), segment_ids=ends.cumsum(1) - ends)
    flags = [*CE, "--segment-ids", "segment_ids", "--batch-size", 4, "--steps", 5]
    run("train", GPT, "--data", tmp_path / "d.bin", "--seq-len", 16, "--eod", 0, *flags, "--out", tmp_path / "tokens")
    done = run("train", GPT, "--data", tmp_path / "d.npz", *flags, "--out", tmp_path / "arrays")
    assert "attention keeps to the documents of a row that segment_ids, an added input, tells apart" in done.stderr
    assert losses(tmp_path / "tokens") == losses(tmp_path / "arrays")
    results = [json.loads(run("eval", tmp_path / out, "--data", tmp_path / data, "--json").stdout)["loss"]
               for out, data in (("tokens", "d.bin"), ("arrays", "d.npz"))]
    assert results[0] == results[1]
    done = run("train", "--resume", "--eod", 1, "--steps", 6, "--out", tmp_path / "tokens", code=1)
    assert "was started with eod 0, got 1 (--eod)" in done.stderr
    run("export", tmp_path / "tokens", "-o", tmp_path / "out.onnx")
    assert [i.name for i in onnx.load(tmp_path / "out.onnx").graph.input] == ["input_ids"]


def test_data_order(tmp_path):
    data = write_random(tmp_path / "d.npz", 16)
    flags = ["train", MLP, "--data", data, *CE, "--batch-size", 4, "--lr", 0, "--steps", 8]
    for name, extra in [("file", ["--no-shuffle"]), ("a", ["--seed", 1]), ("b", ["--seed", 1]), ("c", ["--seed", 2])]:
        run(*flags, *extra, "--out", tmp_path / name)
    order = {name: [losses(tmp_path / name)[i] for i in range(1, 9)] for name in ("file", "a", "b", "c")}
    assert order["file"][:4] == order["file"][4:]
    assert order["a"] == order["b"] != order["c"]
    manifest = tmp_path / "c" / "checkpoints" / "step_00000008" / "manifest.json"
    assert json.loads(manifest.read_text())["seed"] == 2
    assert order["a"][:4] != order["a"][4:]
    # The same samples in every epoch (the rate is 0).
    assert sum(order["a"][:4]) == pytest.approx(sum(order["a"][4:]), rel=1e-6)
    run(*flags[:-2], "--epochs", 2, "--out", tmp_path / "epochs")
    assert len(losses(tmp_path / "epochs")) == 8
