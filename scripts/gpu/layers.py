# SPDX-License-Identifier: Apache-2.0
"""Layers in FP8 beside the same layers in bfloat16, and the same ratios as
torchao published them for an H100."""
import json

from gpu import report, runs

# pytorch/ao, pull request 2185 (May 2025): rowwise, torch.compile, M = 16384.
# By layer of LLaMA-2-70B: (ratio, milliseconds in FP8).
LINEAR = {"attn.wqkv": (1.11, 1.757), "attn.w0": (1.43, 1.193),
          "ffn.w13": (1.73, 5.707), "ffn.w2": (1.71, 3.034)}
# pytorch/ao, docs/static/fp8-rowwise-perf.png (June 2025): by (M, K, N).
NORM_LINEAR_SIGMOID = {
    (4096, 4096, 4096): 0.84, (4096, 4096, 8192): 1.01,
    (4096, 8192, 4096): 0.91, (4096, 8192, 8192): 1.01,
    (8192, 4096, 4096): 1.00, (8192, 4096, 8192): 1.13,
    (8192, 8192, 4096): 1.05, (8192, 8192, 8192): 1.20}


def measure(section, binary, provider, what, recipe, flags):
    """The layers that were measured before the time was over, in this call or
    an earlier one."""
    key, name = what.replace("-", "_"), f"{what}, {recipe}"
    layers = [layer for layer in section.before.get(key, [])
              if layer["recipe"] == recipe]
    if name not in section.before.get("whole", []):
        done = runs.run([binary, "bench", what, "--provider", provider,
                         "--dtype", "bfloat16", "--recipe", recipe, "--json",
                         *flags], max(1, section.left()), errors=False)
        if done.cut:
            section.cut(f"some layers of {name}")
        elif done.code:
            section.fail(f"bench {what} --recipe {recipe}: exit code "
                         f"{done.code}")
        printed = json.loads(done.out)["layers"] if done.out.strip() else []
        if len(printed) >= len(layers):
            layers = [{"recipe": recipe, **layer} for layer in printed]
        if done.cut or done.code:
            name = None
    if name:
        section.data.setdefault("whole", []).append(name)
    section.data.setdefault(key, []).extend(layers)
    return layers


def check(section, binary, provider, quick):
    linear = (["--shape", "64,128,64", "--seconds", "0"] if quick
              else ["--rows", "16384", "--seconds", "0.3"])
    lines = []
    for recipe in ("rowwise", "tensorwise"):
        for layer in measure(section, binary, provider, "linear", recipe,
                             linear):
            name = layer.get("layer", "linear")
            lines.append(line(name, layer, *LINEAR.get(name, ("", ""))))
    sizes = (["--sizes", "64", "--seconds", "0"] if quick
             else ["--sizes", "4096,8192", "--seconds", "0.2"])
    for layer in measure(section, binary, provider, "norm-linear-sigmoid",
                         "rowwise", sizes):
        size = layer["m"], layer["k"], layer["n"]
        lines.append(line("norm-linear-sigmoid", layer,
                          NORM_LINEAR_SIGMOID.get(size, ""), ""))
    section.add(report.table(
        ["layer", "M", "K", "N", "recipe", "bfloat16 ms", "FP8 ms", "speed-up",
         "torchao's on H100 (rowwise)", "its FP8 ms"], lines))


def line(name, layer, ratio, milliseconds):
    return [name, layer["m"], layer["k"], layer["n"], layer["recipe"],
            f"{layer['high_precision_ms']['median']:.3f}",
            f"{layer['recipe_ms']['median']:.3f}", f"{layer['speedup']:.2f}",
            ratio, milliseconds]
