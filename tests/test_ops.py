"""Every operator's definition: shapes, gradients against central differences in float64, and float32 against float64.

The matrix comes from the operators: each entry of CASES of each module in trainer/ops is a test.
"""

import numpy as np
import pytest
from closeness import assert_close

from litenet.trainer.ops import OPS, activations, backward_needs, make_attrs, parameters
from litenet.trainer.ops.spec import ShapeError
from litenet.trainer.rng import DROPOUT, uniform

N = 3
MATRIX = [pytest.param(name, case, id=f"{name}-{i}") for name, m in OPS.items() for i, case in enumerate(m.CASES)]
# gelu and its like are fused at inference only; their gradient is tested with the activation operator
TRAINED = [
    p for p in MATRIX if p.values[0] == "activation" or p.values[1].get("activation", "none") in activations.FROM_OUTPUT
]


class Draw:
    """The same numbers at every call, as within one launch."""

    @staticmethod
    def uniform(shape):
        return uniform(5, DROPOUT, 1, shape)


def example(name, case, seed=0):
    """(module, attributes, arrays by role): float64 inputs and weights for one case."""
    module, rng = OPS[name], np.random.default_rng(seed)
    x = tuple(case["x"])
    a = make_attrs(module.OP, {k: v for k, v in case.items() if k != "x"})
    env = {role: rng.standard_normal((N, *x)) for role in module.OP.inputs}
    for w in module.OP.weights:
        absent = w.needs and not getattr(a, w.needs)
        values = rng.standard_normal(w.shape(a, x)) * 0.5
        env[w.name] = None if absent else (np.abs(values) + 0.5 if w.name == "running_var" else values)
    return module, a, env | {"rng": Draw}


def call(module, a, env, train=True):
    function = getattr(module, "forward_train", module.forward) if train else module.forward
    result = function(a, *(env.get(p) for p in parameters(function)))
    return result if isinstance(result, tuple) else (result, {})


@pytest.mark.parametrize(("name", "case"), MATRIX)
def test_output_has_the_shape_the_shape_rule_says(name, case):
    module, a, env = example(name, case)
    x = tuple(case["x"])
    y, _ = call(module, a, env, train=False)
    assert y.shape == (N, *module.out_shape(a, *[x] * len(module.OP.inputs)))
    assert np.isfinite(y).all()
    assert module.macs(a, x, y.shape[1:]) >= 0


@pytest.mark.parametrize(("name", "case"), MATRIX)
def test_float32_agrees_with_float64_within_the_operators_tolerance(name, case):
    module, a, env = example(name, case)
    single = {k: v.astype(np.float32) if isinstance(v, np.ndarray) else v for k, v in env.items()}
    double = {k: v.astype(np.float64) if isinstance(v, np.ndarray) else v for k, v in single.items()}
    y, _ = call(module, a, single, train=False)
    assert y.dtype == np.float32
    absolute, relative = module.OP.tolerance
    assert_close(y, call(module, a, double, train=False)[0], absolute, relative)


@pytest.mark.parametrize(("name", "case"), [p for p in MATRIX if hasattr(OPS[p.values[0]], "forward_again")])
def test_a_forward_pass_done_again_gives_the_bits_of_training(name, case):
    module, a, env = example(name, case)
    env = {k: v.astype(np.float32) if isinstance(v, np.ndarray) else v for k, v in env.items()}
    y, aux = call(module, a, env)
    asked = parameters(module.forward_again)
    state = {w.name for w in module.OP.weights if not w.trainable}
    assert not state & set(asked), "what training changes is no longer what it was"
    again = module.forward_again(a, *((aux | env)[p] for p in asked))
    assert again.dtype == y.dtype and again.tobytes() == y.tobytes()


@pytest.mark.parametrize("name", OPS)
def test_who_changes_state_in_training_says_how_to_do_it_again(name):
    module = OPS[name]
    assert hasattr(module, "forward_again") == any(not w.trainable for w in module.OP.weights)


@pytest.mark.parametrize(("name", "case"), TRAINED)
def test_backward_agrees_with_central_differences(name, case):
    """float64, step 1e-6; each gradient at up to 24 places chosen by seed."""
    module, a, env = example(name, case)
    rng = np.random.default_rng(1)
    y, aux = call(module, a, env)
    dy = rng.standard_normal(y.shape)
    known = {**env, **aux, "y": y, "dy": dy, "x_shape": env["x"].shape, "want": frozenset({"x", "x2"})}
    grads = module.backward(a, *(known[p] for p in parameters(module.backward)))
    roles = [*module.OP.inputs, *(w.name for w in module.OP.weights if w.trainable and env[w.name] is not None)]
    for role in roles:
        array = env[role]
        places = rng.permutation(array.size)[:24]
        numeric = np.empty(len(places))
        for i, place in enumerate(places):
            where = np.unravel_index(place, array.shape)
            kept, h = array[where], 1e-6
            array[where] = kept + h
            up = float((call(module, a, env)[0] * dy).sum())
            array[where] = kept - h
            down = float((call(module, a, env)[0] * dy).sum())
            array[where] = kept
            numeric[i] = (up - down) / (2 * h)
        assert grads[role].shape == array.shape
        assert_close(grads[role].ravel()[places], numeric, 2e-7, 2e-7)


