# SPDX-License-Identifier: Apache-2.0
"""Forward models rewritten by every recipe, in stock onnxruntime and by `onnx-fp8 run`.

Runtimes add in other orders. If an activation therefore rounds to the next 8-bit value, the error is larger than in
fp32. So each FP8 product is compared with its own operands, which become outputs of the file."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from program import FIXTURES, reference, run, write_batch
from safetensors.numpy import load_file
from stock import stock_session

FLOAT, E8M0 = TensorProto.FLOAT, TensorProto.FLOAT8E8M0
MODELS = ["mlp", "nanogpt", "llama", "vit"]
RECIPES = ["tensorwise", "delayed", "static", "rowwise", "rowwise_with_gw_hp", "blockwise", "mxfp8",
           "blockwise,round:p2", "mxfp8,round:floor", "rowwise,scales:e8m0", "mxfp8,scales:e8m0"]
# onnxruntime 1.31 can't put a folded constant of float8e8m0 into the graph if it has 128 bytes or more. (In a whole step
# weights are inputs: nothing is folded.)
NO_FOLDING = ["ConstantFolding"]


def rewritten(case, recipe, tmp):
    """The path of the fixture's forward model, rewritten with this recipe."""
    model, path = FIXTURES / case / "d18.onnx", tmp / "forward.onnx"
    flags = ["--recipe", recipe]
    if recipe == "static":
        data = write_batch(case, tmp / "d.npz")
        run("calibrate", model, "--data", data, "--loss", "cross_entropy", "--steps", 1, "--batch-size",
            len(reference(case)["label.labels"]), "-o", tmp / "scales.json")
        flags += ["--scales", tmp / "scales.json"]
    run("rewrite", model, "-o", path, *flags)
    return path


def products(model):
    return [node for node in model.graph.node if node.op_type.startswith("ScaledMatMul")]


def opened(model):
    """The model with the operands and the result of each FP8 product as outputs, in float."""
    more = []
    for node in products(model):
        for value in [*node.input[:4], node.output[0]]:
            if value in more:
                continue
            model.graph.node.append(helper.make_node("Cast", [value], [f"{value}.opened"], to=FLOAT))
            model.graph.output.append(helper.make_tensor_value_info(f"{value}.opened", FLOAT, None))
            more.append(value)
    return model


def spread(scale, shape, blocks):
    """One scale for each element; a block of 0 is the whole axis."""
    if scale.ndim == 0:
        return np.full(shape, scale)
    at = [np.arange(n) // (block or n) for n, block in zip(shape, blocks)]
    return scale[np.ix_(*at)]


def assert_is_product(node, values, weights):
    """What one runtime gave for `node`: y = op(a) op(b) + bias of the operands that it had itself."""
    attribute = {a.name: a.i for a in node.attribute}
    operands = []
    for i, x in enumerate("ab"):
        q, scale = (values[f"{name}.opened"].astype(np.float64) for name in node.input[2 * i:2 * i + 2])
        q = q.reshape(-1, q.shape[-1])
        blocks = [attribute.get(f"{x}_block_{axis}", 0) for axis in ("rows", "columns")]
        operand = q * spread(scale, q.shape, blocks)
        operands.append(operand.T if attribute[f"trans{x.upper()}"] else operand)
    a, b = operands
    bias = weights[node.input[4]].astype(np.float64) if len(node.input) > 4 else np.zeros(b.shape[1])
    y = values[f"{node.output[0]}.opened"].reshape(a.shape[0], b.shape[1])
    # As in test_block_bodies.py.
    bound = (a.shape[1] + 5) * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(bias))
    assert np.all(np.abs(y - (a @ b + bias)) <= bound), node.name


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("case", MODELS)
def test_forward_is_the_same_in_stock_onnxruntime(case, recipe, tmp_path):
    path = rewritten(case, recipe, tmp_path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    e8m0 = recipe.endswith("e8m0")
    assert model.opset_import[0].version == (24 if e8m0 else 19)
    types = {a.i for node in model.graph.node for a in node.attribute if a.name == "scale_to"}
    assert types <= ({E8M0} if e8m0 else {FLOAT})
    path = tmp_path / "opened.onnx"
    onnx.save(opened(model), path)
    session = stock_session(path, disabled_optimizers=NO_FOLDING if e8m0 else [])
    given = {name.removeprefix("input."): array for name, array in reference(case).items()}
    feeds = {i.name: given[i.name] for i in session.get_inputs() if i.name in given}
    stock = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
    np.savez(tmp_path / "feeds.npz", **feeds)
    run("run", path, "--data", tmp_path / "feeds.npz", "-o", tmp_path / "ours.safetensors")
    ours = load_file(tmp_path / "ours.safetensors")
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = products(model)
    assert len(nodes) >= 3
    flipped = False
    for node in nodes:
        for values in (stock, ours):
            assert_is_product(node, values, weights)
        a_q, a_scale, b_q, b_scale = (f"{name}.opened" for name in node.input[:4])
        for name in (b_q, b_scale):  # weights are the same bits
            np.testing.assert_array_equal(stock[name], ours[name])
        flipped |= not np.array_equal(stock[a_q], ours[a_q])
    output = model.graph.output[0].name
    error = np.linalg.norm(stock[output] - ours[output]) / np.linalg.norm(ours[output])
    assert error <= (3e-2 if flipped else 1e-5)


def test_stock_onnxruntime_folds_no_constants_of_e8m0(tmp_path):
    """The reason for NO_FOLDING, which users need too: docs/fp8.md says so."""
    path = rewritten("nanogpt", "mxfp8,scales:e8m0", tmp_path)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail, match="Element type mismatch"):
        stock_session(path)
    stock_session(path, disabled_optimizers=NO_FOLDING)
