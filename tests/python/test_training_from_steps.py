# SPDX-License-Identifier: Apache-2.0
"""`train` goes on with a training step that lies in a file, bit for bit as if it had never been one."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from program import leave_out, losses, metrics_without_speed, run, state_bytes, write_random
from rank_jobs import job_of, need_mpi
from safetensors.numpy import load_file
from stock import stock_session
from test_step_files import ROOT, Case, corpus_folder, file_losses, trained_losses
from test_tied_weights import language_model, write_tokens

FIXTURES = ["mlp", "nanogpt", "llama", "vit"]
RECIPES = ["off", "tensorwise", "delayed", "rowwise"]
STEPS = 10


def case_of(name, tmp):
    return Case(ROOT / "tests/fixtures" / name / "d18.onnx", tmp)


def cut(case, accum):
    """--shape of the micro-batches."""
    shapes = case.shapes()
    words = [word.split("=") for word in shapes.split(",") if word]
    words = [(axis, int(size) // accum if int(size) == case.batch else size) for axis, size in words]
    return ["--shape", ",".join(f"{axis}={size}" for axis, size in words)] if words else []


def write_step(case, flags, accum=1):
    path = case.tmp / "step.onnx"
    more = ["--grad-accum", accum] if accum > 1 else []
    run("rewrite", case.model, "-o", path, *flags, *more, *cut(case, accum))
    return path


def train(case, model, out, *flags, steps=STEPS, accum=1):
    run("train", model, "--data", case.data, "--batch-size", case.batch // accum, "--no-shuffle", "--steps", steps,
        "--out", case.tmp / out, *flags)
    return case.tmp / out


def train_both(case, flags, accum=1):
    """A run of the model and a run of its step."""
    more = ["--grad-accum", accum] if accum > 1 else []
    model = train(case, case.model, "model", *flags, *more, accum=accum)
    step = train(case, write_step(case, flags, accum), "step", accum=accum)
    return model, step


def exported(folder, name, *more):
    path = folder.parent / f"{folder.name}.out.{name}"
    run("export", folder, "-o", path, *more)
    return path.read_bytes()


def state(folder):
    latest = (folder / "latest").read_text().strip()
    return load_file(folder / "checkpoints" / latest / "state.safetensors")


def assert_same_runs(case, model, step):
    assert metrics_without_speed(step) == metrics_without_speed(model)
    assert state_bytes(step) == state_bytes(model)
    assert exported(step, "safetensors") == exported(model, "safetensors")
    assert exported(step, "onnx", "--model", case.model) == exported(model, "onnx")
    losses = [run("eval", folder, "--data", case.data, "--json").stdout for folder in (step, model)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", FIXTURES)
def test_a_step_trains_as_its_model(name, recipe, tmp_path):
    case = case_of(name, tmp_path)
    model, step = train_both(case, case.flags(recipe))
    assert_same_runs(case, model, step)


OPTIONS = {
    "bfloat16": ["--recipe", "delayed", "--dtype", "bfloat16"],
    "float16": ["--recipe", "tensorwise", "--dtype", "float16", "--loss-scale", 1024, "--loss-scale-interval", 3],
    "sgd": ["--optimizer", "sgd", "--momentum", 0.9, "--nesterov", "--clip-norm", 0.5, "--weight-decay", 0.01,
            "--lr", 0.013, "--group", "*bias=weight_decay:0,lr_scale:0.3"],
    "clipped": ["--optimizer", "sgd", "--clip-norm", "0.05:previous", "--lr", 0.1],
    "moments": ["--recipe", "delayed", "--moments", "bfloat16"],
    "moments_hf": ["--optimizer", "adamw_hf", "--weight-decay", 0.01, "--moments", "bfloat16"],
    "averages": ["--ema", "0.75,every=2", "--weight-decay", 0.1, "--decay", "layers"],
    "layers": ["--recipe", "mxfp8", "--recipe-for", "*.proj=rowwise", "--exclude", "lm_head", "--freeze", "wpe*"],
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_of_the_step_are_in_the_file(options, tmp_path):
    """Nothing but the data is given again."""
    case = case_of("nanogpt", tmp_path)
    assert_same_runs(case, *train_both(case, [*case.loss_flags(), *OPTIONS[options]]))


def test_static_scales_are_in_the_file(tmp_path):
    case = case_of("mlp", tmp_path)
    assert_same_runs(case, *train_both(case, case.flags("static")))


@pytest.mark.parametrize("name,recipe", [
    ("mlp_dropout", "delayed"), ("mlp_bn", "delayed"), ("cond_mlp", "off"), ("lstm_lm", "off"), ("gpt2_loss", "delayed"),
    ("llama_eager", "rowwise"), ("mlp_fp16", "off"), ("shared_mlp", "delayed"), ("func_mlp", "tensorwise"),
    ("mixer_timm", "tensorwise"),
])
def test_steps_of_the_corpus(name, recipe, tmp_path):
    """Random numbers, running statistics, branches, recurrence, own losses, tied weights, functions."""
    if not corpus_folder().is_dir():
        leave_out(f"the corpus at {corpus_folder()}: its steps are not trained")
        return
    case = Case(corpus_folder() / name / "d18.onnx", tmp_path)
    assert_same_runs(case, *train_both(case, case.flags(recipe)))


@pytest.mark.parametrize("recipe,more", [
    *((recipe, []) for recipe in ("off", "delayed", "delayed,update:micro", "rowwise")),
    ("off", ["--clip-norm", "0.1:previous"]), ("delayed", ["--grad-accum-by", "tokens"]),
])
def test_two_files_of_a_step_with_micro_batches(recipe, more, tmp_path):
    case = case_of("mlp", tmp_path)
    model, step = train_both(case, [*case.flags(recipe), *more], accum=2)
    assert_same_runs(case, model, step)
    # The run has both files, and may move.
    (tmp_path / "step.onnx").unlink()
    (tmp_path / "step.apply.onnx").unlink()
    step = step.rename(tmp_path / "moved")
    run("export", step, "-o", tmp_path / "later.onnx")
    for folder in (step, model):
        run("train", "--resume", "--out", folder, "--steps", STEPS + 3)
    assert state_bytes(step) == state_bytes(model)
    later = train(case, tmp_path / "later.onnx", "later", steps=3, accum=2)
    assert state_bytes(later) == state_bytes(model)


def test_the_update_of_a_file_divides_by_its_number(tmp_path):
    """Three batches are no groups of two: these cross the ends of epochs, unless the update divides by the labels."""
    case = case_of("mlp", tmp_path)
    data = write_random(tmp_path / "d.npz", 24)
    flags = ["--data", data, "--batch-size", 8, "--no-shuffle", "--steps", 4, "--out"]
    by_tokens = ["--grad-accum-by", "tokens"]
    step = write_step(case, case.flags("off"), accum=2)
    done = run("train", step, *flags, tmp_path / "whole")
    said = "an epoch has 3 batches, and groups of 2 cross its end, because the file's update divides by this number (--grad-accum)"
    assert said in done.stderr
    run("train", step, *flags[:-3], "--epochs", 2, "--out", tmp_path / "epochs")
    assert list(losses(tmp_path / "epochs")) == [1, 2, 3]
    # Two epochs as one.
    twice = tmp_path / "twice.npz"
    np.savez(twice, **{name: np.concatenate([array, array]) for name, array in np.load(data).items()})
    run("train", step, "--data", twice, *flags[2:], tmp_path / "twice")
    assert state_bytes(tmp_path / "twice") == state_bytes(tmp_path / "whole")
    step = write_step(case, [*case.flags("off"), *by_tokens], accum=2)
    run("train", step, *flags, tmp_path / "step")
    run("train", case.model, *case.flags("off"), *by_tokens, "--grad-accum", 2, *flags, tmp_path / "model")
    assert_same_runs(case, tmp_path / "model", tmp_path / "step")


def test_masks_of_nodes_with_one_name(tmp_path):
    """The file may not have two nodes of one name, on which their masks depend."""
    case = case_of("mlp", tmp_path)
    model = onnx.load(case.model)
    nodes = model.graph.node
    model.graph.initializer.extend([numpy_helper.from_array(np.float32(0.3), "ratio"),
                                    numpy_helper.from_array(np.array(True), "on")])
    for name in ("relu", "gelu"):
        [at] = [i for i, node in enumerate(nodes) if node.output[0] == name]
        nodes[at].output[0] = f"whole.{name}"
        nodes.insert(at + 1, helper.make_node("Dropout", [f"whole.{name}", "ratio", "on"], [name], "drop"))
    case.model = tmp_path / "m.onnx"
    onnx.save(model, case.model)
    runs = train_both(case, case.flags("off"))
    names = [node.name for node in onnx.load(tmp_path / "step.onnx").graph.node if node.op_type == "Dropout"]
    assert len(names) == 2 and names[0] != names[1]
    assert_same_runs(case, *runs)


def test_tied_weights_keep_both_names(tmp_path):
    """The step holds one tensor; exports have two."""
    model = language_model(tmp_path / "m.onnx", copy=True)
    data = ["--data", write_tokens(tmp_path / "d.npz"), "--batch-size", 4]
    loss = ["--loss", "cross_entropy"]
    run("rewrite", model, "-o", tmp_path / "step.onnx", *loss, "--shape", "batch=4,time=4")
    run("train", model, *data, *loss, "--steps", 3, "--out", tmp_path / "model")
    run("train", tmp_path / "step.onnx", *data, "--steps", 3, "--out", tmp_path / "step")
    weights = [exported(tmp_path / folder, "safetensors") for folder in ("model", "step")]
    assert weights[0] == weights[1] and b"lm_head.weight" in weights[1]
    assert exported(tmp_path / "step", "onnx", "--model", model) == exported(tmp_path / "model", "onnx")
    # Initial weights by either name.
    run("train", tmp_path / "step.onnx", *data, "--steps", 1, "--init", tmp_path / "step.out.safetensors", "--out",
        tmp_path / "again")
    run("train", model, *data, *loss, "--steps", 1, "--init", tmp_path / "step.out.safetensors", "--out", tmp_path / "other")
    assert state_bytes(tmp_path / "again") == state_bytes(tmp_path / "other")


def test_schedule_and_validation(tmp_path):
    case = case_of("mlp", tmp_path)
    flags = ["--schedule", "cosine:warmup=3,min=0.1", "--val-data", case.data, "--val-every", 4]
    more = [*case.flags("delayed"), *flags]
    step = write_step(case, case.flags("delayed"))
    model, file = train(case, case.model, "model", *more), train(case, step, "file", *flags)
    assert any("val_loss" in line for line in metrics_without_speed(file))
    assert metrics_without_speed(file) == metrics_without_speed(model)
    # A learning rate that is given replaces the file's.
    model = train(case, case.model, "model2", *case.flags("delayed")[:-4], "--recipe", "delayed", "--lr", 0.5)
    assert metrics_without_speed(train(case, step, "file2", "--lr", 0.5)) == metrics_without_speed(model)


def test_the_sample_gpt_on_tokens(tmp_path):
    """A file of tokens, shuffled; the sizes are the step's."""
    model = ROOT / "samples/gpt_tiny/gpt_tiny.onnx"
    np.random.default_rng(0).integers(0, 256, 2000).astype(np.uint16).tofile(tmp_path / "t.bin")
    data = ["--data", tmp_path / "t.bin", "--token-dtype", "uint16", "--steps", 4]
    flags = ["--loss", "cross_entropy", "--recipe", "rowwise", "--clip-norm", 1]
    run("rewrite", model, "-o", tmp_path / "step.onnx", *flags, "--shape", "batch=4,seq=32")
    run("train", model, *data, *flags, "--batch-size", 4, "--seq-len", 32, "--out", tmp_path / "model")
    run("train", tmp_path / "step.onnx", *data, "--out", tmp_path / "file")
    assert metrics_without_speed(tmp_path / "file") == metrics_without_speed(tmp_path / "model")
    assert state_bytes(tmp_path / "file") == state_bytes(tmp_path / "model")


