# SPDX-License-Identifier: Apache-2.0
"""`onnx-fp8 plan` beside published figures of torchtitan and torchao on the same
hardware. Nothing is trained. Assumptions are made for a machine or for PyTorch's
attention, never for a single row.

  ./dev bench plan [--json FILE] [--markdown FILE]
"""
import argparse
import dataclasses
import json
import pathlib
import subprocess

from bench import graphs, report
from bench.machine import say

TIMED = False
CLOSE = 0.15  # relative error that needs no explanation



def shares(clock=1.0, memory=0.80):
    """--efficiency for PyTorch's attention, FlashAttention-2, at a share of the
    clock of a GPU that may take 700 W. What is not named keeps its default."""
    values = {
        # The default: layers in bfloat16 on an H200 (docs/results/h200.md).
        "products": 0.75 * clock,
        # Of FlashAttention-2 on H100, by the paper on FlashAttention-3: 35 % of
        # the peak (abstract); backward, D 128, 8k: 318 TFLOP/s (figure 6).
        "attention": 0.35 * clock, "attention_grad": 0.32 * clock,
        # Quantizers read twice what counts once; see Efficiency.
        "memory": memory, "quantizing": memory * 0.50 / 0.80}
    return ("--efficiency",
            ",".join(f"{kind}={value:.3g}" for kind, value in values.items()))


# torchtitan's and torchao's H100 have HBM2e of 2.4 TB/s and a limit of 500 W.
# - The clock: the four layers of Llama 2 70B in bfloat16 that torchao published
#   take 18.72 ms there, and ours 14.69 on an H200 of 700 W, without the rounding
#   of weights (scripts/gpu/layers.py, docs/results/h200.md). In FP8 they take
#   11.7 and 10.8 ms. Casts over slower memory explain the difference, so FP8
#   products keep the default share.
# - The memory: torchao's large pointwise kernels reach 2.2 TB/s there, 92 %. Our
#   kernels reach 91 % of the speed of such a kernel (80 of 88 % on the H200).
GRAND_TETON = ("--gpu", "h100", "--memory-bandwidth", "2400",
               *shares(clock=14.69 / 18.72, memory=0.92 * 0.80 / 0.88))
# IBM's clusters of 256 and 512 H100 have HBM3 and no limit that is known of.
H100 = ("--gpu", "h100", *shares())
H200 = ("--gpu", "h200", *shares())
BF16 = ("--recipe", "off")
# The last layer stays in 16 bits, as in the published runs.
FP8 = ("--recipe", "tensorwise", "--filter-fqns", "lm_head")
FP8_BF16_GATHER = (*FP8, "--gather-dtype", "bfloat16")
ROWWISE = ("--recipe", "rowwise", "--filter-fqns", "lm_head")
# Modules of a layer that run a second time with torchtitan's selective
# recomputation. Its list keeps the results of attention and of the first, third,
# … product in 16 bits (q, k, v, output, gate, up, down). It does not name FP8
# products, so all of them run again. The norm in front of a layer is one node
# with the residual sum that the layer keeps, so it is kept, too.
ALWAYS = ("*.heads", "*.post_attention_layernorm", "*.act")
SELECTIVE = {BF16: (*ALWAYS, "*.k_proj", "*.o_proj", "*.up_proj"),
             FP8: (*ALWAYS, "*_proj")}
WHY = {
    "kernels": "the published runs have PyTorch's kernels: FSDP copies weights "
               "and gradients into and out of its buffers, torch.compile reads "
               "tensors more often, and the loss is not fused",
    "recompute": "what runs again is torchtitan's list; torch.compile may keep "
                 "more of it",
    "rowwise": "cuBLAS multiplies rows and columns of scales slower than one "
               "scale; both have one peak here",
    "guess": "local batch and recomputation are not published: 1 sample and "
             "full are assumed",
    "tensor": "gathers between the parts of a layer are exposed, and async TP "
              "hides some",
    "small": "the smallest batch: what does not grow with it is missing here "
             "(the host, which starts each kernel there); most of this error "
             "is not explained",
}


@dataclasses.dataclass
class Row:
    name: str
    model: str
    mesh: str
    batch: int  # of all ranks
    seq: int
    flags: tuple
    gpu: tuple
    recompute: str
    published: float  # tokens per second and GPU
    why: tuple
    source: str


