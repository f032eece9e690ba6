# SPDX-License-Identifier: Apache-2.0
"""./dev bench parity: its statistics on made-up numbers, and its studies with a
program that only pretends to train."""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import types

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from bench import parity, parity_runs, parity_stats  # noqa: E402
from bench.parity_runs import Run  # noqa: E402

TENSORWISE_E4M3 = "tensorwise,go:dyn_ten_e4m3"


@pytest.mark.parametrize("freedom,t", [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281),
                                       (19, 2.0930), (200, 1.9719)])
def test_quantiles_of_student(freedom, t):
    assert parity_stats.student(freedom) == pytest.approx(t, abs=1e-4)


def test_interval_of_a_mean():
    found = parity_stats.interval([1.0, 2.0, 3.0])
    half = 4.30265 / math.sqrt(3)
    assert (found["mean"], found["deviation"]) == (2.0, 1.0)
    assert (found["low"], found["high"]) == (pytest.approx(2 - half, abs=1e-4), pytest.approx(2 + half, abs=1e-4))
    assert parity_stats.interval([5.0]) == {
        "mean": 5.0, "low": None, "high": None, "deviation": None, "count": 1}


def figures(losses):
    return [{"loss": x, "train_loss": x} for x in losses]


OFF = (2.0, 2.1, 1.9, 2.05, 1.95)


def test_differences_are_of_pairs():
    # Seeds differ by 5 %, but each pair by the same 1 %.
    judged = parity_stats.judge({"off": figures(OFF), "near": figures([1.01 * x for x in OFF])})
    assert judged["off"]["band"] == pytest.approx(statistics.stdev(OFF) / 2.0)
    near = judged["near"]
    assert near["relative"]["low"] == pytest.approx(0.01) == near["relative"]["high"]
    assert near["nats"]["mean"] == pytest.approx(0.02) and near["holds"] == "yes"
    assert near["training"]["mean"] == pytest.approx(0.01)


@pytest.mark.parametrize("factors,holds", [
    ((1.0, 1.01, 0.99, 1.0, 1.0), "yes"),
    ((1.1, 1.11, 1.09, 1.1, 1.1), "no"),
    ((0.9, 0.91, 0.89, 0.9, 0.9), "no"),  # a loss that is too low is no parity either
    ((1.03, 1.05, 1.04, 1.05, 1.03), "undecided"),
    ((0.9, 1.1, 1.0, 1.1, 0.9), "undecided")])
def test_an_interval_lies_in_the_band_or_outside_or_does_not_decide(factors, holds):
    losses = [f * x for f, x in zip(factors, OFF)]
    judged = parity_stats.judge({"off": figures(OFF), "fp8": figures(losses)})["fp8"]
    assert judged["holds"] == holds
    assert (judged["seeds_needed"] is not None) == (holds == "undecided")


def test_one_seed_decides_nothing():
    judged = parity_stats.judge({"off": figures([2.0]), "fp8": figures([2.0])})
    assert judged["fp8"]["holds"] == "undecided" and judged["off"]["band"] is None


def test_a_diverged_run():
    judged = parity_stats.judge({"off": figures(OFF), "fp8": figures([*OFF[:4], None])})
    assert judged["fp8"] == {"diverged": 1, "holds": "no"}
    assert parity_stats.compare([([2.0, None], [2.0, 2.0])]) is None
    with pytest.raises(SystemExit, match="lower the learning rate"):
        parity_stats.judge({"off": figures([2.0, None])})


def test_a_seed_counts_once_in_a_comparison_of_several_pairs():
    # The two pairs of sides are copies: they must not narrow the interval.
    pair = ([1.01, 2.0, 3.06], [1.0, 2.0, 3.0])
    assert parity_stats.compare([pair, pair]) == parity_stats.compare([pair])
    assert parity_stats.compare([pair])["mean"] == pytest.approx(0.01)


