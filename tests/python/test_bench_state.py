# SPDX-License-Identifier: Apache-2.0
"""./dev bench state: its studies with a program that only pretends to train, and its tables."""
import argparse
import json
import pathlib
import sys
import types

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import short_json  # noqa: E402
from bench import perturb, state  # noqa: E402

# A loss depends on the seed, and by a hundredth on the state.
PROGRAM = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
if words[0] == "version":
    print(json.dumps({{"isa": "avx2"}}))
    sys.exit()
flag = {{a: b for a, b in zip(words, words[1:]) if a.startswith("--")}}
log = pathlib.Path(__file__).parent / "log"
before = log.read_text().splitlines() if log.exists() else []
if len(before) >= int(os.environ.get("FAKE_RUNS", "1000000")):
    sys.exit("the power went off")
moments, master = flag.get("--moments", ""), flag.get("--master", "")
log.write_text("\\n".join([*before, " ".join(
    [pathlib.Path(words[1]).stem, flag["--seed"], flag["--dtype"], moments, master])]) + "\\n")
off = 0.01 * bool(moments) + 0.02 * bool(master)
loss = 2.0 + 0.5 * int(flag["--seed"]) + off
if moments + master == os.environ.get("FAKE_DIVERGED"):
    loss = None
out = pathlib.Path(flag["--out"])
out.mkdir()
(out / "metrics.jsonl").write_text("".join(
    json.dumps({{"step": s, "loss": s + s * off}}) + "\\n" for s in range(1, int(flag["--steps"]) + 1)))
summary = {{"val_loss": loss, "skipped_steps": 0, "state_bytes": 120 - 40 * bool(moments) - 30 * bool(master)}}
if moments:
    summary["update_amax"] = 1.5 + int(flag["--seed"])
print(json.dumps(summary))
"""

EXPORTER = """#!{python}
import json, pathlib, sys
for wanted in json.loads(sys.argv[-1]):
    pathlib.Path(wanted["path"]).write_text(pathlib.Path(wanted["model"]).read_text() + " with noise"
                                            if wanted["model"].endswith(".onnx") else "model")
