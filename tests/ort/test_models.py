# SPDX-License-Identifier: Apache-2.0
"""Exported models in our provider, beside `onnx-fp8 run`, which computes the same bits;
its options; and several threads."""
import subprocess
import sys
import threading

import numpy
import onnx
import pytest
from cases import Case, corpus, fixtures, name_of
from program import run
from sessions import EP, ROOT, TELLS_ASSIGNMENT, groups, session

MODELS = [*fixtures(), *corpus(["mlp", "mlp_bn", "nanogpt", "gpt2_eager", "gpt2_loss", "llama_eager", "vit",
                                "mixer_timm", "bert_cls", "resnet18_w16", "convnext", "lora_mlp"])]
NANOGPT = ROOT / "tests/fixtures/nanogpt/d18.onnx"


def ran(model, case, tmp_path):
    out = tmp_path / "out.npz"
    run("run", model, "--data", case.data, "-o", out)
    return dict(numpy.load(out))


def assert_same_bits(running, feeds, expected):
    names = [output.name for output in running.get_outputs()]
    for name, array in zip(names, running.run(None, feeds), strict=True):
        numpy.testing.assert_array_equal(array, expected[name], name)


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_models_give_the_bits_of_run(model, tmp_path):
    """In the order of ops that the file has: the session's own rewrites, as of MatMul and
    Add to Gemm, change none of them. It computes constants of TorchScript's files itself,
    though, in other last digits. Branches (`cond_mlp`) are not ours."""
    case = Case(model, tmp_path)
    branches = model.parent.name == "cond_mlp"
    running = session(model, fallback=branches, optimized=model.stem != "l17")
    if TELLS_ASSIGNMENT and not branches:
        assert {provider for provider, _ in groups(running)} == {EP}
    assert_same_bits(running, case.inputs(), ran(model, case, tmp_path))


# ---- options

@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "mxfp8"])
def test_recipe_is_that_of_rewrite(recipe, tmp_path):
    case = Case(NANOGPT, tmp_path)
    path = tmp_path / "fp8.onnx"
    run("rewrite", NANOGPT, "-o", path, "--recipe", recipe)
    expected = ran(path, case, tmp_path)
    assert_same_bits(session(NANOGPT, {"recipe": recipe}), case.inputs(), expected)
    plain = ran(NANOGPT, case, tmp_path)
    assert any((plain[name] != expected[name]).any() for name in plain)


@pytest.mark.parametrize("name,value", [("filter_fqns", "lm_head,fc"), ("include", "lm_head*"),
                                        ("exclude", "*fc*,lm_head*")])
def test_filters_are_those_of_rewrite(name, value, tmp_path):
    case = Case(NANOGPT, tmp_path)
    path = tmp_path / "fp8.onnx"
    flags = []
    for word in value.split(","):
        flags += ["--" + name.replace("_", "-"), word]
    run("rewrite", NANOGPT, "-o", path, "--recipe", "tensorwise", *flags)
    options = {"recipe": "tensorwise", name: value}
    assert_same_bits(session(NANOGPT, options), case.inputs(), ran(path, case, tmp_path))


@pytest.mark.parametrize("layer", ["blocks.0.c_attn", "*.fc", "lm_head"])
def test_names_of_nodes_are_known_from_memory(layer, tmp_path):
    """TorchScript's exporter names nodes after modules."""
    path = NANOGPT.with_name("l17.onnx")
    case, options = Case(NANOGPT, tmp_path), {"recipe": "tensorwise", "exclude": layer}
    in_memory, of_file, whole = (
        session(model, settings).run(None, case.inputs())[0] for model, settings in
        ((onnx.load(path), options), (path, options), (path, {"recipe": "tensorwise"})))
    numpy.testing.assert_array_equal(in_memory, of_file)
    assert (in_memory != whole).any()


@pytest.mark.parametrize("options,message", [
    ({"recpe": "tensorwise"}, r"ep.onnx_fp8.recpe\].*expected one of recipe, filter_fqns"),
    ({"recipe": "tensorwide"}, r"ep.onnx_fp8.recipe\].*tensorwide"),
    ({"recipe": "delayed"}, "expected a recipe with dynamic or static scales"),
    ({"recipe": "static"}, r"ep.onnx_fp8.recipe\] expected the option scales"),
    ({"recipe": "static", "scales": "no_such_file"}, r"ep.onnx_fp8.scales\] \[no_such_file\]"),
    ({"threads": "0"}, "expected an integer of at least 1, got 0"),
    ({"threads": "two"}, "expected an integer of at least 1, got two"),
    ({"pool": "mine"}, "expected session or own"),
    ({"recipe": "tensorwise", "exclude": "no_such_layer"}, "no_such_layer"),
])
def test_bad_options_are_named(options, message):
    with pytest.raises(Exception, match=message):
        session(NANOGPT, options)
    session(NANOGPT)  # nothing is left of it


@pytest.mark.parametrize("options", [{"pool": "own"}, {"threads": "1"}, {"threads": "3", "pool": "own"}])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_bit(options, threads, tmp_path):
    case = Case(NANOGPT, tmp_path)
    assert_same_bits(session(NANOGPT, options, threads=threads), case.inputs(), ran(NANOGPT, case, tmp_path))


# ---- several threads

def in_threads(calls):
    errors = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def batches(case, count):
    """Feeds of several shapes, and what one session at a time makes of them."""
    alone = session(NANOGPT)
    (name, tokens), = case.inputs().items()
    feeds = [{name: numpy.roll(tokens, i, axis=0)[:1 + i % len(tokens)]} for i in range(count)]
    return feeds, [alone.run(None, feed)[0] for feed in feeds]


def run_all(running, feeds, expected):
    for _ in range(5):
        for feed, want in zip(feeds, expected, strict=True):
            numpy.testing.assert_array_equal(running.run(None, feed)[0], want)


@pytest.mark.parametrize("options", [{}, {"recipe": "tensorwise"}, {"pool": "own"}])
def test_threads_share_a_session(options, tmp_path):
    feeds, expected = batches(Case(NANOGPT, tmp_path), 6)
    shared = session(NANOGPT, options)
    if "recipe" in options:
        expected = [shared.run(None, feed)[0] for feed in feeds]
    in_threads([lambda: run_all(shared, feeds, expected), lambda: run_all(shared, feeds[::-1], expected[::-1]),
                lambda: run_all(shared, feeds[2:], expected[2:])])


def test_threads_have_sessions_of_their_own(tmp_path):
    feeds, expected = batches(Case(NANOGPT, tmp_path), 4)
    in_threads([lambda: run_all(session(NANOGPT), feeds, expected) for _ in range(2)])


def test_a_child_process_computes_too(tmp_path):
    """After fork() neither pool's threads are there."""
    code = f"""
import os, sys
sys.path[:0] = [{str(ROOT / "tests/ort")!r}, {str(ROOT / "tests/python")!r}]
import numpy, sessions
x = {{"x": numpy.ones((64, 24), numpy.float32)}}
opened = sessions.session({str(ROOT / "tests/fixtures/mlp/d18.onnx")!r}, {{"pool": "own"}}, threads=1)
opened.run(None, x)
child = os.fork()
if child == 0:
    opened.run(None, x)
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 0
