# SPDX-License-Identifier: Apache-2.0
"""Trains modules beside PyTorch, as a newcomer would: exported by onnx_fp8.torch.export, with no flag for what trains.

usage: ./dev modules [--ci] [NAME...]

Without arguments all modules of scripts/modules/, and the table goes to docs/results/modules.md. `--ci`: modules that
CI trains; each is exported once, and the perturbed weights are a checkpoint (`--weights`), because exports take most of
the time. Names, or parts of them: these. The table is then printed only.

Each module has small random weights, fresh ones and perturbed ones. It passes if what trains is what PyTorch trains, if
in ten steps of AdamW and of SGD each loss is PyTorch's within 1e-4 of it, if in FP8 (tensorwise, bfloat16) losses stay
finite and within a tenth, if a session that is saved and resumed goes on with the same bits, and if the module that
gets the weights back computes what PyTorch's trained module does, within 1e-3 of the largest output."""
import gc
import logging
import os
import pathlib
import sys
import time
import traceback
import warnings

import torch

from modules import of_timm, of_torch, of_transformers  # noqa: F401: they register their cases
from modules.case import CASES
from modules.trial import THREADS, try_case

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/results/modules.md"
HEADINGS = {"module": "module", "package": "package", "exporter": "exporter", "trained": "tensors trained",
            "fresh, adamw": "fresh, AdamW", "fresh, sgd": "fresh, SGD", "perturbed, adamw": "perturbed, AdamW",
            "perturbed, sgd": "perturbed, SGD", "fp8": "FP8", "back": "weights back"}


def table(rows):
    lines = ["| " + " | ".join(HEADINGS.values()) + " |", "|" + "---|" * len(HEADINGS)]
    return lines + ["| " + " | ".join(row.get(key, "") for key in HEADINGS) + " |" for row in rows]


def chosen(words):
    names = [word for word in words if not word.startswith("-")]
    return [case for case in CASES.values() if (case.ci or "--ci" not in words)
            and (not names or any(name.lower() in case.name.lower() for name in names))]


def main():
    words = sys.argv[1:]
    if {"-h", "--help"} & set(words):
        print(__doc__)
        return 0
    torch.set_num_threads(THREADS)
    # PyTorch's exporter makes many objects, which live until the module is done. Collecting garbage earlier takes a tenth
    # of the time and frees little.
    gc.freeze()
    gc.disable()
    warnings.simplefilter("ignore")  # of others; notes of ours are caught
    logging.disable(logging.WARNING)
    cases, rows, failures = chosen(words), [], []
    for number, case in enumerate(cases, 1):
        row, start = {"module": case.name, "package": case.package}, time.monotonic()
        try:
            try_case(case, row, once="--ci" in words)
            said = "holds"
        except Exception as error:
            said = (str(error).splitlines() or [""])[0][:400]
            said = said if type(error).__name__ in ("Failed", "Error") else f"{type(error).__name__}: {said}"
            failures.append(f"- {case.name}: {said}")
            said = "FAILED: " + said
            if os.environ.get("ONNX_FP8_MODULES_TRACE"):
                traceback.print_exc()
        gc.collect()
        rows.append(row)
        print(f"[{number}/{len(cases)}] {case.name} ({time.monotonic() - start:.0f} s): {said}", flush=True)
        for text in row.get("notes", []):
            print(f"    note: {text}")
    lines = table(rows) + ["", f"{len(cases) - len(failures)} of {len(cases)} modules hold."]
    if failures:
        lines += ["", "Failures:", "", *failures]
    print("\n" + "\n".join(lines))
    if not words:
        used = [line.strip(" \\\n") for name in ("torch", "modules") for line in (ROOT / f"scripts/requirements-{name}.txt").open()
                if line.startswith(("torch", "transformers", "timm", "peft"))]
        head = ["# Modules beside PyTorch", "", "What `./dev modules` measured with " + ", ".join(used) + ": the worst "
                "difference of a loss in ten steps, divided by PyTorch's loss (in FP8 by 1 if the loss is smaller), and "
                "of an output after the weights are back in PyTorch, divided by the largest.", ""]
        TABLE.write_text("\n".join(head + lines) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
