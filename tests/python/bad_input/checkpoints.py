# SPDX-License-Identifier: Apache-2.0
"""Runs that are damaged, edited or of another model: neither resumed nor exported, and left as they are."""
import json
import shutil
import zlib

import numpy as np
from onnx import helper
from safetensors.numpy import load_file, save_file

from bad_input.case import Cases, arrays, cut, flip, good_run, linear_nodes, model, resume, save, tensors, weights

CASES = cases = Cases()
STATE, MANIFEST = "state.safetensors", "manifest.json"
AT = "run/checkpoints/step_00000002/"
ALONE = "; there is no other checkpoint"


def sealed(manifest):
    """As the program writes it, with a correct checksum, so that an edited manifest looks genuine."""
    manifest.pop("crc32", None)
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**manifest, "crc32": f"{zlib.crc32(text.encode()):08x}"}


def edit(checkpoint, change, seal=True):
    path = checkpoint / MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(sealed(manifest) if seal else manifest))


def setting(key, value):
    return lambda manifest: manifest.update({key: value})


def explained(folder, text):
    """The command that explains a good run with this evidence."""
    good_run(folder)
    (folder / "run" / "evidence.json").write_text(text)
    return ["explain", "run"]


@cases("[run] holds no evidence: no step was not finite")
def explain_without_evidence(folder):
    good_run(folder)
    return ["explain", "run"]


@cases("[data] is no folder of a training run")
def explain_no_run(folder):
    (folder / "data").mkdir()
    return ["explain", "data"]


@cases("[run/evidence.json] expected evidence of a run of format 1, got 2: another version of onnx-fp8 wrote it")
def explain_evidence_of_another_version(folder):
    return explained(folder, '{"format": 2}')


@cases("[run/evidence.json] expected evidence of a run, got a damaged one")
def explain_damaged_evidence(folder):
    return explained(folder, '{"format": 1, "events": [{"kind": "not_finite", "step": "five"}]}')


@cases("[run/evidence.json] expected evidence of a run", "got something else")
def explain_evidence_that_is_no_json(folder):
    return explained(folder, '{"format": 1, "eve')


@cases("[run/evidence.json] expected a file of the run, got a link")
def explain_a_link(folder):
    command = explained(folder, "")
    (folder / "run" / "evidence.json").unlink()
    (folder / "run" / "evidence.json").symlink_to("/dev/zero")
    return command


@cases("--step: expected at most 2, the steps of the run, got 3")
def explain_a_step_behind_the_run(folder):
    good_run(folder)
    return ["explain", "run", "--step", "3"]


@cases(f"[{AT}{STATE}] expected", "bytes, got", "(truncated or edited)" + ALONE)
def truncated_state(folder):
    cut(good_run(folder) / STATE, -1)
    return resume()


@cases(f"[{AT}{STATE}] tensor \"", "was damaged or edited: expected", ALONE)
def flipped_byte_in_the_state(folder):
    flip(good_run(folder) / STATE, -5)
    return resume()


@cases(f"[{AT}{STATE}]", "expected", ALONE)
def flipped_byte_in_the_state_s_header(folder):
    flip(good_run(folder) / STATE, 30)
    return resume()


@cases(f"[{AT}{STATE}] can't be opened: No such file or directory" + ALONE)
def missing_state(folder):
    (good_run(folder) / STATE).unlink()
    return resume()


@cases(f"[{AT}{MANIFEST}] can't be opened: No such file or directory" + ALONE)
def missing_manifest(folder):
    (good_run(folder) / MANIFEST).unlink()
    return resume()


@cases(f"[{AT}{MANIFEST}] is no JSON object (truncated or edited?)" + ALONE)
def truncated_manifest(folder):
    cut(good_run(folder) / MANIFEST, 100)
    return resume()


@cases(f"[{AT}{MANIFEST}] is no JSON object (truncated or edited?)" + ALONE)
def empty_manifest(folder):
    (good_run(folder) / MANIFEST).write_text("")
    return resume()


@cases(f"[{AT}{MANIFEST}] expected a manifest, got deep nesting" + ALONE)
def deeply_nested_manifest(folder):
    (good_run(folder) / MANIFEST).write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return resume()


@cases(f"[{AT}{MANIFEST}] was edited: its checksum does not fit" + ALONE)
def edited_manifest(folder):
    edit(good_run(folder), setting("step", 1), seal=False)
    return resume()


@cases(f"[{AT}{MANIFEST}] expected version 1 to 4, got 7: another version of onnx-fp8 wrote it" + ALONE)
def manifest_of_the_future(folder):
    edit(good_run(folder), setting("version", 7))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected format \"onnx_fp8 checkpoint\", got \"pytorch\"" + ALONE)
