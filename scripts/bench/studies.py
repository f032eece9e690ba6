# SPDX-License-Identifier: Apache-2.0
"""The command line of a benchmark that is a study (parity_runs.py), and what its
result says of the study."""
import argparse
import datetime
import pathlib

from bench import machine, parity_runs
from bench.machine import say


def parser(name, text, seeds, steps, names):
    """The options that all studies have. `names`: the type of a list of names."""
    made = argparse.ArgumentParser(
        prog=f"./dev bench {name}", description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--json", type=pathlib.Path, help="write the figures of the tables")
    add("--markdown", type=pathlib.Path, help="write the tables too")
    add("--dtypes", type=names(parity_runs.DTYPES), default=parity_runs.DTYPES,
        help="some of " + ",".join(parity_runs.DTYPES))
    add("--seeds", type=int, default=seeds, help=f"of each run ({seeds})")
    add("--steps", type=int, help=f"of each run ({steps})")
    add("--threads", type=int, help="of each run (all CPUs); losses are the "
        "same with any number")
    add("--folder", type=pathlib.Path,
        help=f"where studies are kept (build/bench/{name})")
    add("--study", metavar="ID",
        help="go on with this study and its own copy of the program, not with "
        "that of the program as it is built now")
    add("--report-only", action="store_true",
        help="train nothing, report on the runs that are there")
    return made


def parse(of, words):
    """The words, checked. `of`: the parser."""
    chosen = of.parse_args(words)
    for path in (chosen.json, chosen.markdown):
        if path and not path.parent.is_dir():
            of.error(f"there is no folder {path.parent}")
    for name in ("seeds", "steps", "threads"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            of.error(f"--{name}: expected at least 1, got {value}")
    if chosen.steps and (chosen.study or chosen.report_only):
        of.error("--steps: expected only with a study of the program as it is "
                 "built now: another study has its own steps")
    return chosen


def run(chosen, runs, folder, steps, tools, kind=parity_runs.Study):
    """The results of these runs, and what the benchmark's result says of the
    study. `folder`, `steps`: unless others are chosen. `tools`: the program,
    Python, and the folder of scripts."""
    binary, python, scripts = tools
    folder = chosen.folder or folder
    if chosen.study or chosen.report_only:
        study = parity_runs.find(folder, chosen.study, kind)
    else:
        study = parity_runs.begin(
            folder, binary, chosen.steps or steps, scripts,
            {"commit": machine.commit(), "cpu": machine.cpu()["cpu"],
             "date": datetime.date.today().isoformat()}, kind)
    if chosen.report_only:
        results = study.results(runs)
    else:
        say(f"study {study.folder}")
        results = study.go_on(runs, chosen.threads, python, scripts)
    return results, {"study": study.folder.name, "settings": study.settings,
                     "commit": study.facts["commit"],
                     "machine": {"cpu": study.facts["cpu"],
                                 "isa": study.settings["isa"]}}