@pytest.mark.parametrize(("name", "case"), TRAINED)
def test_backward_reads_nothing_the_planner_does_not_keep(name, case):
    """What backward_needs leaves out may be NaN: it must not reach the gradients."""
    module, a, env = example(name, case)
    y, aux = call(module, a, env)
    known = {**env, **aux, "y": y, "dy": np.ones_like(y), "x_shape": env["x"].shape, "want": frozenset({"x", "x2"})}
    kept = {*backward_needs(name, a), "dy", "rng", "x_shape", "want"}

    def poisoned(array):
        return array if array is None else np.full_like(array, 255 if array.dtype == np.uint8 else np.nan)

    arguments = [known[p] if p in kept else poisoned(known[p]) for p in parameters(module.backward)]
    for gradient in module.backward(a, *arguments).values():
        assert np.isfinite(gradient).all()


def test_conv2d_agrees_with_a_sum_written_out():
    """One output value by hand: 2 channels, a 2 x 2 kernel, stride 2, one pixel of padding on top."""
    a = make_attrs(OPS["conv2d"].OP, {"out_channels": 1, "kernel_size": 2, "stride": 2, "padding": [1, 0, 0, 0]})
    x = np.arange(1, 9, dtype=np.float64).reshape(1, 2, 2, 2)  # pixels (1,2) (3,4) / (5,6) (7,8)
    w = np.arange(1, 9, dtype=np.float64).reshape(1, 2, 2, 2)  # taps   (1,2) (3,4) / (5,6) (7,8)
    y = OPS["conv2d"].forward(a, x, w, np.array([0.5]))
    assert y.shape == (1, 1, 1, 1)
    assert y.item() == 0.5 + 1 * 5 + 2 * 6 + 3 * 7 + 4 * 8  # the upper taps see the padding


def test_maxpool_gives_the_gradient_to_the_first_of_equal_values():
    a = make_attrs(OPS["maxpool2d"].OP, {"kernel_size": 2, "stride": 2})
    x = np.ones((1, 2, 2, 1))
    _, aux = OPS["maxpool2d"].forward_train(a, x)
    dx = OPS["maxpool2d"].backward(a, np.full((1, 1, 1, 1), 3.0), aux["index"], x.shape)["x"]
    assert dx.ravel().tolist() == [3, 0, 0, 0]


def test_batchnorm_keeps_running_averages():
    module, a = OPS["batchnorm"], make_attrs(OPS["batchnorm"].OP, {"momentum": 0.5})
    x = np.array([[1.0], [3.0]])
    _, aux = module.forward_train(a, x, np.ones(1), np.zeros(1), np.zeros(1), np.ones(1))
    assert aux["running_mean"].tolist() == [1.0]  # 0.5*0 + 0.5*2
    assert aux["running_var"].tolist() == [1.5]  # 0.5*1 + 0.5*2, the unbiased variance


def test_batchnorm_keeps_no_output_for_its_backward_pass_unless_a_sum_follows():
    for name, kept in (("batchnorm", False), ("batchnorm_add", True)):
        needs = backward_needs(name, make_attrs(OPS[name].OP, {"activation": "relu"}))
        assert ("y" in needs) == kept
        assert "x2" not in needs


def test_dropout_keeps_the_mean_and_the_share():
    a = make_attrs(OPS["dropout"].OP, {"rate": 0.25})
    y, _ = OPS["dropout"].forward_train(a, np.ones((100, 400), np.float32), Draw)
    assert abs(y.mean() - 1) < 0.01
    assert abs((y == 0).mean() - 0.25) < 0.01


def test_erf_is_exact_to_single_precision_and_beyond():
    from math import erf

    x = np.linspace(-7, 7, 4001)
    assert_close(activations.erf(x), np.array([erf(v) for v in x]), 1e-13, 0)


def test_activations_stay_finite_at_extremes():
    h = np.array([-1e30, -1e4, -90.0, 0.0, 90.0, 1e4, 1e30], np.float32)
    for name in activations.IDS:
        if name != "gelu_tanh":  # h^3 leaves float32 beyond 1e12; the tanh still saturates
            assert np.isfinite(activations.apply(name, h)).all(), name
    with np.errstate(over="ignore"):
        assert np.isfinite(activations.apply("gelu_tanh", h)[1:-1]).all()


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("conv2d", {"out_channels": 4}, "kernel_size is missing"),
        ("conv2d", {"out_channels": 4, "kernel_size": 0}, "from 1 to 255"),
        ("conv2d", {"out_channels": 4, "kernel_size": [1, 2, 3]}, "give one number or 2"),
        ("conv2d", {"out_channels": 4, "kernel_size": 2.5}, "a whole number"),
        ("linear", {"out_features": 4, "activation": "reluu"}, "it can be none, relu"),
    ],
)
def test_wrong_attributes_are_named(name, given, word):
    with pytest.raises(ValueError, match=word):
        make_attrs(OPS[name].OP, given)


@pytest.mark.parametrize(
    ("name", "given", "x", "word"),
    [
        ("linear", {"out_features": 4}, (4, 4, 3), "flatten"),
        ("conv2d", {"out_channels": 4, "kernel_size": 9}, (5, 5, 3), "does not fit"),
        ("conv2d", {"out_channels": 4, "kernel_size": 1, "groups": 3}, (5, 5, 4), "must divide"),
        ("conv2d", {"out_channels": 4, "kernel_size": 1}, (17,), "needs an image"),
        ("maxpool2d", {"kernel_size": 2, "padding": 2}, (5, 5, 4), "would see no pixel"),
        ("maxpool2d", {"kernel_size": [17, 16]}, (50, 50, 4), "at most 256 taps"),
    ],
)
def test_shapes_that_do_not_fit_say_what_would(name, given, x, word):
    with pytest.raises(ShapeError, match=word):
        OPS[name].out_shape(make_attrs(OPS[name].OP, given), x)