"""


def names(allowed):
    def parse(text):
        if not set(text.split(",")) <= set(allowed):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(allowed)}")
        return tuple(text.split(","))
    return parse


@pytest.fixture
def fake(tmp_path):
    paths = {}
    for name, text in (("program", PROGRAM), ("exporter", EXPORTER)):
        paths[name] = tmp_path / name
        paths[name].write_text(text.format(python=sys.executable))
        paths[name].chmod(0o755)

    def measure(*words):
        chosen = state.arguments([*words, "--folder", str(tmp_path / "studies")], names)
        return {"date": "today", **state.measure(chosen, str(paths["program"]), str(paths["exporter"]), SCRIPTS, tmp_path)}

    def study():
        folder, = (tmp_path / "studies").iterdir()
        return folder

    def log():
        return [line.split(" ") for line in (study() / "log").read_text().splitlines()]

    return types.SimpleNamespace(measure=measure, study=study, log=log)


def test_states_have_pairs_and_flags(fake):
    result = fake.measure("--seeds", "2", "--steps", "3")
    runs = fake.log()
    # Seeds, models, and of each dtype the states.
    assert len(runs) == 2 * 2 * (len(state.MOMENTS) + len(state.STATES))
    # Without bfloat16 there is no master in 16 bits.
    assert not [run for run in runs if run[2] == "float32" and run[4]]
    assert ["state_gpt_1", "1", "bfloat16", "fp8", "split8"] in runs
    assert ["state_llama_0_noise", "0", "float32", "", ""] in runs
    assert (fake.study() / "state_gpt_0_noise.onnx").read_text() == "model with noise"
    table = result["tables"]["llama"]["bfloat16"]
    assert list(table) == list(state.STATES)
    base, fp8, both = (table[name] for name in (state.BASE, "moments fp8", "fp8 and split8"))
    assert base["loss_of_seeds"] == [2.0, 2.5] and base["bytes"] == 12 and base["update_amax"] is None
    assert fp8["nats"]["mean"] == pytest.approx(0.01) and fp8["nats"]["low"] == pytest.approx(0.01)
    assert both["nats"]["mean"] == pytest.approx(0.03) and both["bytes"] == 5
    # The third step is the worst one; the second seed has the largest update.
    assert both["worst_step"] == pytest.approx(3 * 0.03) and both["update_amax"] == 2.5
    assert table[state.NOISE]["worst_step"] == 0
    assert state.outside(result) == []
    text = state.markdown(result)
    assert "## gpt, products in float32; 2 seeds" in text
    assert "| fp8 and split8 | 5.00 | 2.2800 | +0.0300 [+0.0300, +0.0300] | 0.0000 | 0.090 | 2.50 |" in text
    # The short form takes `losses` for a run's steps; it keeps each seed's.
    kept = short_json.short(result)["tables"]["llama"]["bfloat16"]
    assert json.loads(short_json.text(kept))[state.BASE]["loss_of_seeds"] == [2.0, 2.5]


def test_a_study_goes_on_where_it_stopped(fake, monkeypatch):
    words = ("--seeds", "2", "--steps", "3", "--models", "gpt", "--dtypes", "float32")
    monkeypatch.setenv("FAKE_RUNS", "5")
    with pytest.raises(SystemExit, match="the power went off"):
        fake.measure(*words)
    monkeypatch.delenv("FAKE_RUNS")
    partly = fake.measure(*words[:2], *words[4:], "--report-only")
    assert partly["tables"]["gpt"]["float32"][state.BASE]["seeds"] == [0]
    complaint, = state.outside(partly)
    assert complaint == f"gpt, float32: expected 2 seeds, found 1: go on with --study {fake.study().name}"
    assert state.outside(fake.measure(*words)) == [] and len(fake.log()) == 2 * len(state.MOMENTS)


def test_a_diverged_state_is_named(fake, monkeypatch):
    monkeypatch.setenv("FAKE_DIVERGED", "fp8")
    result = fake.measure("--seeds", "2", "--steps", "3", "--models", "gpt", "--dtypes", "float32")
    assert state.outside(result) == ["gpt, float32: moments fp8 is further from float32 than seeds are from each other"]
    assert "| moments fp8 | 8.00 | diverged with 2 seeds |" in state.markdown(result)


def test_noise_changes_weights_only(tmp_path):
    weights = {"fc.weight": np.ones((3, 4), np.float32), "val_1": np.ones(4, np.float32), "fc.bias": np.full(4, 2, np.float32)}
    graph = helper.make_graph([helper.make_node("Identity", ["fc.weight"], ["y"])], "g", [],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    changed = []
    for seed in (1, 1, 2):
        perturb.perturb(tmp_path / "model.onnx", tmp_path / "noise.part", seed)
        with open(tmp_path / "noise.part", "rb") as file:
            noisy = {t.name: numpy_helper.to_array(t) for t in onnx.load(file).graph.initializer}
        assert np.array_equal(noisy["val_1"], weights["val_1"])
        for name in ("fc.weight", "fc.bias"):
            off = np.abs(noisy[name] / weights[name] - 1)
            assert 0 < off.max() < 6e-6 and noisy[name].dtype == np.float32
        changed.append(noisy["fc.weight"].tobytes())
    assert changed[0] == changed[1] != changed[2]


def test_noise_without_weights_is_refused(tmp_path):
    """A noise floor of zero would be none."""
    graph = helper.make_graph([helper.make_node("Identity", ["val_1"], ["y"])], "g", [],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
                              [numpy_helper.from_array(np.ones(4, np.float32), "val_1")])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    with pytest.raises(SystemExit, match=r"model.onnx: expected weights named"):
        perturb.perturb(tmp_path / "model.onnx", tmp_path / "noise.part", 0)
    assert not (tmp_path / "noise.part").exists()