PROGRAM = """#!{python}
import json, os, pathlib, sys, zlib
words = sys.argv[1:]
if words[0] == "version":
    print(json.dumps({{"isa": os.environ.get("FAKE_ISA", "avx2")}}))
    sys.exit()
flag = {{a: b for a, b in zip(words, words[1:]) if a.startswith("--")}}
log = pathlib.Path(__file__).parent / "log"
before = log.read_text().splitlines() if log.exists() else []
if len(before) >= int(os.environ.get("FAKE_RUNS", "1000000")):
    sys.exit("the power went off")
log.write_text("\\n".join([*before, " ".join(
    [pathlib.Path(words[1]).stem, flag["--seed"], flag["--dtype"], flag["--recipe"]])]) + "\\n")
steps, noise = int(flag["--steps"]), zlib.crc32(" ".join(words).encode()) / 2**32
loss = 2.0 + 0.1 * int(flag["--seed"]) + 0.001 * noise
if flag["--recipe"] == os.environ.get("FAKE_DIVERGED"):
    loss = None
out = pathlib.Path(flag["--out"])
out.mkdir()
(out / "metrics.jsonl").write_text("".join(
    json.dumps({{"step": s, "loss": float(s)}}) + "\\n" for s in range(1, steps + 1))
    + json.dumps({{"val_loss": loss}}) + "\\n")
print(json.dumps({{"val_loss": loss, "skipped_steps": 0}}))
"""

EXPORTER = """#!{python}
import json, pathlib, sys
for wanted in json.loads(sys.argv[-1]):
    pathlib.Path(wanted["path"]).write_text("model")
"""


@pytest.fixture
def fake(tmp_path):
    """A program and an exporter that stand in for the slow ones."""
    paths = {}
    for name, text in (("program", PROGRAM), ("exporter", EXPORTER)):
        paths[name] = tmp_path / name
        paths[name].write_text(text.format(python=sys.executable))
        paths[name].chmod(0o755)

    def measure(*words):
        chosen = parity.arguments([*words, "--folder", str(tmp_path / "studies")], names)
        return parity.measure(chosen, str(paths["program"]), str(paths["exporter"]), SCRIPTS, tmp_path)

    def study():
        folder, = (tmp_path / "studies").iterdir()
        return folder

    def log():
        return [tuple(line.split()) for line in (study() / "log").read_text().splitlines()]

    return types.SimpleNamespace(measure=measure, study=study, log=log, **paths)


def names(allowed):
    def parse(text):
        chosen = tuple(text.split(","))
        if not set(chosen) <= set(allowed):
            raise argparse.ArgumentTypeError(f"expected some of {','.join(allowed)}")
        return chosen
    return parse


SHORT = ("--seeds", "2", "--sizes", "small", "--recipes", "tensorwise", TENSORWISE_E4M3)


