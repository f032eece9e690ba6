# SPDX-License-Identifier: Apache-2.0
"""Places that can't be written, and files that must not be replaced."""
import numpy as np

from bad_input.case import Cases, arrays, good, good_run, grad, train

CASES = cases = Cases()


@cases("[report.html] is there, and is no page of `onnx-fp8 report`: remove it")
def report_over_another_file(folder):
    good_run(folder)
    (folder / "report.html").write_text("precious")
    return ["report", "run", "-o", "report.html"]


@cases("[none/report.html] can't be written: there is no folder")
def report_without_its_folder(folder):
    good_run(folder)
    return ["report", "run", "-o", "none/report.html"]


@cases("[run] is a folder: expected the name of a page")
def report_in_place_of_a_folder(folder):
    good_run(folder)
    return ["report", "run", "-o", "run"]


@cases("[data] expected the folder of a run", "got one without metrics.jsonl")
def report_on_another_folder(folder):
    (folder / "data").mkdir()
    return ["report", "data", "-o", "report.html"]


@cases("[none] there is no such folder")
def report_on_no_folder(folder):
    return ["report", "none", "-o", "report.html"]


@cases("[m.onnx] is a file: expected the folder of a run")
def report_on_a_file(folder):
    good(folder)
    return ["report", "m.onnx", "-o", "report.html"]


@cases("[run/metrics.jsonl] expected a JSON object with a step in each line, got none")
def report_on_metrics_of_others(folder):
    good_run(folder)
    (folder / "run" / "metrics.jsonl").write_text("[" * 100_000 + "\nstep 1\n")
    return ["report", "run", "-o", "report.html"]


@cases("[run/statistics.jsonl]", "link")
def report_on_a_link(folder):
    good_run(folder)
    (folder / "run" / "statistics.jsonl").symlink_to("metrics.jsonl")
    return ["report", "run", "-o", "report.html"]


@cases("[run] holds a run already: --resume goes on with it, another --out starts a new one")
def run_in_the_folder_of_a_run(folder):
    good_run(folder)
    return train()


@cases("[run] can't be created: Not a directory")
def run_in_a_file(folder):
    good(folder)
    (folder / "run").write_text("precious")
    return train()


@cases("[file/run] can't be created: Not a directory")
def run_below_a_file(folder):
    good(folder)
    (folder / "file").write_text("precious")
    return train(out="file/run")


@cases("[locked/run] can't be created: Permission denied", drop_override=True)
def run_in_a_read_only_folder(folder):
    good(folder)
    (folder / "locked").mkdir(mode=0o555)
    return train(out="locked/run")


@cases("[run/model] can't be created: Permission denied", drop_override=True)
def run_that_is_read_only(folder):
    good(folder)
    (folder / "run").mkdir(mode=0o555)
    return train()


@cases("[good.npz/events] expected a folder for files of TensorBoard, got a file: ", "/good.npz")
def events_into_a_file(folder):
    good(folder)
    return train("--tensorboard", "good.npz/events")


@cases("[locked/events] expected a folder for files of TensorBoard, got one in ", "which can't be written: Permission denied",
       drop_override=True)
def events_into_a_read_only_folder(folder):
    good(folder)
    (folder / "locked").mkdir(mode=0o555)
    return train("--tensorboard", "locked/events")


@cases("[none/out.npz] can't be created: No such file or directory")
def gradients_into_no_folder(folder):
    good(folder)
    return ["grad", "m.onnx", "--data", "good.npz", "--loss", "cross_entropy", "-o", "none/out.npz"]


@cases("[out.safetensors] can't be put in place: Is a directory")
def gradients_over_a_folder(folder):
    good(folder)
    (folder / "out.safetensors").mkdir()
    return ["grad", "m.onnx", "--data", "good.npz", "--loss", "cross_entropy", "-o", "out.safetensors"]


@cases("[locked/out.onnx] can't be created: Permission denied", drop_override=True)
def rewritten_into_a_read_only_folder(folder):
    good(folder)
    (folder / "locked").mkdir()
    (folder / "locked" / "out.onnx").write_text("precious")
    (folder / "locked").chmod(0o555)
    return ["rewrite", "m.onnx", "-o", "locked/out.onnx", "--recipe", "tensorwise"]


@cases("[m.onnx] expected another file than the model itself")
def rewritten_over_itself(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "m.onnx", "--recipe", "tensorwise"]


@cases("[m.onnx] expected another file than the model itself")
def step_written_over_its_model(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "m.onnx", "--loss", "cross_entropy", "--shape", "batch=4"]


@cases("[none/out.onnx] can't be created: No such file or directory")
def step_into_no_folder(folder):
    good(folder)
    return ["rewrite", "m.onnx", "-o", "none/out.onnx", "--loss", "cross_entropy", "--shape", "batch=4"]


@cases("[none/out.safetensors] can't be created: No such file or directory")
def weights_into_no_folder(folder):
    good_run(folder)
    return ["export", "run", "-o", "none/out.safetensors"]


def served(folder, config=None):
    good_run(folder)
    if config is not None:
        (folder / "hub").mkdir()
        (folder / "hub" / "config.json").write_text(config)
    return ["export", "run", "-o", "served", "--format", "bf16", *([] if config is None else ["--like", "hub"])]


@cases("[served] expected the name of a new folder, or an empty one, got a file")
def a_served_folder_that_is_a_file(folder):
    (folder / "served").write_text("")
    return served(folder)


@cases("[hub/config.json] expected the configuration of a model as JSON, an object")
def a_configuration_that_is_no_json(folder):
    return served(folder, "{")


@cases("[hub/config.json] expected the configuration of a model as JSON")
def a_configuration_that_nests_too_deeply(folder):
    return served(folder, "[" * 1000 + "]" * 1000)


@cases("[none/profile.json] can't be created: No such file or directory")
def profile_into_no_folder(folder):
    good(folder)
    return grad(folder, "--profile", "none/profile.json")


@cases("[m.onnx] expected a name for the label that the model does not use, got \"w\"")
def label_of_a_name_that_the_model_has(folder):
    good(folder)
    np.savez(folder / "d.npz", x=arrays()["x"], w=arrays()["labels"])
    return grad(folder, "--label", "w", data="d.npz")