def manifest_of_another_program(folder):
    edit(good_run(folder), setting("format", "pytorch"))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected a checkpoint's manifest with \"tensors\"" + ALONE)
def manifest_without_tensors(folder):
    edit(good_run(folder), lambda manifest: manifest.pop("tensors"))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected \"step\" in 0…1099511627776, got -3" + ALONE)
def negative_step(folder):
    edit(good_run(folder), setting("step", -3))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected \"step\" in 0…1099511627776, got 9223372036854775807" + ALONE)
def step_that_overflows(folder):
    edit(good_run(folder), setting("step", (1 << 63) - 1))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected a file of frozen weights with its size and tensors, got [1]" + ALONE)
def frozen_weights_that_are_a_list(folder):
    edit(good_run(folder), setting("frozen", [1]))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected a file frozen_….safetensors beside the checkpoints, got ../x.safetensors" + ALONE)
def frozen_weights_elsewhere(folder):
    edit(good_run(folder), setting("frozen", {"file": "../x.safetensors", "bytes": 1, "tensors": {}}))
    return resume()


@cases("[run/checkpoints/frozen_0123456789abcdef.safetensors] can't be opened: No such file or directory" + ALONE)
def frozen_weights_that_are_gone(folder):
    file = "frozen_0123456789abcdef.safetensors"
    edit(good_run(folder), setting("frozen", {"file": file, "bytes": 1, "tensors": {}}))
    return resume()


@cases("[run] expected a count as the checkpoint's note session.skipped, got \"many\"")
def note_that_is_no_number(folder):
    edit(good_run(folder), lambda manifest: manifest["notes"].update({"session.skipped": "many"}))
    return resume()


@cases("[scale slots] expected a JSON list of slots, got another text")
def note_of_slots_that_is_nonsense(folder):
    edit(good_run(folder), lambda manifest: manifest["notes"].update({"session.fp8_slots": "[[[{"}))
    return resume()


@cases(f"[{AT}{STATE}] lacks tensor \"extra\"" + ALONE)
def manifest_that_promises_more(folder):
    edit(good_run(folder), lambda manifest: manifest["tensors"].update(extra=manifest["tensors"]["w"]))
    return resume()


@cases(f"[{AT}{STATE}] holds a foreign tensor \"w\"" + ALONE)
def manifest_that_lacks_a_tensor(folder):
    edit(good_run(folder), lambda manifest: manifest["tensors"].pop("w"))
    return resume()


def replace_state(checkpoint, change):
    """Another state, with a manifest that says so."""
    state = load_file(checkpoint / STATE)
    change(state)
    save_file(state, checkpoint / STATE)
    dtypes = {"float32": "float", "int64": "int64"}
    tensors_ = {name: {"dtype": dtypes[str(a.dtype)], "shape": list(a.shape), "crc32": f"{zlib.crc32(a.tobytes()):08x}"}
                for name, a in state.items()}
    size = (checkpoint / STATE).stat().st_size
    edit(checkpoint, lambda manifest: manifest.update(tensors=tensors_, state_bytes=size))


@cases("[run] expected the checkpoint to hold w as float[5,3], got none")
def state_without_a_parameter(folder):
    replace_state(good_run(folder), lambda state: state.pop("w"))
    return resume()


@cases("[run] expected the checkpoint to hold w as float[5,3], got float[3,5]")
def state_with_a_parameter_turned_round(folder):
    replace_state(good_run(folder), lambda state: state.update(w=np.ascontiguousarray(state["w"].T)))
    return resume()


@cases("[state w.exp_avg] expected float[5,3], got float[15]", leaves=("run/config.json",))
def state_with_a_moment_of_another_shape(folder):
    replace_state(good_run(folder), lambda state: state.update({"w.exp_avg": state["w.exp_avg"].reshape(-1)}))
    return resume()


@cases(f"[{AT}{MANIFEST}] expected a checkpoint of model", "got one of", ALONE)
def checkpoint_of_another_model(folder):
    checkpoint = good_run(folder)
    edit(checkpoint, setting("model", "0123456789abcdef"))
    return resume()


@cases("[run/latest] expected the name of a checkpoint, got \"../../secret\"")
def latest_that_points_elsewhere(folder):
    good_run(folder)
    (folder / "run" / "latest").write_text("../../secret\n")
    return resume()


@cases("[run/checkpoints/step_00000009/manifest.json] can't be opened: No such file or directory",
       "to resume from an older checkpoint: echo step_00000002 > run/latest")
def latest_that_names_what_is_gone(folder):
    good_run(folder)
    (folder / "run" / "latest").write_text("step_00000009\n")
    return resume()


@cases("[m.onnx] is not the model of this run; leave it out to go on with the run's own copy, run/model/m.onnx")
def resume_with_another_model(folder):
    good_run(folder)
    save(model(nodes=[*linear_nodes()[:1], helper.make_node("Sub", ["xw", "b"], ["y"])]), folder / "m.onnx")
    return ["train", "m.onnx", "--resume", "--out", "run", "--steps", "4"]