def test_ranks_need_the_model(tmp_path):
    need_mpi()
    case = case_of("mlp", tmp_path)
    step = write_step(case, case.flags("off"))
    done = job_of(2, "train", step, "--data", case.data, "--steps", 1, "--out", tmp_path / "run").end()
    assert any("expected the model that the step was made from for several ranks" in text for text in map(str, done))


def test_resume_and_state_in_the_file(tmp_path):
    """Ten steps at once, a run that is resumed, and a step exported with its state: one result."""
    case = case_of("nanogpt", tmp_path)
    step = write_step(case, case.flags("delayed"))
    whole = train(case, step, "whole")
    half = train(case, step, "half", steps=5)
    middle = tmp_path / "middle.onnx"
    run("export", half, "-o", middle)
    onnx.checker.check_model(onnx.load(middle), full_check=True)
    run("train", "--resume", "--out", half, "--steps", STEPS)
    assert state_bytes(half) == state_bytes(whole)
    rest = train(case, middle, "rest", steps=5)
    assert state(rest).keys() == state(whole).keys()
    for name, x in state(whole).items():
        np.testing.assert_array_equal(state(rest)[name], x, err_msg=name)


def write_state(path, fed):
    """The state in `fed` becomes the file's."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name in fed:
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(fed[tensor.name]), tensor.name))
    onnx.save(model, path)


def run_in_stock(path, feeds, steps):
    """The state after `steps` steps. The new state of a run is fed to the next one."""
    session = stock_session(path)
    names = [output.name for output in session.get_outputs()]
    fed, bindings = dict(feeds), onnx.load(path).training_info[0].update_binding
    for _ in range(steps):
        out = dict(zip(names, session.run(None, fed), strict=True))
        fed.update({binding.key: out[binding.value] for binding in bindings})
    return {binding.key: fed[binding.key] for binding in bindings}


@pytest.mark.parametrize("recipe", ["off", "delayed"])
@pytest.mark.parametrize("name", FIXTURES)
def test_onnxruntime_begins_and_train_goes_on(name, recipe, tmp_path):
    """Moments, counters and scales go on where stock onnxruntime left them. The bands are as in test_step_files."""
    case = case_of(name, tmp_path)
    step = write_step(case, case.flags(recipe))
    write_state(step, run_in_stock(step, case.feeds, 5))
    losses = [line["loss"] for line in metrics_without_speed(train(case, step, "rest", steps=5))]
    ours = trained_losses(case, recipe)
    difference = np.abs(np.subtract(losses, ours[5:])) / abs(ours[0])
    assert difference.max() <= (2e-2 if recipe != "off" else 1e-4), difference
    assert state(tmp_path / "rest")["optimizer.step"] == STEPS


def test_onnxruntime_goes_on_where_train_ended(tmp_path):
    case = case_of("mlp", tmp_path)
    half = train(case, write_step(case, case.flags("off")), "half", steps=5)
    run("export", half, "-o", tmp_path / "middle.onnx")
    _, losses = file_losses(tmp_path / "middle.onnx", case.feeds)
    np.testing.assert_allclose(losses[:5], trained_losses(case, "off")[5:], rtol=1e-4)


def test_gradients_of_a_step(tmp_path):
    case = case_of("nanogpt", tmp_path)
    data = ["--data", case.data, "--batch-size", case.batch]
    for recipe, more in [("delayed", []), ("tensorwise", ["--dtype", "float16"])]:
        step = write_step(case, [*case.flags(recipe), *more])
        run("grad", case.model, *data, *case.loss_flags(), "--recipe", recipe, *more, "-o", tmp_path / "m.safetensors")
        run("grad", step, *data, "-o", tmp_path / "s.safetensors")
        model, file = load_file(tmp_path / "m.safetensors"), load_file(tmp_path / "s.safetensors")
        assert file.keys() == model.keys()
        for name, x in model.items():
            np.testing.assert_array_equal(file[name], x, err_msg=name)
    done = run("grad", step, *data, "--input-grads", "-o", tmp_path / "i.npz", code=1)
    assert "expected the model that the step was made from for gradients of inputs" in done.stderr


def test_evaluation_before_a_step(tmp_path):
    """Also a batch that is not full."""
    case = case_of("mlp", tmp_path)
    step = write_step(case, case.flags("delayed"))
    few = tmp_path / "few.npz"
    np.savez(few, **{name: x[:case.batch - 3] for name, x in case.feeds.items()})
    for data in (case.data, few):
        of_step = json.loads(run("eval", step, "--data", data, "--json").stdout)
        of_model = json.loads(run("eval", case.model, "--data", data, "--batch-size", case.batch, *case.loss_flags(),
                                  "--recipe", "delayed", "--json").stdout)
        assert of_step == pytest.approx(of_model, rel=1e-6)


def test_inspect_shows_roles_and_bindings(tmp_path):
    case = case_of("mlp", tmp_path)
    flags = case.flags("delayed")
    step = write_step(case, flags)
    report = json.loads(run("inspect", step, "--json").stdout)
    rows = {row["name"]: row for row in report["initializers"]}
    for binding in onnx.load(step).training_info[0].update_binding:
        assert rows[binding.key]["next"] == binding.value
    assert rows["fc1.weight"]["role"] == "trained"
    assert rows["fc1.weight.exp_avg"]["role"] == "moment"
    assert rows["fp8.amax_history"]["role"] == "scale"
    assert rows["optimizer.step"]["role"] == "counter"
    of_model = json.loads(run("inspect", case.model, "--json", "--shape", case.shapes(), *flags).stdout)
    key = ["fqn", "role", "m", "k", "n", "fp8", "recipe"]
    products = [sorted([[gemm[k] for k in key] for gemm in r["gemms"]], key=str) for r in (report, of_model)]
    assert products[0] == products[1]
    assert report["memory"] == of_model["memory"]
    assert "each run replaces it by fc1.weight.next" in run("inspect", step).stdout


def test_external_data(tmp_path):
    """A step with its data beside it, and its export."""
    case = case_of("mlp", tmp_path)
    (tmp_path / "there").mkdir()
    step = tmp_path / "there" / "step.onnx"
    run("rewrite", case.model, "-o", step, *case.flags("delayed"), *cut(case, 1), "--external-data")
    assert (tmp_path / "there" / "step.onnx.data").exists()
    model = train(case, case.model, "model", *case.flags("delayed"))
    file = train(case, step, "file")
    assert state_bytes(file) == state_bytes(model)
    run("export", file, "-o", tmp_path / "out.onnx", "--external-data")
    for tensor in onnx.load(tmp_path / "out.onnx").graph.initializer:
        if tensor.name in state(model):
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), state(model)[tensor.name])


# ---- steps of other programs

def by_hand(algorithm=False, rate="lr"):
    """SGD with momentum for a linear layer and the mean squared error, with helper.make_node."""
    node, value = helper.make_node, helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    arrays = {"w": rng.normal(size=(5, 3)).astype(np.float32), "b": np.zeros(3, np.float32)}
    more = {"m": np.zeros((5, 3), np.float32), "mu": np.float32(0.9), "c": np.float32(2 / (8 * 3)),
            "rows": np.array([0]), "one": np.int64(1), "count": np.int64(0)}
    forward = [node("MatMul", ["x", "w"], ["xw"]), node("Add", ["xw", "b"], ["logits"])]
    update = [node("Sub", ["logits", "y"], ["d"]), node("Mul", ["d", "d"], ["dd"]),
              node("ReduceMean", ["dd"], ["mse"], keepdims=0), node("Mul", ["d", "c"], ["dl"]),
              node("Transpose", ["x"], ["xt"], perm=[1, 0]), node("MatMul", ["xt", "dl"], ["gw"]),
              node("ReduceSum", ["dl", "rows"], ["gb"], keepdims=0), node("Mul", ["m", "mu"], ["old"]),
              node("Add", ["old", "gw"], ["m_new"]), node("Mul", ["m_new", rate], ["step_w"]),
              node("Sub", ["w", "step_w"], ["w_new"]), node("Mul", ["gb", rate], ["step_b"]),
              node("Sub", ["b", "step_b"], ["b_new"]), node("Add", ["count", "one"], ["count_new"])]
    floats = {name: value(name, onnx.TensorProto.FLOAT, shape) for name, shape in
              {"x": ["batch", 5], "y": ["batch", 3], rate: [], "logits": ["batch", 3], "mse": [], "w_new": [5, 3],
               "b_new": [3], "m_new": [5, 3]}.items()}
    count = value("count_new", onnx.TensorProto.INT64, [])
    tensors = [[numpy_helper.from_array(np.asarray(x), name) for name, x in part.items()] for part in (arrays, more)]
    inputs, results = [floats["y"], floats[rate]], [*(floats[k] for k in ("mse", "w_new", "b_new", "m_new")), count]
    graph = helper.make_graph(forward, "model", [floats["x"]], [floats["logits"]], tensors[0])
    step = helper.make_graph(update, "step", inputs, results, tensors[1])
    if not algorithm:
        graph.MergeFrom(step)
        graph.name = "model"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    info = model.training_info.add()
    if algorithm:
        info.algorithm.CopyFrom(step)
    for key in ("w", "b", "m", "count"):
        info.update_binding.add(key=key, value=f"{key}_new")
    return model, {**arrays, "m": more["m"]}


def in_numpy(state, batches, rate):
    """The same step."""
    w, b, m = (state[name].astype(float) for name in ("w", "b", "m"))
    losses = []
    for x, y in batches:
        d = x @ w + b - y
        losses.append(np.mean(d * d))
        m = 0.9 * m + x.T @ (d * 2 / d.size)
        w, b = w - rate * m, b - rate * np.sum(d * 2 / d.size, axis=0)
    return losses, {"w": w, "b": b, "m": m}


@pytest.mark.parametrize("algorithm,rate", [(False, "lr"), (True, "learning_rate")])
def test_a_step_of_another_program(algorithm, rate, tmp_path):
    """By its bindings; in the graph or in the training algorithm."""
    model, first = by_hand(algorithm, rate)
    onnx.save(model, tmp_path / "hand.onnx")
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(32, n)).astype(np.float32) for n in (5, 3))
    np.savez(tmp_path / "d.npz", x=x, y=y)
    data = ["--data", tmp_path / "d.npz", "--batch-size", 8]
    run("train", tmp_path / "hand.onnx", *data, "--no-shuffle", "--lr", 0.1, "--steps", 4, "--out", tmp_path / "run")
    run("train", "--resume", "--out", tmp_path / "run", "--steps", 6)
    batches = [(x[i:i + 8], y[i:i + 8]) for i in (0, 8, 16, 24, 0, 8)]
    losses, last = in_numpy(first, batches, 0.1)
    lines = metrics_without_speed(tmp_path / "run")
    np.testing.assert_allclose([line["loss"] for line in lines], losses, rtol=1e-5)
    assert not any("grad_norm" in line for line in lines)
    for name, value in last.items():
        np.testing.assert_allclose(state(tmp_path / "run")[name], value, rtol=1e-5, atol=1e-6)
    assert state(tmp_path / "run")["count"] == 6
    # Exported: the same file with new state; and the weights alone.
    run("export", tmp_path / "run", "-o", tmp_path / "next.onnx", tmp_path / "w.safetensors")
    held = onnx.load(tmp_path / "next.onnx")
    parts = [*held.graph.initializer, *held.training_info[0].algorithm.initializer]
    assert len(parts) == 8 and bool(held.training_info[0].algorithm.node) == algorithm
    for tensor in parts:
        if tensor.name in last:
            np.testing.assert_array_equal(numpy_helper.to_array(tensor), state(tmp_path / "run")[tensor.name])
    assert load_file(tmp_path / "w.safetensors").keys() == {"w", "b", "m"}
    # Evaluated: its loss, with nothing updated.
    loss = json.loads(run("eval", tmp_path / "run", *data, "--json").stdout)["loss"]
    assert loss == pytest.approx(in_numpy(last, [(x, y)], 0)[0][0], rel=1e-5)
    rows = json.loads(run("inspect", tmp_path / "hand.onnx", "--json").stdout)["initializers"]
    assert {row["name"]: row["next"] for row in rows} == {k: f"{k}_new" for k in ("w", "b", "m", "count")}


def test_bindings_are_assigned_at_once(tmp_path):
    """Two states change places; a third takes the sum of their old values."""
    node, value = helper.make_node, helper.make_tensor_value_info
    nodes = [node("Identity", ["b"], ["a_new"]), node("Identity", ["a"], ["b_new"]), node("Add", ["a", "b"], ["c_new"]),
             node("Sub", ["a_new", "b_new"], ["gap"]), node("Mul", ["gap", "x"], ["scaled"]),
             node("ReduceSum", ["scaled"], ["total"], keepdims=0)]
    floats = {name: value(name, onnx.TensorProto.FLOAT, shape) for name, shape in
              {"x": ["batch", 2], "a_new": [2], "b_new": [2], "c_new": [2], "total": []}.items()}
    arrays = {"a": [1, 2], "b": [10, 20], "c": [0, 0]}
    graph = helper.make_graph(nodes, "swap", [floats["x"]], [floats[k] for k in ("total", "a_new", "b_new", "c_new")],
                              [numpy_helper.from_array(np.array(x, np.float32), name) for name, x in arrays.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    info = model.training_info.add()
    for key in arrays:
        info.update_binding.add(key=key, value=f"{key}_new")
    onnx.save(model, tmp_path / "swap.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones((1, 2), np.float32))
    run("train", tmp_path / "swap.onnx", "--data", tmp_path / "d.npz", "--batch-size", 1, "--steps", 3, "--loss",
        "output:total", "--out", tmp_path / "run")
    got = state(tmp_path / "run")
    assert {name: list(x) for name, x in got.items()} == {"a": [10, 20], "b": [1, 2], "c": [11, 22]}
    assert [line["loss"] for line in metrics_without_speed(tmp_path / "run")] == [27, -27, 27]
