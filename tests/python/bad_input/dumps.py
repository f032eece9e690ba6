# SPDX-License-Identifier: Apache-2.0
"""Dumps of a step that `compare` can't read, or that are of other steps or models."""
import functools
import json
import pathlib
import shutil
import tempfile

from bad_input.case import Cases, cut, good, run, train

CASES = cases = Cases()
FILE = "run/dumps/step_1_batch_1.safetensors"


@functools.cache
def dumped():
    """A folder with the good files and a run whose first step is dumped, made once."""
    keep = tempfile.TemporaryDirectory()
    folder = pathlib.Path(keep.name)
    good(folder)
    run(*train("--recipe", "tensorwise", "--dump", "*", "--at-steps", "1,2", "--grad-accum", 2), cwd=folder)
    return keep, folder


def compared(folder, edit=None):
    """The command that compares run/ with other/, a copy, after `edit` has changed the file of one micro-batch."""
    shutil.copytree(dumped()[1], folder, dirs_exist_ok=True)
    shutil.copytree(folder / "run", folder / "other")
    if edit:
        edit(folder / FILE)
    return ["compare", "other", "run"]


def edited(name, *words, edit, code=1):
    def make(folder):
        return compared(folder, edit)

    make.__name__ = name
    cases(*words, code=code)(make)


def header_of(path, change):
    """Replaces the header by what `change` makes of it."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])


def metadata(**changes):
    return lambda path: header_of(path, lambda header: header["__metadata__"].update(changes))


def entry(**changes):
    def change(header):
        entries = json.loads(header["__metadata__"]["tensors"])
        entries[0].update(changes)
        header["__metadata__"]["tensors"] = json.dumps(entries)

    return lambda path: header_of(path, change)


def without(name):
    return lambda path: header_of(path, lambda header: header["__metadata__"].pop(name))


def renamed(part):
    """Gives a tensor of the first entry another name."""
    def change(header):
        name = f"w/forward/input/{part}"
        header["other"] = header.pop(name)

    return lambda path: header_of(path, change)


WHERE = f"[{FILE}] "
edited("dump_that_is_cut_off", WHERE + "expected", "bytes of data, got", edit=lambda path: cut(path, -20))
edited("dump_without_a_header", WHERE + "expected a safetensors header within 40 bytes",
       edit=lambda path: cut(path, 40))
edited("dump_that_is_empty", WHERE + "expected a safetensors file, got 0 bytes", edit=lambda path: cut(path, 0))
edited("dump_of_a_newer_program", WHERE + "expected a dump of format 1, got 2", edit=metadata(**{"onnx_fp8.dump": "2"}))
edited("safetensors_that_are_no_dump", WHERE + "expected a file that --dump wrote, got other safetensors",
       edit=without("onnx_fp8.dump"))
edited("dump_without_a_step", WHERE + "expected a whole number from 1 as step, got none", edit=without("step"))
edited("dump_of_step_zero", WHERE + "expected a whole number from 1 as step, got \"0\"", edit=metadata(step="0"))
edited("dump_with_a_torn_list", WHERE + "expected a list of objects as tensors", edit=metadata(tensors="[{"))
edited("dump_with_a_list_of_numbers", WHERE + "expected a list of objects as tensors", edit=metadata(tensors="[1]"))
edited("dump_with_a_deep_list", WHERE + "expected a list of objects as tensors",
       edit=metadata(tensors="[" * 9 + "]" * 9))
edited("dumped_tensor_without_a_layer", WHERE + "expected a text as fqn of each tensor", edit=entry(fqn=1))
edited("dumped_tensor_of_no_use", WHERE + "expected a whole number from 1 as use of each tensor", edit=entry(use=0))
edited("dumped_tensor_that_is_missing", f"[{FILE}: v] expected a tensor v/forward/input/value, got none",
       edit=entry(fqn="v"))
edited("dumped_codes_without_scales", f"[{FILE}: w] expected a tensor w/forward/input/scale, got none",
       edit=renamed("scale"))
edited("dumped_codes_without_blocks", f"[{FILE}: w] expected two numbers as block", edit=entry(block=[1]))
edited("dumped_codes_of_negative_blocks", f"[{FILE}: w] expected whole numbers from 0 as block",
       edit=entry(block=[-1, 0]))
edited("dumped_codes_of_other_blocks", "[w] expected 2 scales of input, got 1", edit=entry(block=[1, 0]))
edited("dump_of_another_model", "[run] expected dumps of the model of other, got some of a model with other parameters",
       edit=metadata(model="00000000"))
edited("dump_without_a_micro_batch", "[run/dumps] expected micro-batches 1 to 2 of step 1, got others",
       edit=pathlib.Path.unlink)
edited("dump_of_a_micro_batch_twice", "[run/dumps] expected micro-batches 1 to 2 of step 1, got others",
       edit=metadata(batch="2"))


@cases("[other] expected files that --dump wrote, got none")
def folder_without_dumps(folder):
    command = compared(folder)
    shutil.rmtree(folder / "other")
    (folder / "other").mkdir()
    return command


@cases("[none] can't be opened: No such file or directory")
def dumps_that_do_not_exist(folder):
    return compared(folder)[:2] + ["none"]


@cases("[run] expected one of the steps of other, 1, got 2")
def dumps_of_other_steps(folder):
    command = compared(folder)
    for batch in (1, 2):
        (folder / f"other/dumps/step_2_batch_{batch}.safetensors").unlink()
        (folder / f"run/dumps/step_1_batch_{batch}.safetensors").unlink()
    return command


@cases("DUMP: expected two, got 1", code=2)
def one_dump(folder):
    return compared(folder)[:2]


@cases("DUMP: expected two, got 3", code=2)
def three_dumps(folder):
    return [*compared(folder), "run"]
