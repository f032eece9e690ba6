# SPDX-License-Identifier: Apache-2.0
"""Trains the same two models in this program and in PyTorch, torchao and
onnxruntime-training, by turns, and compares matrix products with OpenBLAS and
MKL. All figures come from one run on one machine: only ratios count.

  ./dev bench [--json FILE] [--markdown FILE] [...]
  ./dev bench compare OLD.json NEW.json
  ./dev bench busy [--markdown FILE] [...]
  ./dev bench scaling [--markdown FILE] [...]
  ./dev bench parity [--json FILE] [--markdown FILE] [...]
  ./dev bench state [--json FILE] [--markdown FILE] [...]
  ./dev bench memory [--json FILE] [--markdown FILE]
  ./dev bench lora [--json FILE] [--markdown FILE] [...]
  ./dev bench ranks [--json FILE] [--markdown FILE]
  ./dev bench plan [--json FILE] [--markdown FILE]
  ./dev bench ort [--json FILE] [--markdown FILE] [...]
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

from bench import (busy, contest, gemm, lora, machine, memory, ort, parity,
                   plan, ranks, report, scaling, state, task)

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
WORK = ROOT / "build/bench"
BIN = os.environ.get("ONNX_FP8_BIN", str(ROOT / "build/release/onnx-fp8"))
PYTHON = os.environ.get("ONNX_FP8_BENCH_PYTHON", "")
ORT_PYTHON = os.environ.get("ONNX_FP8_ORT_PYTHON", "")
PARTS = (*task.MODELS, "gemm")


def names(allowed):
    def parse(text):
        chosen = text.split(",") if text else []
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"expected some of {','.join(allowed)}, got {name!r}")
        return tuple(chosen)
    return parse


def arguments():
    if sys.argv[1:2] == ["compare"]:
        parser = argparse.ArgumentParser(prog="./dev bench compare")
        parser.add_argument("old", type=pathlib.Path)
        parser.add_argument("new", type=pathlib.Path)
        return parser.parse_args(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="./dev bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--json", type=pathlib.Path, help="write the figures")
    add("--markdown", type=pathlib.Path, help="write the tables too")
    add("--quick", action="store_true",
        help="one short round without torch.compile; figures are rough")
    add("--only", type=names(PARTS), default=PARTS,
        help="some of " + ",".join(PARTS))
    add("--peers", type=names(contest.PEERS),
        help="some of " + ",".join(contest.PEERS))
    add("--size", choices=task.SIZES, default="default",
        help="another task: one long sequence, a large vocabulary, a wide "
        "model, GPT-2 (default)")
    add("--isa", choices=machine.LIMITS,
        help="as if the machine had no better instructions; PyTorch and the "
        "libraries are held to them too, onnxruntime can not be")
    add("--rounds", type=int, help="turns of each (4)")
    add("--seed", type=int, default=0, help="of the order of turns (0)")
    add("--steps", type=int, help="steps of a turn that count (8)")
    chosen = parser.parse_args()
    for path in (chosen.json, chosen.markdown):
        if path and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent}")
    if chosen.peers is None:
        quick = ("torch_eager_fp32", "ort_training")
        chosen.peers = quick if chosen.quick else contest.PEERS
    if chosen.size != "default":
        global WORK
        task.choose(chosen.size)
        WORK = WORK / chosen.size
    if chosen.isa:
        machine.hold_to(chosen.isa)
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 4)
    chosen.steps = chosen.steps or (3 if chosen.quick else 8)
    return chosen


def export(model):
    """The model's files, made again if a script of this folder has changed."""
    sources = [SCRIPTS / "bench" / f"{name}.py"
               for name in ("task", "torch_models", "torch_export")]
    files = [WORK / f"{model}.onnx", WORK / f"{model}_ort.onnx"]
    newest = max(s.stat().st_mtime for s in sources)
    if all(f.exists() and f.stat().st_mtime > newest for f in files):
        return
    machine.say(f"exporting {model}")
    with open(WORK / f"export_{model}.log", "w") as log:
        subprocess.run([PYTHON, "-m", "bench.torch_export", model, WORK],
                       cwd=SCRIPTS, env=machine.environment(), check=True,
                       stdout=log, stderr=log)


def contestants(model, chosen, flags):
    """The programs that take part; the others, and why they don't."""
    tokens = WORK / "tokens.bin"
    isa = ["--isa", chosen.isa] if chosen.isa else []
    found = {row: contest.Ours(BIN, WORK / f"{model}.onnx", tokens, row,
                               WORK / f"run_{model}_{row}", *isa)
             for row in contest.OURS}
    left = {}
    for peer in chosen.peers:
        log = WORK / f"{model}_{peer}.log"
        if peer in contest.TORCH_PEERS:
            if "bf16" in peer and not machine.has_bf16(flags):
                left[peer] = "there are no BF16 instructions"
                continue
            command = [PYTHON, "-m", "bench.torch_peer", peer, model,
                       tokens]
            found[peer] = contest.Peer(
                command, SCRIPTS, log,
                TORCHINDUCTOR_CACHE_DIR=str(
                    WORK / f"inductor_{chosen.isa or 'best'}"))
        elif ORT_PYTHON:
            command = [ORT_PYTHON, "-m", "bench.ort_peer",
                       WORK / f"{model}_ort.onnx", tokens,
                       WORK / f"{model}_ort"]
            found[peer] = contest.Peer(command, SCRIPTS, log)
        else:
            left[peer] = "no wheel of onnxruntime-training 1.19.2 to be had"
    for peer, why in left.items():
        machine.say(f"{peer} is left out: {why}")
    return found, left


