"""Training on batches that mean harm: losses, gradients, weights and answers stay finite, step after step."""

from types import SimpleNamespace

import numpy as np
import pytest
from nets import net

from litenet.trainer.trainer import Trainer

ROWS, STEPS = 6, 8
LAYERS = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "flatten"},
    {"type": "layernorm"},
    {"type": "linear", "out_features": 3},
]
LOSSES = {
    "cross_entropy": "cross_entropy",
    "smoothed": {"type": "cross_entropy", "label_smoothing": 0.1},
    "logit_margin": "logit_margin",
    "mse": "mse",
    "bce": "bce",
}
RNG = np.random.default_rng(1)
NOISE = RNG.standard_normal((ROWS, 8, 8, 1)).astype(np.float32)
SPIKE = np.where(np.arange(64).reshape(8, 8, 1) == 9, np.float32(1e9), np.float32(0))
BATCHES = {  # some have no variance, some more than float32 holds
    "zeros": np.zeros_like(NOISE),
    "one grey": np.full_like(NOISE, 7.25),
    "one sample six times": np.repeat(NOISE[:1], ROWS, 0),
    "denormals": np.float32(1e-40) * NOISE,
    "smallest and largest": np.where(NOISE > 0, np.float32(1e-30), np.float32(1e12)),
    "signs": np.float32(1e6) * np.sign(NOISE),
    "one pixel of 1e9": np.repeat(SPIKE[None], ROWS, 0),
}
LABELS = {"noise": RNG.integers(0, 3, ROWS), "one class": np.zeros(ROWS, int)}


def trained(loss, x, labels, lies, optimizer):
    """Every metric on the way. lies: each step says the opposite of the one before."""
    blueprint = net(LAYERS, learning_rate=0.05, loss=LOSSES[loss], optimizer=optimizer)
    trainer = Trainer(blueprint, ROWS, classes=True)
    metrics = [trainer.step(SimpleNamespace(x=x, y=(labels + n * lies) % 3)) for n in range(STEPS)]
    return trainer, [m[key] for m in metrics for key in ("loss", "grad_norm")]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("batch", BATCHES)
def test_nothing_becomes_nan_or_infinite(batch, loss, optimizer):
    for labels in LABELS.values():
        for lies in (0, 1):
            trainer, metrics = trained(loss, BATCHES[batch], labels, lies, optimizer)
            assert np.isfinite(metrics).all()
            assert all(np.isfinite(array).all() for array in trainer.state_arrays().values() if array.dtype.kind == "f")
            assert np.isfinite(trainer.infer(BATCHES[batch])).all()


@pytest.mark.parametrize("size", [1e-45, 1e10, 1e30])
@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "mse"])
def test_logits_as_far_apart_as_float32_allows_give_finite_losses_and_gradients(loss, size):
    """A bias does it, so that the step goes through the whole trainer. The squares of mse are beyond float32."""
    trainer = Trainer(net(LAYERS, learning_rate=1e-3, loss=LOSSES[loss]), ROWS, classes=True)
    trainer.array("layer_5.bias")[...] = np.float32(size) * np.array([1, -1, 0], np.float32)
    for label in range(3):
        metrics = trainer.step(SimpleNamespace(x=NOISE, y=np.full(ROWS, label)))
        assert np.isfinite(metrics["loss"]) and np.isfinite(metrics["grad_norm"])
    assert all(np.isfinite(array).all() for array in trainer.state_arrays().values() if array.dtype.kind == "f")
