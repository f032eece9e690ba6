# SPDX-License-Identifier: Apache-2.0
"""Causal attention alone, forward and backward, in one call and in several that
have a part of the batch each."""
import dataclasses
import json

from gpu import report, runs


@dataclasses.dataclass(frozen=True)
class Shape:
    sequence: int
    head_size: int
    heads: int
    batch: int
    slices: tuple

    def name(self):
        return (f"T {self.sequence}, D {self.head_size}, H {self.heads}, "
                f"B {self.batch}")

    def flags(self):
        return ["--sequence", self.sequence, "--head-size", self.head_size,
                "--heads", self.heads, "--batch", self.batch, "--slices",
                ",".join(map(str, self.slices))]


# GPT-2's layer, Llama's layer, and each with the other's length. The most
# telling ones come first.
SHAPES = (Shape(1024, 64, 12, 16, (1, 4, 8)),
          Shape(8192, 128, 32, 1, (1, 4, 8)),
          Shape(1024, 128, 32, 8, (1, 4, 8)),
          Shape(8192, 64, 12, 2, (1, 2, 4, 8)))
QUICK = (Shape(32, 16, 2, 4, (1, 2, 8)),)
ANY_ORDER = "--nondeterministic"


def measure(section, binary, provider, shape, flags, seconds, rows):
    """Adds a row for each number of slices, unless earlier calls did."""
    order = ", any order" if ANY_ORDER in flags else ""
    names = {count: f"{shape.name()}; slices {count}{order}"
             for count in shape.slices}
    if all(name in rows for name in names.values()):
        return
    done = runs.run([binary, "bench", "attention", "--provider", provider,
                     "--dtype", "bf16", "--seconds", seconds, "--json",
                     *shape.flags(), *flags], max(1, section.left()),
                    errors=False)
    cases = json.loads(done.out)["cases"] if done.out.strip() else []
    for case in cases:
        rows[names[case["slices"]]] = case
    if done.cut:
        missing = [name for name in names.values() if name not in rows]
        section.cut("; ".join(missing) or f"{shape.name()}{order}, its end")
    elif done.code:
        section.fail(f"{shape.name()}{order}: exit code {done.code}")


def check(section, binary, provider, quick, predicted):
    rows = dict(section.before.get("rows", {}))
    for shape in QUICK if quick else SHAPES:
        for flags in ([], [ANY_ORDER]) if provider == "cuda" else ([],):
            measure(section, binary, provider, shape, flags,
                    0 if quick else 0.1, rows)
    section.data["rows"] = rows
    section.add("One layer in bfloat16. Calls for parts of the batch follow "
                "each other and share one workspace. %: of the peak of 16-bit "
                "products.")
    section.add(report.table(
        ["attention", "forward ms", "predicted", "TF/s", "%", "backward ms",
         "predicted", "TF/s", "%"],
        [line(name, row, predicted.get(name, ("", "")))
         for name, row in rows.items()]))


def line(name, row, predicted):
    if "forward_ms" not in row:
        return [f"{name}: {row.get('error', row.get('note'))}"] + 8 * [""]
    cells = [name]
    for direction, milliseconds in zip(("forward", "backward"), predicted):
        share = row.get(f"{direction}_share")
        cells += [f"{row[f'{direction}_ms']:.3f}", milliseconds,
                  f"{row[f'{direction}_gflops'] / 1e3:.1f}",
                  "?" if share is None else f"{100 * share:.1f}"]
    return cells
