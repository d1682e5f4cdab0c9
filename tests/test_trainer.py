"""The trainer: the step of the article written out, the same bits in every mode, and gradients against float64."""


import numpy as np
import pytest
from closeness import assert_close
from nets import EVERYTHING, NESTED, RESIDUAL, SMALL, evaluate64, net
from trainers import batch_of, bits, everything, mlp, nested

from litenet.trainer.backends.numpy import Draw
from litenet.trainer.base import Loss
from litenet.trainer.errors import UserError
from litenet.trainer.trainer import Trainer


class Study(Trainer):
    """The step of the article, as it is printed there."""

    def step(self, batch):
        # 1. forward: a dictionary of activations
        activations = self.forward(batch.x)  # key: 'layer_0', 'layer_1'...
        # 2. the loss, called and not implied
        loss = self.criterion(activations['output'], batch.y)
        # 3. backward, from a loss that is named
        gradients = self.backward(loss, activations)
        # 4. the update
        self.optimizer.update(self.model.weights, gradients)

        return {"loss": loss, "grad_norm": np.linalg.norm(gradients)}


# ---- the step taken apart


def test_the_articles_step_runs_as_printed_and_is_the_usual_step_to_the_bit():
    blueprint = mlp()
    plain, study = Trainer(blueprint, 6), Study(blueprint, 6)
    for seed in range(5):
        batch = batch_of(blueprint, seed=seed, classes=4)
        want, got = plain.step(batch), study.step(batch)
        assert got.keys() == {"loss", "grad_norm"}
        assert float(got["loss"]) == want["loss"]
        assert_close(got["grad_norm"], want["grad_norm"], 0, 1e-6)
        assert bits(plain) == bits(study)


def test_forward_gives_the_activations_by_layer_and_the_output():
    trainer = Trainer(mlp(), 6)
    batch = batch_of(trainer.blueprint, classes=4)
    activations = trainer.forward(batch.x)
    assert {k: a.shape for k, a in activations.items()} == {
        "layer_0": (6, 9), "layer_1": (6, 7), "layer_2": (6, 4), "output": (6, 4)}  # fmt: skip
    assert activations["layer_0"].min() == 0  # a ReLU, looked at
    assert 0 < (activations["layer_0"] > 0).mean() < 1
    assert np.array_equal(activations["output"], activations["layer_2"])
    kept = activations["layer_0"].copy()
    trainer.forward(-batch.x)
    assert np.array_equal(activations["layer_0"], kept)  # copies: the next step does not reach them


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam"])
def test_the_step_taken_apart_is_the_step_to_the_bit(optimizer):
    """Every operator, dropout and batchnorm included, and a last batch that is shorter."""
    blueprint = everything(optimizer=optimizer)
    plain, study = Trainer(blueprint, 6, seed=4), Study(blueprint, 6, seed=4)
    for rows in (6, 6, 4, 6):
        batch = batch_of(blueprint, rows, seed=rows)
        want, got = plain.step(batch), study.step(batch)
        assert float(got["loss"]) == want["loss"]
        assert bits(plain) == bits(study)


def test_the_loss_is_a_number_that_carries_its_gradient():
    trainer = Trainer(mlp(), 6)
    batch = batch_of(trainer.blueprint, classes=4)
    loss = trainer.criterion(trainer.forward(batch.x)["output"], batch.y)
    assert isinstance(loss, float) and isinstance(loss, Loss)
    assert loss.gradient.shape == (6, 4)
    assert_close(loss.gradient.sum(1), np.zeros(6), 1e-7, 0)  # softmax minus one-hot
    assert loss / 2 == float(loss) * 0.5


