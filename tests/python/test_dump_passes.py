# SPDX-License-Identifier: Apache-2.0
"""--dump-passes: the graph after each pass, for all commands that build graphs."""
import json

import pytest
from program import FIXTURES, run, write_batch

MLP = FIXTURES / "mlp" / "d18.onnx"
LOSS = ["--loss", "cross_entropy"]
CE = [*LOSS, "--batch-size", 2]
IMPORT = ["ReadModel", "ComputeInFloat", "SeparateTensors", "SetBatchNormMode", "MarkParameters"]
FORWARD = ["NormalizeLinear", "SliceBeforeProduct", "FuseRotary", "FuseAttention", "KeepRowOrder", "FuseActivations", "FuseNorms"]
FIT = ["ExpandMissing", "CheckProducts", "JoinMasters", "JoinMoments", "MakeKMajor", "StoreMxScales", "StoreNarrow", "PadOperands", "FuseQuantize",
       "JoinOrientations", "FuseColumnSums", "AddToSums", "JoinLossGradient"]
END = ["Sort", "FoldTranspose", "RemoveDeadCode", "ChunkLoss"]
BACKWARD = ["BuildBackward", "RemoveStraightThrough", "FuseBiasGradients", "Fp8Rewrite", "DropIdleAmaxes"]
TRAIN = ["Specialize", "RemoveIdleDropout", "AddStraightThrough", "UnrollRecurrent", *FORWARD, "AddLoss", "FuseLoss",
         *BACKWARD, "Optimizer", "BindRunningStatistics", "Outputs", *END]
EVAL = ["Specialize", "InferenceMode", "RemoveIdleDropout", *FORWARD, "AddLoss", "FuseLoss", "Fp8Rewrite",
        "DropIdleAmaxes", "Outputs", *END]
GRADIENTS = ["Specialize", "DropNothing", "RemoveIdleDropout", "AddStraightThrough", "UnrollRecurrent", *FORWARD,
             "AddLoss", "FuseLoss", *BACKWARD, "OutputGradients", "Outputs", *END]


def texts(folder):
    """{pipeline: [pass]}, in order; each file has a graph in it."""
    found = {}
    for path in sorted(folder.rglob("*.txt")):
        assert path.read_text().startswith("graph "), path
        number, name = path.stem.split("_", 1)
        passes = found.setdefault(path.parent.name, [])
        assert int(number) == len(passes)
        passes.append(name)
    return found


@pytest.fixture
def batch(tmp_path):
    return write_batch("mlp", tmp_path / "d.npz")


def test_train_and_eval(batch, tmp_path):
    run("train", MLP, "--data", batch, *CE, "--steps", 1, "--recipe", "tensorwise", "--dump-passes", tmp_path / "texts",
        "--out", tmp_path / "run")
    assert texts(tmp_path / "texts") == {"01_import": IMPORT, "02_train": [*TRAIN, "PackReport", *FIT]}
    run("eval", tmp_path / "run", "--data", batch, "--dump-passes", tmp_path / "more")
    assert texts(tmp_path / "more") == {"01_import": IMPORT, "02_eval": [*EVAL, *FIT]}
    # The run folder does not store the flag, so a resumed run writes no texts.
    (tmp_path / "texts").rename(tmp_path / "moved")
    run("train", "--resume", "--steps", 2, "--out", tmp_path / "run")
    assert not (tmp_path / "texts").exists()


def test_texts_say_the_role_of_state(batch, tmp_path):
    run("train", MLP, "--data", batch, *CE, "--steps", 1, "--recipe", "delayed", "--grad-accum", 2, "--dump-passes",
        tmp_path / "texts", "--out", tmp_path / "run")
    roles = {}
    for pipeline in ("02_micro", "03_apply"):
        for line in max((tmp_path / "texts" / pipeline).glob("*.txt")).read_text().splitlines():
            words = line.removeprefix("input ").split(":")[0].split()
            if len(words) == 2 and words[0] not in ("const", "output"):
                roles[words[1]] = words[0]
    weight = next(name for name, role in roles.items() if role == "param")
    assert {roles[name] for name in ("fp8.scale", "fp8.amax_history")} == {"scale"}
    assert {roles[name] for name in (f"{weight}.exp_avg", f"{weight}.exp_avg_sq")} == {"moment"}
    assert {roles[name] for name in (f"micro.grad.{weight}", "micro.amax")} == {"sum"}
    assert {roles[name] for name in ("optimizer.step", "optimizer.skipped")} == {"counter"}


def test_grad(batch, tmp_path):
    run("grad", MLP, "--data", batch, *CE, "-o", tmp_path / "g.safetensors", "--dump-passes", tmp_path / "texts")
    assert texts(tmp_path / "texts")["02_gradients"] == [*GRADIENTS, *FIT]


def test_rewrite(tmp_path):
    run("rewrite", MLP, "-o", tmp_path / "fp8.onnx", "--recipe", "tensorwise", "--dump-passes", tmp_path / "forward")
    assert texts(tmp_path / "forward") == {"01_rewrite": ["Upgrade", "Fp8Rewrite", "AttachScales", "DropIdleTransposes"]}
    run("rewrite", MLP, "-o", tmp_path / "step.onnx", "--recipe", "tensorwise", *LOSS, "--shape", "batch=4", "--dump-passes",
        tmp_path / "step")
    assert texts(tmp_path / "step") == {"01_import": IMPORT, "02_train": TRAIN}


def test_inspect_has_the_seconds_of_each(tmp_path):
    done = run("inspect", MLP, *LOSS, "--shape", "batch=4", "--json", "--dump-passes", tmp_path / "texts")
    rows = json.loads(done.stdout)["passes"]
    assert [row["name"] for row in rows] == [*IMPORT, *TRAIN, "PackReport", *FIT]
    assert all(row["seconds"] >= 0 for row in rows)
    assert texts(tmp_path / "texts") == {"01_import": IMPORT, "02_train": [*TRAIN, "PackReport", *FIT]}


def test_a_folder_that_can_not_be_made(batch, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("grad", MLP, "--data", batch, *CE, "-o", tmp_path / "g.safetensors", "--dump-passes", tmp_path / "file", code=1)
    assert "file/01_import] can't be created: Not a directory" in done.stderr
