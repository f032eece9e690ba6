# SPDX-License-Identifier: Apache-2.0
"""LoRA on a Llama of 7 billion parameters whose frozen weights live as FP8
codes. The model is exported from the meta device, its weights are drawn into a
folder of shards in bfloat16. A run is measured, cut in its middle and resumed:
both must have the same bits. Beside it PEFT trains the same adapters in
bfloat16, if the memory suffices.

  ./dev bench lora [--quick] [--dtype DTYPE] [--steps N] [--recompute WHAT]
                   [--no-peer] [--json FILE] [--markdown FILE]
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess

import numpy

from bench import report
from bench.machine import environment, say

TIMED = False  # bytes and bits are the same beside other programs
GIB = 2**30
# By the names of transformers' LlamaConfig.
LLAMA_7B = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 32}
QUICK = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}
TOKENS, QUICK_TOKENS = 512, 16
SHARD_BYTES, QUICK_SHARD_BYTES = 2 * GIB, 2**14
# {figure: the most bytes of the whole model}
GOALS = {"state_bytes": 8.5 * GIB, "peak_bytes": 12 * GIB}
RANK, ALPHA, TARGETS, LR = 16, 32, ("q_proj", "v_proj"), 1e-4
LORA = f"r={RANK},alpha={ALPHA},targets={','.join(TARGETS)}"
INDEX = "model.safetensors.index.json"
AT_ONCE = 1 << 22  # numbers that are drawn at once
ONE = 0x3F80  # in bfloat16


def arguments(words, _):
    parser = argparse.ArgumentParser(prog="./dev bench lora", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tiny Llama")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16",
                        help="of what does not run in FP8 (bfloat16)")
    parser.add_argument("--steps", type=int, default=4, help="of the whole run, an even number (4)")
    parser.add_argument("--recompute", default="", help="as `train --recompute`")
    parser.add_argument("--no-peer", action="store_true", help="without PEFT")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    chosen = parser.parse_args(words)
    if chosen.steps < 2 or chosen.steps % 2:
        parser.error(f"--steps: expected an even number from 2 on, got {chosen.steps}")
    return chosen


# ---- the model ---------------------------------------------------------------

def shapes(config):
    """{name: shape} of a Llama's weights, as transformers names them."""
    width, hidden = config["hidden_size"], config["intermediate_size"]
    keys = width // config["num_attention_heads"] * config["num_key_value_heads"]
    found = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for i in range(config["num_hidden_layers"]):
        layer = {"self_attn.q_proj": (width, width), "self_attn.k_proj": (keys, width),
                 "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, width),
                 "mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden),
                 "input_layernorm": (width,), "post_attention_layernorm": (width,)}
        found |= {f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()}
    return found | {"model.norm.weight": (width,), "lm_head.weight": (config["vocab_size"], width)}


def count(shape):
    return int(numpy.prod(shape, dtype=numpy.int64))


def parameters(config):
    return sum(count(shape) for shape in shapes(config).values())


def shards(wanted, most):
    """Lists of names whose tensors together have at most that many bytes, or
    one tensor."""
    found, held = [[]], 0
    for name, shape in wanted.items():
        if found[-1] and held + 2 * count(shape) > most:
            found.append([])
            held = 0
        found[-1].append(name)
        held += 2 * count(shape)
    return found