def test_gradients_can_be_looked_at_clipped_and_added_to():
    trainer = Trainer(mlp(), 6)
    batch = batch_of(trainer.blueprint, classes=4)
    activations = trainer.forward(batch.x)
    gradients = trainer.backward(trainer.criterion(activations["output"], batch.y), activations)
    whole = np.concatenate([g.ravel() for _, g in gradients.items()])
    assert_close(np.linalg.norm(gradients), np.linalg.norm(whole), 0, 1e-6)
    assert np.max(gradients) == whole.max()
    before = {name: g.copy() for name, g in gradients.items()}
    gradients += 0.001 * trainer.model.weights
    for name, g in gradients.items():
        assert_close(g, before[name] + np.float32(0.001) * trainer.model.weights[name], 1e-9, 1e-6)
    gradients *= 1000
    gradients = np.clip(gradients, -10, 10)
    assert (np.max(gradients), np.min(gradients)) == (10, -10)
    weights = {name: w.copy() for name, w in trainer.model.weights.items()}
    trainer.optimizer.update(trainer.model.weights, gradients)
    for name, w in trainer.model.weights.items():
        assert_close(w, weights[name] - np.float32(0.1) * gradients[name], 1e-7, 1e-7)
        assert np.array_equal(w, trainer.array(name))


def test_an_optimizers_update_can_be_replaced():
    trainer = Trainer(mlp(), 6)
    seen = []

    def update(weights, gradients):
        seen.append(float(np.linalg.norm(gradients)))
        weights -= 0.5 * np.sign(gradients)

    trainer.optimizer.update = update
    before = trainer.model.weights["layer_1.weight"].copy()
    metrics = trainer.step(batch_of(trainer.blueprint, classes=4))
    assert_close(seen, [metrics["grad_norm"]], 0, 1e-6)
    moved = np.abs(trainer.model.weights["layer_1.weight"] - before)
    assert set(np.round(moved, 5).ravel().tolist()) <= {0.0, 0.5}
    assert moved.max() > 0.4


def test_backward_without_its_forward_is_refused():
    trainer = Trainer(mlp(), 6)
    batch = batch_of(trainer.blueprint, classes=4)
    loss = trainer.criterion(trainer.forward(batch.x)["output"], batch.y)
    trainer.infer(batch.x)  # writes where the activations were
    with pytest.raises(UserError, match="needs a forward\\(\\) of the same batch right before it"):
        trainer.backward(loss)
    trainer.forward(batch.x)
    trainer.backward(loss)
    with pytest.raises(UserError, match="right before it"):
        trainer.backward(loss)
    trainer.forward(batch.x)
    trainer.step(batch)
    with pytest.raises(UserError, match="right before it"):
        trainer.backward(loss)
    trainer.forward(batch.x[:3])
    with pytest.raises(UserError, match="same batch"):
        trainer.backward(loss)


def test_backward_of_a_trainer_that_uses_gradients_up_is_refused():
    trainer = Trainer(mlp(), 6, update="immediate")
    loss = trainer.criterion(trainer.forward(batch_of(trainer.blueprint).x)["output"], np.zeros(6, int))
    with pytest.raises(UserError, match='update="end"'):
        trainer.backward(loss)


def test_a_flatten_in_front_and_layers_fused_away_show_as_documented():
    blueprint = net([{"type": "flatten"}, {"type": "linear", "out_features": 5}, {"type": "relu"},
                     {"type": "linear", "out_features": 3}, {"type": "softmax"}])  # fmt: skip
    trainer = Trainer(blueprint, 4)
    batch = batch_of(blueprint, 4)
    activations = trainer.forward(batch.x)
    assert list(activations) == ["layer_0", "layer_2", "layer_3", "output"]
    assert np.array_equal(activations["layer_0"], batch.x.reshape(4, 64))
    assert np.array_equal(activations["output"], activations["layer_3"])  # logits, for the cross entropy


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam", "adamw"])
@pytest.mark.parametrize("make", [mlp, nested, everything])
def test_gradients_used_up_at_once_give_the_bits_of_gradients_kept(make, optimizer):
    blueprint = make(optimizer={"type": optimizer, "weight_decay": 1e-3})
    end, immediate = (Trainer(blueprint, 6, seed=2, update=mode) for mode in ("end", "immediate"))
    for rows in (6, 5, 6):
        batch = batch_of(blueprint, rows, seed=rows)
        assert end.step(batch) == immediate.step(batch)
    assert bits(end) == bits(immediate)
    x = batch_of(blueprint, 3, seed=9).x
    assert end.infer(x).tobytes() == immediate.infer(x).tobytes()


