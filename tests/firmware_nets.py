"""The nets that firmware is tested with, each as the bytes of a .bin: NETS[name]()."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import bins
import pytest
from bins import GRAY, Bin
from cbuild import ROOT
from int8_nets import Net

from litenet.exporter import format as writer
from litenet.exporter.cli import main as edge_export
from litenet.trainer.cli import main as edge_train
from litenet.trainer.int8.scheme import Quant

SHARED = ROOT.parent / "shared"
BYTES = Quant(1 / 128, -3)  # of int8 inputs


def mnist_mlp(net: Bin | Net) -> None:
    net.add("flatten")
    for width in (256, 128):
        net.add("linear", out_features=width, activation="relu")
    net.add("linear", out_features=10)


def mnist_cnn(net: Bin | Net) -> None:
    """421,642 parameters."""
    for channels in (32, 64):
        net.add("conv2d", out_channels=channels, kernel_size=3, padding=1, activation="relu")
        net.add("maxpool2d", kernel_size=2)
    net.add("flatten")
    net.add("linear", out_features=128, activation="relu")
    net.add("linear", out_features=10)


def tinymaix(net: Bin | Net) -> None:
    """The shapes of TinyMaix's MNIST example: three convolutions of stride 2, their mean, ten scores."""
    for channels in (4, 8, 16):
        net.add("conv2d", out_channels=channels, kernel_size=3, stride=2, activation="relu")
    net.add("global_avg_pool")
    net.add("linear", out_features=10)
    net.add("softmax")


def float32(layers: Callable[[Bin | Net], None]) -> bytes:
    """With random weights; memory is used again as soon as it may be."""
    net = Bin((28, 28, 1), GRAY, turns=True)
    layers(net)
    return net.bytes()


def int8(layers: Callable[[Bin | Net], None]) -> bytes:
    """With random weights, scales and zero points."""
    net = Net((28, 28, 1), BYTES, seed=1)
    layers(net)
    return writer.write(net.model(golden=2))


def tiny_int8() -> bytes:
    """8-8-5, for the 2 KB of an ATmega328P."""
    net = Net((8,), BYTES, seed=2)
    net.add("linear", out_features=8, activation="relu")
    net.add("linear", out_features=5)
    return writer.write(net.model(golden=0))


def tinymaix_own() -> bytes:
    """TinyMaix's own MNIST net, imported from its int8 file."""
    source = SHARED / "models" / "tinymaix_mnist_valid_int8.tflite"
    if not source.is_file():
        pytest.skip("TinyMaix's model is not in ../shared/models")
    with tempfile.TemporaryDirectory() as folder:
        assert edge_export([str(source), "-o", f"{folder}/net.bin"]) == 0
        return Path(folder, "net.bin").read_bytes()


@cache
def trained(name: str) -> tuple[bytes, bytes]:
    """examples/NAME.json after an epoch over a tenth of MNIST: (float32, int8)."""
    if not (SHARED / "data" / "mnist").is_dir():
        pytest.skip("the MNIST files are not in ../shared/data/mnist")
    with tempfile.TemporaryDirectory() as folder:
        given = [str(ROOT / "examples" / f"{name}.json"), "--data", str(SHARED / "data" / "mnist")]
        assert edge_train([*given, "--out", f"{folder}/run", "--fraction", "0.1", "--epochs", "1", "--quiet"]) == 0
        for options in ([], ["--int8"]):
            assert edge_export([f"{folder}/run", "-o", f"{folder}/net{len(options)}.bin", *options]) == 0
        return Path(folder, "net0.bin").read_bytes(), Path(folder, "net1.bin").read_bytes()


NETS: dict[str, Callable[[], bytes]] = {
    "mlp": lambda: bins.mlp().bytes(),
    "tiny_int8": tiny_int8,
    "tinymaix_own": tinymaix_own,
    **{f.__name__: lambda f=f: float32(f) for f in (mnist_mlp, mnist_cnn, tinymaix)},
    **{f"{f.__name__}_int8": lambda f=f: int8(f) for f in (mnist_mlp, mnist_cnn, tinymaix)},
    **{f"trained_{name}": lambda name=name: trained(name)[0] for name in ("mnist_mlp", "mnist_cnn")},
    **{f"trained_{name}_int8": lambda name=name: trained(name)[1] for name in ("mnist_mlp", "mnist_cnn")},
}