@cases("[run/model/m.onnx] is not the file that the run was started with")
def run_whose_model_was_replaced(folder):
    good_run(folder)
    save(model(initializers=tensors(weights(seed=9))), folder / "run" / "model" / "m.onnx")
    return resume()


@cases("[run/model/m.onnx] can't be opened: No such file or directory")
def run_whose_model_is_gone(folder):
    good_run(folder)
    shutil.rmtree(folder / "run" / "model")
    return resume()


@cases("[run/config.json] expected a run's configuration, got something else")
def truncated_config(folder):
    good_run(folder)
    cut(folder / "run" / "config.json", 50)
    return resume()


def edit_config(folder, change):
    good_run(folder)
    path = folder / "run" / "config.json"
    config = json.loads(path.read_text())
    config.pop("crc32")
    change(config)
    path.write_text(json.dumps(config))


@cases("[run/config.json] expected a run's configuration, got deep nesting")
def deeply_nested_configuration(folder):
    good_run(folder)
    (folder / "run" / "config.json").write_text('{"flags": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return resume()


@cases("[scale slots] expected a JSON list of slots, got deep nesting")
def deeply_nested_note_of_slots(folder):
    edit(good_run(folder), lambda manifest: manifest["notes"].update({"session.fp8_slots": "[" * 100_000}))
    return resume()


@cases("[run/config.json] expected a run's configuration of format 2, got 3")
def config_of_the_future(folder):
    edit_config(folder, setting("format", 3))
    return resume()


@cases("[run/config.json] expected a run's configuration with a model inside the run's folder, got \"../m.onnx\"")
def config_with_a_model_elsewhere(folder):
    edit_config(folder, lambda config: config["model"].update(file="../m.onnx"))
    return resume()


@cases("[run/config.json] expected a run's configuration, got key 'flags' not found")
def config_without_flags(folder):
    edit_config(folder, lambda config: config.pop("flags"))
    return resume()


@cases("[run/config.json] has changed since it was written: flags beside --resume replace those of the run",
       'remove "crc32" from the file')
def config_that_was_edited(folder):
    good_run(folder)
    path = folder / "run" / "config.json"
    path.write_text(path.read_text().replace('"--steps": [\n      "', '"--steps": [\n      "1'))
    return resume()


@cases("[run/config.json] has changed since it was written")
def config_with_a_flipped_bit(folder):
    good_run(folder)
    path = folder / "run" / "config.json"
    path.write_text(path.read_text().replace("cross_entropy", "bross_entropy"))
    return resume()


@cases("[run/config.json] holds a flag that does not fit: there is no option --frobnicate")
def config_with_an_unknown_flag(folder):
    edit_config(folder, lambda config: config["flags"].update({"--frobnicate": ["1"]}))
    return resume()


@cases("[run] was started with batch_size 2, got 3 (--batch-size): a resumed run goes on with the same batches")
def resume_with_other_batches(folder):
    good_run(folder)
    return resume("--batch-size", "3")


@cases("[run] was started with samples 4, got 8 (--data): a resumed run goes on with the same batches")
def resume_with_more_data(folder):
    good_run(folder)
    np.savez(folder / "more.npz", **arrays(8))
    return resume("--data", "more.npz")


@cases("[gone.npz] can't be opened: No such file or directory")
def resume_without_its_data(folder):
    edit_config(folder, lambda config: config["flags"].update({"--data": ["gone.npz"]}))
    return resume()


@cases("[run] is no folder of a training run: expected run/config.json")
def export_of_an_empty_folder(folder):
    (folder / "run").mkdir()
    return ["export", "run", "-o", "out.safetensors"]


@cases("[run] is no folder of a training run")
def export_of_no_folder(folder):
    return ["export", "run", "-o", "out.onnx"]


@cases("[run] holds no checkpoint")
def export_of_a_run_without_checkpoint(folder):
    good_run(folder)
    shutil.rmtree(folder / "run" / "checkpoints")
    (folder / "run" / "latest").unlink()
    return ["export", "run", "-o", "out.safetensors"]


@cases(f"[{AT}{STATE}] tensor \"", "was damaged or edited", ALONE)
def export_of_a_damaged_run(folder):
    flip(good_run(folder) / STATE, -5)
    (folder / "out.onnx").write_bytes(b"what was there before")
    return ["export", "run", "-o", "out.onnx"]


@cases(f"[{AT}{STATE}] tensor \"", "was damaged or edited", ALONE)
def eval_of_a_damaged_run(folder):
    flip(good_run(folder) / STATE, -5)
    return ["eval", "run", "--data", "good.npz"]