@pytest.mark.parametrize("mode", ["end", "immediate"])
@pytest.mark.parametrize("make", [nested, everything])
def test_nothing_is_read_after_the_plan_calls_it_dead(make, mode):
    """poison fills dead regions with NaN; the step taken apart reads them as little as the whole one."""
    blueprint = make(optimizer="momentum")
    plain, poisoned = (Trainer(blueprint, 6, update=mode, poison=poison) for poison in (False, True))
    batch = batch_of(blueprint, 5)
    for trainer in (plain, poisoned):
        trainer.step(batch)
    assert bits(plain) == bits(poisoned)
    assert plain.infer(batch.x).tobytes() == poisoned.infer(batch.x).tobytes()
    if mode == "end":
        want, got = ({**t.forward(batch.x), **dict(gradient_of(t, batch).activations)} for t in (plain, poisoned))
        assert want.keys() == got.keys()
        assert all(want[name].tobytes() == got[name].tobytes() for name in want)


def gradient_of(trainer, batch):
    return trainer.backward(trainer.criterion(trainer.forward(batch.x)["output"], batch.y))


# ---- gradients


def masks(trainer):
    """The random numbers of the trainer's first step, by node."""
    order = [n.name for n in trainer.graph.nodes if n.op == "dropout"]
    return lambda name: Draw(trainer.seed, 0, order.index(name), len(order)) if name in order else None