def package_versions():
    """Versions in the peers' two environments."""
    wanted = {PYTHON: ("torch", "torchao"),
              ORT_PYTHON: ("onnxruntime-training-cpu",)}
    program = ("import importlib.metadata as m, json, sys; "
               "print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))")
    versions = {}
    for python, packages in wanted.items():
        if python:
            versions |= json.loads(subprocess.check_output(
                [python, "-c", program, *packages]))
    return versions


def describe_machine(isa=None):
    command = [BIN, "version", "--json", *(["--isa", isa] if isa else [])]
    version = json.loads(subprocess.check_output(command))
    facts = {**machine.cpu(), "load_before": os.getloadavg()[0],
             **{k: version[k] for k in ("isa", "gemm", "threads")}}
    versions = {"onnx-fp8": version["version"], **package_versions()}
    return facts, versions


def train(chosen, facts, result):
    for model in chosen.only:
        if model not in task.MODELS:
            continue
        export(model)
        found, left = contestants(model, chosen, facts["flags"])
        orders = contest.orders(found, chosen.rounds, chosen.seed)
        results, failed = contest.run(found, orders, chosen.steps)
        result["orders"][model] = orders
        result["models"][model] = results
        result["left_out"][model] = left | failed
        for row in contest.OURS:
            if row in results:
                result["profiles"][f"{model}, {row}"] = (
                    found[row].profile(contest.WARM_UP + 3))


def measure(chosen):
    WORK.mkdir(parents=True, exist_ok=True)
    task.write_tokens(WORK / "tokens.bin",
                      max(32, contest.WARM_UP + chosen.steps))
    facts, versions = describe_machine(chosen.isa)
    load = machine.ForeignLoad(time.monotonic)
    result = {
        "date": datetime.date.today().isoformat(), "commit": machine.commit(),
        "machine": facts, "versions": versions,
        "settings": {"size": chosen.size, "rounds": chosen.rounds,
                     "steps": chosen.steps,
                     "seed": chosen.seed,
                     "environment": {k: v for k, v in os.environ.items()
                                     if k.startswith(("OMP_", "MKL_"))}},
        "warnings": [], "models": {}, "orders": {}, "left_out": {},
        "profiles": {}}
    if chosen.isa:
        result["warnings"].append(
            f"held to {chosen.isa}, PyTorch and the libraries too; "
            "onnxruntime-training uses all the machine has")
    if facts["load_before"] > 0.5:
        result["warnings"].append(
            f"the machine was not idle (load {facts['load_before']:.1f})")
        machine.say(result["warnings"][-1])
    train(chosen, facts, result)
    if "gemm" in chosen.only:
        result["gemm"] = gemm.measure(
            [BIN, "bench", "gemm"] + (["--isa", chosen.isa] if chosen.isa
                                      else []),
            PYTHON, SCRIPTS, gemm.libraries(facts["flags"]),
            min(chosen.rounds, 3), 0.03 if chosen.quick else 0.15)
        versions |= result["gemm"]["versions"]
    facts["foreign_cpus"] = load.cpus()
    if facts["foreign_cpus"] > report.FOREIGN_CPUS:
        result["warnings"].append(
            f"other programs kept {facts['foreign_cpus']:.2f} CPUs busy")
    models = result["models"]
    result["ratios"] = report.ratios(models)
    result["ratio_intervals"] = report.ratio_intervals(models)
    result["ratios_of_best"] = report.ratios(models, "best_tokens_per_second")
    result["peak_rss"] = {m: {n: r["peak_rss"] for n, r in results.items()}
                          for m, results in models.items()}
    result["loss_differences"] = report.loss_differences(models)
    return result


def measure_with(benchmark, words):
    """Runs one of the benchmarks that are modules of their own."""
    chosen = benchmark.arguments(words, names)
    WORK.mkdir(parents=True, exist_ok=True)
    facts, _ = describe_machine()
    load = machine.ForeignLoad(time.monotonic)
    result = {"date": datetime.date.today().isoformat(), "commit": machine.commit(),
              "machine": facts,
              **benchmark.measure(chosen, BIN, PYTHON, SCRIPTS, WORK)}
    facts["foreign_cpus"] = load.cpus()
    text = benchmark.markdown(result)
    print(text)
    keep = report.keep if benchmark.TIMED else report.write
    return result, keep(result, text, getattr(chosen, "json", None),
                        chosen.markdown)


def end(complaints):
    if complaints:
        sys.exit("bench: " + "\nbench: ".join(complaints))


def main():
    others = {"busy": busy, "scaling": scaling, "parity": parity,
              "state": state, "memory": memory, "lora": lora, "ranks": ranks,
              "plan": plan, "ort": ort}
    if sys.argv[1:] and sys.argv[1] in others:
        benchmark = others[sys.argv[1]]
        result, complaints = measure_with(benchmark, sys.argv[2:])
        end(benchmark.outside(result) + complaints)
        return
    chosen = arguments()
    if "old" in chosen:
        print(report.compare(json.loads(chosen.old.read_text()),
                             json.loads(chosen.new.read_text())))
        return
    begin = time.monotonic()
    result = measure(chosen)
    result["wall_seconds"] = time.monotonic() - begin
    text = report.markdown(result)
    print(text)
    complaints = report.keep(result, text, chosen.json, chosen.markdown)
    machine.say(f"took {result['wall_seconds']:.0f} s")
    end(report.failures(result) + complaints)


if __name__ == "__main__":
    main()
