"""The trainer's losses and settings, its state, and weights and gradients as one vector."""

from types import SimpleNamespace

import numpy as np
import pytest
from closeness import assert_close
from nets import CONV, POOL, SMALL, net
from trainers import MLP, batch_of, bits, everything, mlp

from litenet.trainer.errors import UserError
from litenet.trainer.trainer import Trainer
from litenet.trainer.vectors import NamedVector

# ---- losses, settings, state


def losses_of(trainer, x, y, steps=80):
    return [trainer.step(SimpleNamespace(x=x, y=y)) for _ in range(steps)]


def test_a_regression_finds_the_line_it_is_asked_for():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 3)).astype(np.float32)
    A, b = np.float32([[1, -2, 0.5], [0, 3, 1]]), np.float32([0.25, -1])
    trainer = Trainer(net([{"type": "linear", "out_features": 2}], [3], loss="mse", learning_rate=0.3), 32)
    metrics = losses_of(trainer, x, x @ A.T + b, 150)
    assert "correct" not in metrics[0]
    assert metrics[-1]["loss"] < 1e-9
    assert_close(trainer.array("layer_0.weight"), A, 1e-4, 0)
    assert_close(trainer.array("layer_0.bias"), b, 1e-4, 0)
    assert trainer.evaluate(x, x @ A.T + b).accuracy is None


@pytest.mark.parametrize("loss", ["cross_entropy", "logit_margin", "mse", "bce"])
def test_every_loss_trains_a_classifier_of_class_numbers(loss):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    x = (np.eye(3)[y] * 2 + 0.3 * rng.standard_normal((30, 3))).astype(np.float32)
    blueprint = net([{"type": "linear", "out_features": 3}], [3], loss=loss, learning_rate=0.5)
    trainer = Trainer(blueprint, 30, classes=True)
    metrics = losses_of(trainer, x, y)
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    assert metrics[-1]["correct"] == 30
    assert trainer.evaluate(x, y).accuracy == 1


@pytest.mark.parametrize("classes", [None, True])
def test_a_yes_or_no_net_has_one_output_and_an_accuracy(classes):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2)).astype(np.float32)
    yes = x[:, 0] > x[:, 1]
    y = yes.astype(np.int64 if classes else np.float32)
    blueprint = net([{"type": "linear", "out_features": 1}], [2], loss="bce", learning_rate=2.0)
    trainer = Trainer(blueprint, 40, classes=classes)
    metrics = losses_of(trainer, x, y, 200)
    assert metrics[-1]["correct"] >= 38
    assert metrics[-1]["loss"] < 0.2
    assert trainer.evaluate(x, y).predictions.tolist() == (trainer.infer(x)[:, 0] > 0).tolist()


def test_a_margin_is_a_number_of_the_blueprint():
    x, y = np.eye(3, dtype=np.float32), np.arange(3)
    for m in (0.5, 4.0):
        layers = [{"type": "linear", "out_features": 3, "weight_init": "zeros"}]
        trainer = Trainer(net(layers, [3], loss={"type": "logit_margin", "m": m}), 3)
        assert trainer.criterion(trainer.forward(x)["output"], y) == m


def test_equal_seeds_start_with_equal_bits_and_others_do_not():
    a, b, c = (Trainer(everything(), 4, seed=seed) for seed in (7, 7, 8))
    assert bits(a) == bits(b)
    assert bits(a) != bits(c)
    twins = Trainer(net([{"type": "linear", "out_features": 4}] * 2, [4]), 2)
    assert not np.array_equal(twins.array("layer_0.weight"), twins.array("layer_1.weight"))


def test_the_learning_rate_may_be_given_or_be_the_blueprints_or_the_optimizers():
    assert Trainer(mlp(), 2).optimizer.lr == 0.1
    assert Trainer(mlp(), 2, learning_rate=0.7).optimizer.lr == 0.7
    assert Trainer(net(MLP, [12], optimizer="adam"), 2).optimizer.lr == 0.001


def test_a_blueprint_may_be_given_by_its_path(tmp_path):
    path = tmp_path / "a_net.json"
    path.write_text('{"input_shape": [4], "layers": [{"type": "linear", "out_features": 2}]}')
    trainer = Trainer(str(path), batch_size=3)
    assert (trainer.blueprint.name, trainer.batch_size) == ("a_net", 3)
    assert trainer.infer(np.zeros((3, 4), np.float32)).shape == (3, 2)


def test_state_is_everything_and_comes_back_to_the_bit():
    blueprint = everything(optimizer="adam")
    first, second = Trainer(blueprint, 6, seed=1), Trainer(blueprint, 6, seed=2)
    first.step(batch_of(blueprint))
    state = first.state_arrays()
    assert {name.split("/")[0] for name in state} == {"weights", "optimizer"}
    assert {"weights/layer_1.running_var", "optimizer/m/layer_0.weight", "optimizer/v/layer_0.weight"} <= set(state)
    second.load_arrays(state, "here")
    assert bits(second) == bits(first)
    kept = {name: array.copy() for name, array in state.items()}
    first.step(batch_of(blueprint))
    assert all(np.array_equal(state[name], kept[name]) for name in state)  # copies