def loss64(trainer, weights, x, y):
    """The mean cross entropy in float64: the net as it was written, operator by operator, on the same dropout masks."""
    full = trainer.model.graph
    p = evaluate64(full, weights, x, training=True, draw=masks(trainer))[full.outputs[0]]
    if full.nodes[-1].op != "softmax":
        p = np.exp(p - p.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
    return -np.log(p[np.arange(len(y)), y]).mean()


NETS = {"small": SMALL, "residual": RESIDUAL, "nested": NESTED, "everything": EVERYTHING}


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_the_gradients_of_a_whole_net_agree_with_central_differences_in_float64(layers):
    """Within 1e-5 of the value and of the largest in its tensor: the arena is float32. The step is so small that no
    relu passes its edge on the way."""
    blueprint = net(layers, (2, 8, 8))
    trainer = Trainer(blueprint, 6, seed=1)
    batch, rng = batch_of(blueprint), np.random.default_rng(3)
    for name, w in trainer.model.weights.items():  # no bias is 0: where all inputs are, relu would stand on its edge
        w += rng.uniform(0.01, 0.1, w.shape)
        assert np.array_equal(w, trainer.array(name))
    weights = {name: trainer.array(name).astype(np.float64) for name in trainer.graph.params}
    loss = trainer.criterion(trainer.forward(batch.x)["output"], batch.y)
    assert_close(float(loss), loss64(trainer, weights, batch.x, batch.y), 1e-6, 1e-6)
    gradients = trainer.backward(loss)
    for name, g in gradients.items():
        places = rng.permutation(g.size)[:3]
        numeric = np.empty(len(places))
        for i, place in enumerate(places):
            w, h = weights[name].reshape(-1), 1e-7
            kept = w[place]
            w[place] = kept + h
            up = loss64(trainer, weights, batch.x, batch.y)
            w[place] = kept - h
            down = loss64(trainer, weights, batch.x, batch.y)
            w[place] = kept
            numeric[i] = (up - down) / (2 * h)
        assert_close(g.ravel()[places], numeric, 1e-5 * max(np.abs(g).max(), 1e-2), 1e-5)


@pytest.mark.parametrize("layers", [RESIDUAL, NESTED], ids=["residual", "nested"])
def test_the_gradients_of_all_activations_agree_with_central_differences(layers):
    blueprint = net(layers, (2, 8, 8))
    trainer = Trainer(blueprint, 4, seed=1)
    batch, rng, graph = batch_of(blueprint, 4), np.random.default_rng(3), trainer.model.graph
    weights = {name: trainer.array(name).astype(np.float64) for name in trainer.graph.params}
    activations = trainer.forward(batch.x)
    gradients = trainer.backward(trainer.criterion(activations["output"], batch.y))
    assert set(gradients.activations) == set(graph.layers)
    assert {k: a.shape for k, a in gradients.activations.items()} == {k: activations[k].shape for k in graph.layers}
    draw = masks(trainer)
    values = evaluate64(graph, weights, batch.x, training=True, draw=draw)

    def loss(tensor, value):
        z = evaluate64(graph, weights, batch.x, training=True, draw=draw, given={tensor: value})[graph.outputs[0]]
        return -np.log(np.exp(z)[np.arange(4), batch.y] / np.exp(z).sum(1)).mean()

    for layer, tensor in graph.layers.items():
        value = values[tensor].copy()
        for place in rng.permutation(value.size)[:3]:
            where = np.unravel_index(place, value.shape)
            kept, h = value[where], 1e-6
            value[where] = kept + h
            up = loss(tensor, value)
            value[where] = kept - h
            down = loss(tensor, value)
            value[where] = kept
            assert_close(gradients.activations[layer][where], (up - down) / (2 * h), 1e-7, 1e-5)


def test_activations_that_no_gradient_has_to_reach_have_none():
    last = {"type": "linear", "out_features": 3}
    blueprint = net([{"type": "maxpool2d", "kernel_size": 2}, {"type": "flatten"}, last])
    trainer = Trainer(blueprint, 4)
    batch = batch_of(blueprint, 4)
    gradients = trainer.backward(trainer.criterion(trainer.forward(batch.x)["output"], batch.y))
    assert list(gradients.activations) == ["layer_2"]


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_accumulated_micro_batches_are_one_large_batch(parts):
    blueprint = net(RESIDUAL, (2, 8, 8))
    batch, size = batch_of(blueprint, 12), 12 // parts
    large, small = Trainer(blueprint, 12), Trainer(blueprint, size)
    large.micro(batch.x, batch.y)
    for k in range(parts):
        some = slice(k * size, (k + 1) * size)
        small.micro(batch.x[some], batch.y[some], accumulate=k > 0)
    assert_close(small.gradients / parts, np.array(large.gradients), 1e-6, 1e-6)
    assert np.abs(large.gradients).max() > 1e-2


# ---- inference and evaluation


def test_inference_uses_the_running_statistics_and_no_dropout():
    blueprint = everything()
    trainer = Trainer(blueprint, 6)
    for seed in range(4):
        trainer.step(batch_of(blueprint, seed=seed))
    x = batch_of(blueprint, 6, seed=9).x
    weights = {name: trainer.array(name) for name in trainer.graph.params}
    assert np.abs(weights["layer_1.running_mean"]).max() > 1e-3
    graph = trainer.model.graph
    values = evaluate64(graph, weights, x)
    logits = values[graph.nodes[-1].inputs[0]]  # before the softmax that the loss includes
    assert_close(trainer.infer(x), logits, 2e-5, 2e-5)
    assert_close(trainer.infer(x[:1]), trainer.infer(x)[:1], 1e-5, 1e-5)  # alone as in company
    assert np.abs(trainer.forward(x)["output"] - trainer.infer(x)).max() > 1e-2  # training is another matter


def test_dropout_draws_anew_for_each_layer_step_and_seed_and_again_for_none():
    layers = [{"type": "dropout", "name": "a"}, {"type": "dropout", "name": "b"}, {"type": "linear", "out_features": 3}]
    blueprint, x = net(layers, [500]), np.ones((4, 500), np.float32)

    def kept(trainer):
        seen = trainer.forward(x)
        return seen["a"] > 0, seen["b"] > 0

    trainer = Trainer(blueprint, 4, seed=1)
    a, b = kept(trainer)
    assert abs(a.mean() - 0.5) < 0.05
    assert abs(b.mean() - 0.25) < 0.05  # what the second layer drops is not what the first one has
    assert np.array_equal(kept(trainer)[0], a)  # the same step, looked at again
    trainer.micro(x, np.zeros(4, int))
    assert abs((kept(trainer)[0] == a).mean() - 0.5) < 0.05
    assert abs((kept(Trainer(blueprint, 4, seed=2))[0] == a).mean() - 0.5) < 0.05


def test_evaluation_is_that_of_the_whole_set_whatever_the_batch():
    blueprint = net(SMALL)
    trainer = Trainer(blueprint, 4)
    batch = batch_of(blueprint, 11)
    found = trainer.evaluate(batch.x, batch.y)
    whole = Trainer(blueprint, 11).evaluate(batch.x, batch.y)
    assert_close(found.loss, whole.loss, 1e-7, 1e-6)
    assert found.accuracy == (found.predictions == batch.y).mean() == whole.accuracy
    assert found.predictions.shape == (11,)
    rows = [trainer.infer(batch.x[i : i + 1]).argmax() for i in range(11)]
    assert found.predictions.tolist() == rows


def test_a_shorter_batch_is_as_good_as_a_plan_for_its_size():
    blueprint = everything(optimizer="momentum")
    large, exact = Trainer(blueprint, 8, seed=1), Trainer(blueprint, 5, seed=1)
    for seed in range(3):
        batch = batch_of(blueprint, 5, seed=seed)
        assert_close(large.step(batch)["loss"], exact.step(batch)["loss"], 1e-6, 1e-6)
    for name, array in exact.state_arrays().items():
        assert_close(large.state_arrays()[name], array, 1e-6, 1e-5)


# ---- what goes in


def test_bytes_are_normalised_by_mean_and_std_of_each_channel():
    conv = {"type": "conv2d", "out_channels": 2, "kernel_size": 3}  # its gradient keeps the input alive
    blueprint = net([conv, {"type": "flatten"}, {"type": "linear", "out_features": 3}], (3, 4, 4))
    mean, std = (10.0, 120.0, 200.0), (2.0, 60.0, 31.0)
    bytes_in = Trainer(blueprint, 4, mean=mean, std=std)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 4, 3), np.uint8)
    want = (pixels.astype(np.float32) - np.float32(mean)) / np.float32(std)
    assert bytes_in.infer(pixels).tobytes() == bytes_in.infer(want).tobytes()
    bytes_in.forward(pixels)
    assert np.array_equal(bytes_in.backend.array(bytes_in.plan, "input"), want)