TT = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
AO = "torchao, docs/source/workflows/training.md"
NC = "torchao, prototype/float8nocompile/README.md"
TP = "torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md"
WF = "torchtitan, benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md"
BLOG = "PyTorch blog, 2024-11-25, training using float8 and FSDP2"


def fsdp(model, ranks, batch, flags, recompute, published, why, source,
         gpu=GRAND_TETON, seq=8192):
    kind = {BF16: "bf16", FP8: "FP8, FP8 gather", ROWWISE: "FP8 rowwise",
            FP8_BF16_GATHER: "FP8, bf16 gather"}[flags]
    return Row(f"{model} {kind}, {ranks} {gpu[1].upper()}, {batch} x {seq}",
               f"llama3_{model.lower()}", f"dp={ranks}", ranks * batch, seq,
               flags, gpu, recompute, published, why, source)


USUAL = ("kernels", "recompute")
ROWS = [
    fsdp("8B", 8, 1, FP8, "none", 6667.6, ("kernels", "small"), NC, seq=4096),
    fsdp("8B", 8, 1, BF16, "selective", 6150, USUAL, AO),
    fsdp("8B", 8, 1, FP8, "selective", 7689.5, USUAL, AO),
    fsdp("8B", 8, 1, ROWWISE, "selective", 6768, ("rowwise", *USUAL), AO),
    fsdp("8B", 8, 2, BF16, "selective", 6667, USUAL, TT),
    fsdp("8B", 8, 2, FP8, "selective", 8532, USUAL, TT),
    fsdp("8B", 128, 2, BF16, "selective", 6514, USUAL, TT),
    fsdp("8B", 128, 2, FP8, "selective", 8380, USUAL, TT),
    fsdp("8B", 32, 2, FP8, "selective", 10938, USUAL, WF, H200),
    fsdp("8B", 64, 2, FP8, "selective", 10753, USUAL, WF, H200),
    Row("70B FP8, FP8 gather, FSDP 32 TP 8, 256 H100, 16 x 8192", "llama3_70b",
        "dp=32,tp=8", 512, 8192, FP8, GRAND_TETON, "full", 829,
        ("kernels", "tensor"), TT),
    fsdp("70B", 256, 1, BF16, "full", 956, ("guess",), BLOG, H100),
    fsdp("70B", 256, 1, FP8, "full", 1430, ("guess",), BLOG, H100),
    fsdp("70B", 512, 1, BF16, "full", 960, ("guess",), BLOG, H100),
    fsdp("70B", 512, 1, FP8, "full", 1448, ("guess",), BLOG, H100),
]
NOT_MODELED = [
    ("8B with context parallelism, 32K to 256K tokens", TT),
    ("async TP (70B: 876, 942), and TP of the second study", f"{TT}; {TP}"),
    ("405B, FSDP 8, TP 8, PP 8 on 512 GPUs (100, 128), with context "
     "parallelism (76 to 16)", TT),
    ("405B with TP 4 (149 in bf16, 227 in FP8): the mesh is not published",
     BLOG),
]
SHARES = ("products", "fp8", "attention", "attention_grad", "memory",
          "quantizing")
# Both gathers of the same run: published as "about 5 %" of speed.
GATHERS = [("8b", 8, 1), ("70b", 256, 1), ("405b", 512, 1)]


