# SPDX-License-Identifier: Apache-2.0
"""Matrix products of this program, OpenBLAS, MKL and PyTorch in bfloat16: each
library in a process of its own, in turn; the best of all rounds counts."""
import json
import subprocess

from bench import task
from bench.machine import environment, has_bf16, say


# The dtypes of the operands of this program's products. Results are bfloat16
# for operands of bfloat16, else fp32.
OURS = ("fp32", "bf16", "fp8")


def libraries(flags):
    return ("openblas", "mkl", *(["torch_bf16"] if has_bf16(flags) else []))


def key(product):
    return tuple(product[x] for x in ("m", "k", "n", "layout"))


def step_products(inputs, outputs):
    """The products of one nn.Linear in a training step."""
    rows = task.TOKENS
    return {
        "forward": {"m": rows, "k": inputs, "n": outputs, "layout": "NT"},
        "dgrad": {"m": rows, "k": outputs, "n": inputs, "layout": "NN"},
        "wgrad": {"m": outputs, "k": rows, "n": inputs, "layout": "TN"},
    }


def products():
    """Two squares, then every linear layer of the two models."""
    listed = [{"m": n, "k": n, "n": n, "layout": "NN", "what": "square"}
              for n in (1024, 2048)]
    linears = sorted({size for model in task.LINEARS.values()
                      for size in model})
    for size in linears:
        for what, product in step_products(*size).items():
            listed.append({**product, "what": what})
    return listed


def run_ours(command, listed, seconds):
    shapes = []
    for p in listed:
        shapes += ["--shape", f"{p['m']},{p['k']},{p['n']},{p['layout']}"]
    done = subprocess.run(
        [*command, "--json", "--seconds", str(seconds), "--dtype",
         ",".join(OURS), *shapes],
        env=environment(), check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def run_library(python, scripts, library, listed, seconds):
    done = subprocess.run(
        [python, "-m", "bench.blas_peer", library, str(seconds)],
        input=json.dumps(listed), env=environment(), cwd=scripts, check=True,
        stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measure(command, python, scripts, libraries, rounds, seconds):
    """{"products": [...], "peak": {...}, "step_ms": {...}, "versions": {...}},
    speeds in GF/s."""
    listed = products()
    best = [dict(p) for p in listed]
    peak, versions = {}, {}

    def keep(row, name, gflops):
        row[name] = max(row.get(name, 0), gflops)

    for turn in range(rounds):
        say(f"gemm: round {turn + 1} of {rounds}")
        ours = run_ours(command, listed, seconds)
        rows = {key(p): p for p in best}
        for p in ours["products"]:
            keep(rows[key(p)], p["dtype"], p["gflops"])
        for dtype, gflops in ours["peak"].items():
            keep(peak, dtype, gflops)
        for library in libraries:
            theirs = run_library(python, scripts, library, listed, seconds)
            versions[library] = theirs["version"]
            for row, gflops in zip(best, theirs["gflops"]):
                keep(row, library, gflops)
    return {"products": best, "peak": peak, "kernels": ours["gemm"],
            "versions": versions,
            "step_ms": step_sums(best, (*OURS, *libraries))}


def step_sums(rows, names):
    """Milliseconds of all linear layers of a step, by model and contestant."""
    speeds = {key(row): row for row in rows}
    sums = {}
    for model, linears in task.LINEARS.items():
        for name in names:
            seconds = 0.0
            for size, count in linears.items():
                for p in step_products(*size).values():
                    operations = 2e-9 * p["m"] * p["k"] * p["n"]
                    seconds += count * operations / speeds[key(p)][name]
            sums.setdefault(model, {})[name] = 1000 * seconds
    return sums