@pytest.mark.parametrize("shape", [(4, 8, 8, 1), (4, 8, 8), (4, 64)])
def test_bytes_without_mean_and_std_run_from_0_to_1_in_every_shape_that_fits(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    trainer = Trainer(net([{"type": "linear", "out_features": 3}], [64]), 4)
    want = trainer.infer(pixels.reshape(4, 64).astype(np.float32) / np.float32(255))
    assert trainer.infer(pixels).tobytes() == want.tobytes()
    grey = Trainer(net([{"type": "linear", "out_features": 3}], [64]), 4, mean=(20.0,), std=(50.0,))
    assert np.isfinite(grey.infer(pixels)).all()


def test_a_sample_of_another_size_is_refused():
    trainer = Trainer(net(SMALL), 4)
    with pytest.raises(UserError) as error:
        trainer.infer(np.zeros((4, 28, 28, 1), np.uint8))
    assert str(error.value) == (
        "A sample of (28, 28, 1) values does not fit the net's input (8, 8, 1) (height, width, channels).\n"
        "  Give data of that shape, or change input_shape in the blueprint."
    )


def test_an_image_of_the_right_size_and_the_wrong_shape_is_refused():
    trainer = Trainer(net([{"type": "flatten"}, {"type": "linear", "out_features": 3}], (3, 4, 4)), 4)
    with pytest.raises(UserError, match=r"A sample of \(3, 4, 4\) values does not fit .* \(4, 4, 3\)"):
        trainer.infer(np.zeros((2, 3, 4, 4), np.float32))


@pytest.mark.parametrize("rows", [0, 5])
def test_a_batch_that_is_not_planned_for_is_refused(rows):
    trainer = Trainer(net(SMALL), 4)
    with pytest.raises(UserError, match=f"holds {rows} samples, but the net is planned for 1 to 4"):
        trainer.forward(np.zeros((rows, 8, 8, 1), np.float32))


def test_answers_that_do_not_fit_the_batch_are_refused():
    trainer = Trainer(net(SMALL), 4)
    x = np.zeros((4, 8, 8, 1), np.float32)
    with pytest.raises(UserError, match=r"Answers of shape \(4, 3\) do not fit 4 samples: cross_entropy needs \(4,\)"):
        trainer.micro(x, np.zeros((4, 3)))
    with pytest.raises(UserError, match=r"Answers of shape \(3,\)"):
        trainer.criterion(trainer.forward(x)["output"], np.zeros(3, int))