def arguments(words, _):
    parser = argparse.ArgumentParser(
        prog="./dev bench plan", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    return parser.parse_args(words)


def model_file(name, work):
    path = work / f"{name}.onnx"
    graphs.llama3(name, path)
    return path


def forecast(binary, path, mesh, batch, seq, *flags):
    done = subprocess.run(
        [binary, "plan", path, "--loss", "cross_entropy", "--mesh", mesh,
         "--shard", "parameters", "--batch-size", str(batch), "--shape",
         f"seq={seq}", "--dtype", "bfloat16", *flags, "--json"],
        check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def recomputes(row):
    """Flags of `plan` for what the published run computes again."""
    if row.recompute == "none":
        return ()
    if row.recompute == "full":
        return ("--recompute", "blocks")
    globs = SELECTIVE[BF16 if row.flags == BF16 else FP8]
    return ("--recompute", ",".join(globs))


def measure(_, binary, python, scripts, work):
    work.mkdir(parents=True, exist_ok=True)
    files = {name: model_file(name, work) for name in graphs.LLAMA3}
    rows = []
    for row in ROWS:
        say(row.name)
        plan = forecast(binary, files[row.model], row.mesh, row.batch, row.seq,
                        *row.gpu, *row.flags, *recomputes(row))
        speed = plan["tokens_per_second"]
        rows.append({**dataclasses.asdict(row), "predicted": speed,
                     "error": speed / row.published - 1, "plan": plan})
    gathers = []
    for size, ranks, batch in GATHERS:
        say(f"{size}: gathers")
        kinds = {kind: forecast(binary, files[f"llama3_{size}"], f"dp={ranks}",
                                ranks * batch, 8192, *GRAND_TETON, *flags)
                 for kind, flags in (("fp8", FP8),
                                     ("bfloat16", FP8_BF16_GATHER))}
        gathers.append({"model": size, "ranks": ranks, **kinds})
    return {"rows": rows, "gathers": gathers, "warnings": []}


def machines(rows):
    """A line for each machine that rows have."""
    lines = {}
    for row in rows:
        gpu, used = row["gpu"], row["plan"]["efficiency"]
        limited = tuple(gpu) == GRAND_TETON
        name = "H100, 500 W" if limited else gpu[1].upper()
        bandwidth = "2.4" if limited else {"h100": "3.35", "h200": "4.8"}[gpu[1]]
        lines[name] = [name, bandwidth,
                       *(f"{100 * used[kind]:.0f}" for kind in SHARES)]
    return list(lines.values())


def markdown(result):
    rows = result["rows"]
    sources = list(dict.fromkeys(row["source"] for row in rows))
    table = [[row["name"], row["recompute"], f"{row['predicted']:.0f}",
              f"{row['published']:.0f}", f"{100 * row['error']:+.0f} %",
              f"{100 * row['plan']['mfu']:.0f} %",
              str(sources.index(row["source"]) + 1)] for row in rows]
    heads = ["model, GPUs, samples of a GPU x tokens", "recomputed",
             "predicted", "published", "error", "MFU", "source"]
    far = {why: [n for n, row in enumerate(rows, 1)
                 if abs(row["error"]) > CLOSE and why in row["why"]]
           for why in WHY}
    gathers = [[g["model"].upper(), str(g["ranks"]),
                *(f"{sum(c['ms'] for c in g[k]['collectives'] if c['op'] == 'AllGather'):.0f}"
                  for k in ("bfloat16", "fp8")),
                *(f"{g[k]['ms']['step']:.0f}" for k in ("bfloat16", "fp8"))]
               for g in result["gathers"]]
    return "\n".join([
        "# `plan` beside published figures", "",
        "Tokens per second and GPU, FSDP of all parameters. `onnx-fp8 plan` "
        "makes the prediction for a Llama 3 of the same shape. It is told what "
        "is known about the machines (below) and nothing about a row. "
        "The plans compute again what the "
        "published runs do: with \"full\" each layer (`--recompute blocks`); "
        "with \"selective\" all of a layer but its first norm, attention and, in "
        "16 bits, every second product, as torchtitan's list says.", "",
        report.table(heads, table), "",
        *(f"{n}. {source}" for n, source in enumerate(sources, 1)), "",
        "Why rows are off by more than 15 %, by number of the row:", "",
        *(f"- {WHY[why]}: {', '.join(map(str, numbers))}"
          for why, numbers in far.items() if numbers), "",
        "## Machines", "",
        "Shares of the peaks, in percent. All of these runs have PyTorch's "
        "FlashAttention-2; our attention on an H200 reaches 62 and 44 %. A limit "
        "of 500 W slows products in 16 bits and attention by a fifth, as layers "
        "of torchao show beside ours; it slows FP8 products little. The sources "
        "are in `scripts/bench/plan.py`.", "",
        report.table(["GPU", "TB/s", *SHARES], machines(rows)), "",
        "## FP8 gathers", "",
        "The same run with weights that travel in bfloat16 and in FP8, "
        "milliseconds. Published: about 5 % of speed (source "
        f"{sources.index(BLOG) + 1}). Both are gathered once for the forward and "
        "once for the backward, a layer in one call. In FP8 a call has half "
        "the bytes and as many hops.", "",
        report.table(["model", "GPUs", "gathers, bf16", "gathers, FP8",
                      "step, bf16", "step, FP8"], gathers), "",
        "## Not modeled", "",
        *(f"- {what} ({source})" for what, source in NOT_MODELED)])


def outside(_):
    return []
