# SPDX-License-Identifier: Apache-2.0
"""Three steps of the GPT as the GPU runs them (train --timeline): the time of
each role beside its least time, gaps and the host's share."""
import pathlib
import tempfile

from gpu import end_to_end, report, runs

RECIPE = "tensorwise"


def check(section, make_task, binary, provider, predicted):
    if provider != "cuda":
        raise report.LeftOut(f"the provider is {provider}, whose nodes run one "
                             "after the other")
    task = make_task()
    folder = runs.LOGS or pathlib.Path(tempfile.mkdtemp(dir=task.folder))
    done, figures = end_to_end.ours(
        task, binary, provider, RECIPE, section.left(), "--timeline",
        folder / "timeline.json")
    if done.cut:
        return section.cut(RECIPE)
    timeline = end_to_end.summary(done).get("timeline", {})
    if not figures or not timeline.get("roles"):
        return section.fail(f"{RECIPE}: {done.tail(3)}")
    roles = timeline["roles"]
    section.data.update(task=task.name, recipe=RECIPE,
                        milliseconds=figures["milliseconds"], **timeline)
    section.add(
        f"{task.name}, `{RECIPE}`, {timeline['steps']} steps: "
        f"{timeline['ms']:.2f} ms of the GPU a step; it is idle between "
        f"launches for {timeline['idle_ms']:.2f}, and the host starts a step in "
        f"{timeline['host_ms']:.2f}. Steps without the timeline's records are "
        "in the next section.")
    section.add(report.table(
        ["role", "kernels", "least ms", "ms", "predicted", "gap ms", "beside ms"],
        [line(row["role"], [row], predicted) for row in roles]
        + [line("all", roles, predicted)]))
    for note in timeline["notes"]:
        section.add(f"- {note}")
    if any(row["role"] == "not matched" for row in roles):
        section.fail("some work is not matched to nodes")


def line(name, rows, predicted):
    def total(key):
        known = all(key in row for row in rows)
        return f"{sum(row[key] for row in rows):.3f}" if known else "?"
    return [name, f"{sum(row['calls'] for row in rows):.0f}", total("least_ms"),
            total("ms"), predicted.get(name, ""), total("gap_ms"),
            total("beside_ms")]