def test_weights_may_be_loaded_without_the_optimizers_state():
    blueprint = everything(optimizer="adam")
    first, second = Trainer(blueprint, 6, seed=1), Trainer(blueprint, 6, seed=2)
    weights = {name: array for name, array in first.state_arrays().items() if name.startswith("weights/")}
    second.load_arrays(weights, "here", optimizer=False)
    assert np.array_equal(second.model.weights, first.model.weights)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop("optimizer/m/layer_0.bias"),
         "optimizer/m/layer_0.bias is missing, but the blueprint needs (9,)"),
        (lambda s: s.update({"weights/layer_1.weight": np.zeros((9, 7))}),
         "weights/layer_1.weight has shape (9, 7), but the blueprint needs (7, 9)"),
    ],
)  # fmt: skip
def test_state_that_does_not_fit_is_refused_by_name(change, text):
    trainer = Trainer(mlp(optimizer="adam"), 6)
    state = trainer.state_arrays()
    change(state)
    with pytest.raises(UserError) as error:
        trainer.load_arrays(state, "old.npz")
    assert str(error.value) == f"old.npz: {text}.\n  Use the blueprint this checkpoint was trained with."


@pytest.mark.parametrize(
    ("layers", "more", "text"),
    [
        ([CONV, POOL], {}, r"the last layer gives \(4, 4, 4\), but cross_entropy needs one row of scores"),
        ([{"type": "flatten"}, {"type": "softmax"}], {"optimizer": "adam"}, "no layer has weights to train"),
        (SMALL, {"loss": {"type": "cross_entropy", "class_weights": [1, 2]}}, "class_weights has 2 numbers"),
    ],
)
def test_a_net_that_its_loss_cannot_train_is_refused(layers, more, text):
    with pytest.raises(UserError, match=text):
        Trainer(net(layers, **more), 4)


# ---- weights and gradients as one vector


def vector():
    places = {"a": (0, (2, 2)), "b": (4, (3,))}
    return NamedVector(np.arange(8, dtype=np.float32), places)


def test_a_named_vector_is_a_vector_and_its_tensors():
    v = vector()
    assert v.names() == ["a", "b"]
    assert v["a"].tolist() == [[0, 1], [2, 3]]
    assert v["b"].tolist() == [4, 5, 6]
    v["b"][0] = 40  # a view
    v["a"] = 9
    v[7] = 70
    assert v.tolist() == [9, 9, 9, 9, 40, 5, 6, 70]
    assert [name for name, _ in v.items()] == ["a", "b"]
    assert type(v["a"]) is np.ndarray
    with pytest.raises(KeyError):
        v["c"]


def test_names_stay_with_what_keeps_the_shape_and_only_there():
    v = vector()
    for same in (v * 2, np.clip(v, 1, 3), -v, v.copy(), 0.5 * v + np.sign(v), v[:]):
        assert same["b"].tolist() == np.asarray(same)[4:7].tolist()
    for other in (v[2:], v.reshape(2, 4), v[v > 3], v * np.ones((2, 8)), NamedVector(np.zeros(8), {})):
        assert other.names() == []


def test_what_is_one_number_is_a_plain_one():
    v = vector()
    for number, value in ((v.sum(), 28), (np.max(v), 7), (np.linalg.norm(v), np.sqrt(140)), (v.mean(), 3.5), (v[3], 3)):
        assert np.isscalar(number)
        assert_close(number, value, 0, 1e-6)


def test_changing_a_vector_in_place_leaves_it_the_same_object():
    v = vector()
    v.activations = {"layer_0": 1}
    same = v
    v += 1
    v *= vector()
    np.clip(v, 0, 20, out=v)
    assert v is same
    assert v.activations == {"layer_0": 1}
    assert v["b"].tolist() == [20, 20, 20]


def test_tensors_start_at_multiples_of_16_bytes_and_the_gaps_hold_zeros():
    trainer = Trainer(mlp(optimizer="momentum"), 6)
    for seed in range(3):
        trainer.step(batch_of(trainer.blueprint, seed=seed))
    for whole in (trainer.model.weights, trainer.gradients):
        gaps = np.ones(len(whole), bool)
        for name in whole.names():
            at, shape = whole.places[name]
            assert at % 4 == 0
            gaps[at : at + int(np.prod(shape))] = False
        assert gaps.any()
        assert not np.asarray(whole)[gaps].any()
    assert set(trainer.optimizer.states) == {"velocity"}
    assert np.shares_memory(trainer.optimizer.states["velocity"], trainer.backend.arena)
