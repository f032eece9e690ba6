# SPDX-License-Identifier: Apache-2.0
"""./dev bench lora with its tiny Llama, which a program writes in place of PyTorch's exporter."""
import json
import pathlib
import sys

import numpy as np
import pytest
from program import BIN

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from bench import lora  # noqa: E402

TORCH = """#!{python}
import json, pathlib, sys
sys.path.insert(0, {scripts!r})
from bench import graphs
module, *words = sys.argv[2:]
if module == "bench.torch_llama":
    c, path = json.loads(words[0]), pathlib.Path(words[1])
    graphs.Llama(graphs.Writer(path.with_name("absent.data"), absent=True), c["num_hidden_layers"], c["hidden_size"],
                 c["intermediate_size"], c["num_attention_heads"], c["vocab_size"], c["num_key_value_heads"]).write(path)
    (pathlib.Path(words[2]) / "config.json").write_text(words[0])
else:
    assert module == "bench.torch_lora" and json.loads(words[2])["targets"] == ["q_proj", "v_proj"]
    print(json.dumps({{"losses": [4.0, 3.5], "tokens_per_second": 2.5, "peak_bytes": 2**31}}))
"""


@pytest.fixture
def measure(tmp_path, monkeypatch):
    torch = tmp_path / "torch"
    torch.write_text(TORCH.format(python=sys.executable, scripts=str(SCRIPTS)))
    torch.chmod(0o755)
    monkeypatch.setenv("ONNX_FP8_TORCH_PYTHON", str(torch))
    return lambda *words: lora.measure(lora.arguments(["--quick", *words], None), BIN, "", SCRIPTS, tmp_path)


def test_a_run_is_measured_cut_and_resumed(tmp_path, measure):
    result = measure()
    folder = tmp_path / "lora/quick"
    assert len(list((folder / "weights").glob("model-*.safetensors"))) > 1
    whole, resumed = result["whole"], result["resumed"]
    assert len(whole["losses"]) == 4 and abs(whole["losses"][0] - np.log(lora.QUICK["vocab_size"])) < 0.5
    assert lora.same_bits(result) and lora.outside(result) == []
    assert whole["state_bytes"] == resumed["state_bytes"] and whole["peak_bytes"] > whole["state_bytes"]
    # Codes take a byte of a number, adapters and their moments 12. The table of embeddings is a bfloat16.
    numbers = {name: lora.count(shape) for name, shape in lora.shapes(lora.QUICK).items()}
    table = numbers["model.embed_tokens.weight"]
    codes = sum(n for name, n in numbers.items() if n > lora.QUICK["hidden_size"]) - table
    width, keys = 32, 16
    adapters = 2 * lora.RANK * (2 * width + width + keys)
    assert whole["state_bytes"] == pytest.approx(codes + 2 * table + 12 * adapters, rel=0.02)
    # The file has bfloat16s, and a checkpoint none of them.
    assert 2 * (codes + table) < result["frozen_bytes"] < 2 * (codes + table) + 4000
    assert 12 * adapters < result["checkpoint_bytes"] < 12 * adapters + 20_000
    assert not (folder / "run").exists()
    # The weights serve the next run.
    before = {file.name: file.stat().st_mtime_ns for file in (folder / "weights").glob("model*")}
    again = measure("--steps", "2", "--no-peer")
    assert {file.name: file.stat().st_mtime_ns for file in (folder / "weights").glob("model*")} == before
    assert again["whole"]["losses"] == whole["losses"][:2] and again["peft"] == "it was not asked for"


def test_tables_and_complaints(measure):
    result = measure("--steps", "2")
    assert result["peft"]["peak_bytes"] == 2**31
    text = lora.markdown(result)
    assert "| PEFT, torch in bfloat16 | - | - | 2.00 | 2.5 | 4.0000 | 3.5000 |" in text
    assert "has the bits of the whole one" in text
    other = json.loads(json.dumps(result))
    other["resumed"]["digest"] = "other"
    assert lora.outside(other) == ["the resumed run has other bits than the whole one"]
    assert "has not the bits of the whole one" in lora.markdown(other)
    large = result | {"quick": False, "whole": result["whole"] | {"peak_bytes": 13 * lora.GIB}}
    assert lora.outside(large) == ["peak_bytes of the whole run: 13.00 GiB, expected at most 12.00"]


def test_a_peer_without_room_is_left_out(measure, monkeypatch):
    monkeypatch.setattr(lora, "available", lambda: 0)
    result = measure("--steps", "2")
    assert "PEFT is left out: it needs about 2.0 GiB, and 0.0 GiB are free." in lora.markdown(result)


def test_bfloat16s_are_the_nearest():
    random = np.random.default_rng(3)
    want = np.random.default_rng(3).standard_normal(1000, np.float32) * np.float32(0.02)
    got = (lora.halves(random, 1000).astype(np.uint32) << 16).view(np.float32)
    assert (np.abs(got - want) <= np.abs(want) * 2.0 ** -8).all() and (got != want).any()


def test_shards_have_a_limit():
    wanted = {"a": (4, 8), "b": (2, 8), "c": (8,), "d": (100, 8)}
    assert lora.shards(wanted, 100) == [["a", "b"], ["c"], ["d"]]
    assert sum(lora.count(shape) for shape in lora.shapes(lora.LLAMA_7B).values()) == 6_738_415_616