def halves(random, numbers):
    """Normal numbers of deviation 0.02 as the nearest bfloat16s."""
    bits = (random.standard_normal(numbers, numpy.float32) * numpy.float32(0.02)).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def draw(folder, config, most):
    """Writes the folder of a checkpoint, a piece of a tensor at a time. The
    index comes last."""
    folder.mkdir(exist_ok=True)
    wanted, random, places = shapes(config), numpy.random.default_rng(0), {}
    groups = shards(wanted, most)
    for i, names in enumerate(groups):
        file = f"model-{i + 1:05}-of-{len(groups):05}.safetensors"
        say(f"drawing {file}")
        header, end = {}, 0
        for name in names:
            begin, end = end, end + 2 * count(wanted[name])
            header[name] = {"dtype": "BF16", "shape": wanted[name], "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for name in names:
                numbers = count(wanted[name])
                for begin in range(0, numbers, AT_ONCE):
                    n = min(AT_ONCE, numbers - begin)
                    # Scales of norms are vectors.
                    piece = halves(random, n) if len(wanted[name]) > 1 else numpy.full(n, ONE, "<u2")
                    piece.tofile(out)
        places |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": 2 * parameters(config)}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index))


def in_torch(scripts, module, *words):
    """The output of a script beside it that needs PyTorch with transformers."""
    path = os.environ.get("ONNX_FP8_MODULES_PATH", "")
    command = [os.environ["ONNX_FP8_TORCH_PYTHON"], "-m", module, *map(str, words)]
    return subprocess.run(command, cwd=scripts, env=environment(PYTHONPATH=path), check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def prepare(config, tokens, most, steps, scripts, folder):
    """Weights, model and tokens of a run. The weights stay for the next one."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "weights" / INDEX).exists():
        draw(folder / "weights", config, most)
    say("exporting the model from the meta device")
    in_torch(scripts, "bench.torch_llama", json.dumps(config), folder / "model.onnx", folder / "weights")
    random = numpy.random.default_rng(1)
    random.integers(0, config["vocab_size"], steps * tokens + 1).astype("<u2").tofile(folder / "tokens.bin")


# ---- runs --------------------------------------------------------------------

def newest(run):
    return run / "checkpoints" / (run / "latest").read_text().strip()


def digest(run):
    """Of all state of the newest checkpoint: adapters, moments, counters."""
    return hashlib.sha256((newest(run) / "state.safetensors").read_bytes()).hexdigest()


def train(binary, run, before, *words):
    """Figures of a run that has done some steps `before`. The first step of a
    process also plans, and makes codes."""
    done = json.loads(subprocess.run([binary, "train", *map(str, words), "--out", run, "--json"], env=environment(),
                                     check=True, stdout=subprocess.PIPE, text=True).stdout)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    speeds = [step["tokens_per_second"] for step in steps[before:]]
    return {"losses": [step["loss"] for step in steps], "digest": digest(run),
            "tokens_per_second": statistics.median(speeds[1:] or speeds),
            **{name: done[name] for name in ("state_bytes", "arena_bytes", "peak_bytes")}}


def go_back(run, step):
    """The run is as if it had been killed behind this step."""
    (run / "latest").write_text(f"step_{step:08}\n")


def measure_ours(chosen, binary, tokens, folder):
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    more = ["--recompute", chosen.recompute] if chosen.recompute else []
    say("training")
    whole = train(binary, run, 0, folder / "model.onnx", "--weights", folder / "weights", "--data", folder / "tokens.bin",
                  "--loss", "cross_entropy", "--batch-size", 1, "--seq-len", tokens, "--no-shuffle", "--lr", LR,
                  "--recipe", "tensorwise", "--dtype", chosen.dtype, "--lora", LORA, "--frozen", "fp8", *more, "--steps",
                  chosen.steps, "--save-every", chosen.steps // 2)
    frozen = list((run / "checkpoints").glob("frozen_*.safetensors"))
    found = {"whole": whole, "frozen_bytes": sum(file.stat().st_size for file in frozen),
             "checkpoint_bytes": sum(file.stat().st_size for file in newest(run).iterdir())}
    go_back(run, chosen.steps // 2)
    say("resuming")
    found["resumed"] = train(binary, run, chosen.steps // 2, "--resume")
    shutil.rmtree(run)
    return found


def available():
    """Bytes that programs can have without swapping."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def measure_peer(chosen, config, tokens, scripts, folder):
    """PEFT's figures, or the reason why there are none."""
    if chosen.no_peer:
        return "it was not asked for"
    needed = int(2.3 * parameters(config)) + 2 * GIB
    if available() < needed:
        return f"it needs about {needed / GIB:.1f} GiB, and {available() / GIB:.1f} GiB are free"
    say("training with PEFT")
    settings = {"rank": RANK, "alpha": ALPHA, "targets": TARGETS, "lr": LR, "steps": chosen.steps, "tokens": tokens}
    return json.loads(in_torch(scripts, "bench.torch_lora", folder / "weights", folder / "tokens.bin",
                               json.dumps(settings)))


def measure(chosen, binary, python, scripts, work):
    config, tokens, most = ((QUICK, QUICK_TOKENS, QUICK_SHARD_BYTES) if chosen.quick
                            else (LLAMA_7B, TOKENS, SHARD_BYTES))
    folder = work / "lora" / ("quick" if chosen.quick else "7b")
    prepare(config, tokens, most, chosen.steps, scripts, folder)
    return {"quick": chosen.quick, "dtype": chosen.dtype, "recompute": chosen.recompute, "tokens": tokens,
            "steps": chosen.steps, "parameters": parameters(config), **measure_ours(chosen, binary, tokens, folder),
            "peft": measure_peer(chosen, config, tokens, scripts, folder)}


# ---- the report --------------------------------------------------------------

def same_bits(result):
    whole, resumed = result["whole"], result["resumed"]
    return all(whole[fact] == resumed[fact] for fact in ("losses", "digest"))


def gib(size):
    return f"{size / GIB:.2f}"


def markdown(result):
    peer, rows = result["peft"], []
    for name in ("whole", "resumed"):
        run = result[name]
        rows.append([f"onnx-fp8, {name} run", gib(run["state_bytes"]), gib(run["arena_bytes"]), gib(run["peak_bytes"]),
                     f"{run['tokens_per_second']:.1f}", f"{run['losses'][0]:.4f}", f"{run['losses'][-1]:.4f}"])
    if isinstance(peer, dict):
        rows.append(["PEFT, torch in bfloat16", "-", "-", gib(peer["peak_bytes"]), f"{peer['tokens_per_second']:.1f}",
                     f"{peer['losses'][0]:.4f}", f"{peer['losses'][-1]:.4f}"])
    left = f"\nPEFT is left out: {peer}.\n" if isinstance(peer, str) else ""
    recompute = f" --recompute {result['recompute']}" if result["recompute"] else ""
    return "\n".join([
        "# LoRA beside FP8 codes", "",
        f"A Llama of {result['parameters']:,} parameters in bfloat16 shards, {result['steps']} steps of "
        f"{result['tokens']} tokens: `--lora {LORA} --frozen fp8 --recipe tensorwise --dtype {result['dtype']}"
        f"{recompute}`. State, arena and the peak of the process (VmHWM) in GiB. Tokens/s are the median of all steps but "
        "the first.", "",
        report.table(["", "state", "arena", "peak", "tokens/s", "first loss", "last loss"], rows) + left,
        f"A checkpoint takes {result['checkpoint_bytes'] / 2**20:.1f} MiB. The file with the frozen weights, which "
        f"all checkpoints share, takes {gib(result['frozen_bytes'])} GiB.", "",
        f"The resumed run has {'the' if same_bits(result) else 'not the'} bits of the whole one: losses, adapters, moments "
        "and counters.", ""])


def outside(result):
    """Other bits after a cut, and goals that are missed."""
    complaints = [] if same_bits(result) else ["the resumed run has other bits than the whole one"]
    for name, goal in GOALS.items():
        for run in ("whole", "resumed"):
            size = result[run][name]
            if not result["quick"] and size > goal:
                complaints.append(f"{name} of the {run} run: {gib(size)} GiB, expected at most {gib(goal)}")
    return complaints