def test_a_study_that_was_stopped_goes_on(fake, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_RUNS", "15")
    with pytest.raises(SystemExit, match="small gpt, seed 1, bfloat16, off: the power went off"):
        fake.measure(*SHORT)
    # 12 runs are a seed; the 3 of the next seed do not count yet.
    result = fake.measure("--report-only", *SHORT)
    assert result["sizes"]["small"]["seeds"] == [0]
    assert "small: expected 2 seeds, found 1 that have ended" in parity.outside(result)[-1]
    monkeypatch.delenv("FAKE_RUNS")
    (fake.study() / "work").mkdir()  # as a run leaves it that was cut off
    capsys.readouterr()
    result = fake.measure(*SHORT)
    assert result["sizes"]["small"]["seeds"] == [0, 1]
    progress = capsys.readouterr().err
    assert "15 of 24 runs are there already" in progress
    assert "24/24 small llama, seed 1, bfloat16, tensorwise,go:dyn_ten_e4m3: validation loss 2." in progress
    assert "ETA 0 min" in progress
    assert len(fake.log()) == len(set(fake.log())) == 24
    fake.measure(*SHORT)
    assert len(fake.log()) == 24
    third = fake.measure("--seeds", "3", *SHORT[2:])
    assert len(fake.log()) == 36 and third["sizes"]["small"]["seeds"] == [0, 1, 2]


def test_pairs_share_weights_and_batches(fake):
    fake.measure(*SHORT)
    assert {(model, seed) for model, seed, _, _ in fake.log()} == {
        (f"small_{model}_{seed}", str(seed)) for model in parity_runs.MODELS for seed in range(2)}


def test_a_diverged_run_is_reported(fake, monkeypatch):
    monkeypatch.setenv("FAKE_DIVERGED", "tensorwise")
    result = fake.measure(*SHORT)
    assert "small gpt, float32: tensorwise diverged with 2 of the seeds" in parity.outside(result)
    assert "| float32, tensorwise | diverged |" in parity.markdown({**result, "date": "2026-01-01"})


BROKEN = {
    "{\"run\": ": "expected the result of small gpt, seed 0, float32, off as JSON, found a broken file",
    "[1]": "expected the result of small gpt, seed 0, float32, off, found a list",
    "{\"run\": {}}": "found no `loss`",
    "{\"run\": {}, \"loss\": 1, \"train_loss\": 1, \"skipped\": 0, \"seconds\": 1}": "found that of {}"}


def test_a_broken_result_is_an_error(fake):
    fake.measure(*SHORT)
    path = fake.study() / "runs" / Run("small", 0, "gpt", "float32", "off").file
    before = path.read_text()
    for text, message in BROKEN.items():
        path.write_text(text)
        with pytest.raises(SystemExit) as error:
            fake.measure(*SHORT)
        assert message in str(error.value) and str(path) in str(error.value) and "delete the file" in str(error.value)
    broken = json.loads(before)
    path.write_text(json.dumps({**broken, "loss": "two"}))
    with pytest.raises(SystemExit, match="expected a number as `loss`.*found 'two'"):
        fake.measure("--report-only", *SHORT)
    path.unlink()
    fake.measure(*SHORT)
    assert {**json.loads(path.read_text()), "seconds": 0} == {**broken, "seconds": 0} and len(fake.log()) == 25


def test_another_program_begins_another_study(fake, tmp_path, monkeypatch):
    first = fake.measure(*SHORT)["study"]
    fake.program.write_text(fake.program.read_text() + "\n# built again\n")
    second = fake.measure(*SHORT)["study"]
    assert first != second
    with pytest.raises(SystemExit, match=f"expected one study, found {min(first, second)}, {max(first, second)}"):
        fake.measure("--report-only", *SHORT)
    # The first goes on with its own copy of the program.
    went_on = fake.measure("--study", first, "--seeds", "3", *SHORT[2:])
    assert went_on["study"] == first and went_on["sizes"]["small"]["seeds"] == [0, 1, 2]
    with pytest.raises(SystemExit, match="expected the study abc, found"):
        fake.measure("--study", "abc", *SHORT)
    monkeypatch.setenv("FAKE_ISA", "amx")
    with pytest.raises(SystemExit, match="expected a machine where the program chooses avx2, found amx"):
        fake.measure("--study", first, *SHORT)


def test_the_command_writes_its_files_and_its_exit_code_says_what_lacks(fake, tmp_path):
    fake.measure(*SHORT)

    def report(*words):
        return subprocess.run(
            [sys.executable, SCRIPTS / "bench.py", "parity", "--report-only", "--folder", fake.study().parent,
             "--json", tmp_path / "x.json", "--markdown", tmp_path / "x.md", *words], capture_output=True, text=True)

    done = report("--seeds", "3", *SHORT[2:])
    assert done.returncode == 1 and "small: expected 3 seeds, found 2 that have ended" in done.stderr
    done = report(*SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["study"] == fake.study().name and (tmp_path / "x.md").read_text() in done.stdout
    assert parity.markdown(written) == (tmp_path / "x.md").read_text()
