"""What reads files that strangers wrote, in Python: for bytes of any kind it gives an answer or one of our errors.

Each target takes bytes. tests/test_fuzz_readers.py throws mutated seeds at them; `make fuzz` lets atheris look for what
reaches new code:

    python tests/fuzz_readers.py npz build/fuzz/npz -max_total_time=60
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
from frozen import ALL, FORMAT_1


def _counting_branches() -> Any:
    """As a command: atheris sees which branches of ours a file reaches."""
    if __name__ != "__main__":
        return nullcontext()
    import atheris

    return atheris.instrument_imports(include=["litenet"])


with _counting_branches():
    from litenet.pyruntime import ImageError, InferenceEngine, ModelError, decode
    from litenet.pyruntime.answers import answer
    from litenet.trainer import blueprint as blueprints
    from litenet.trainer import checkpoint
    from litenet.trainer.data.cifar import read_cifar
    from litenet.trainer.data.idx import read_single
    from litenet.trainer.data.npz import read_npz
    from litenet.trainer.data.pickles import read_batch
    from litenet.trainer.errors import UserError
    from litenet.trainer.graph import build

OURS = (UserError, ModelError, ImageError)
YAML = b"input_shape: [1, 8, 8]\nlayers:\n- {type: flatten}\n- type: linear\n  out_features: 3\n"
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_folder = tempfile.TemporaryDirectory()


def _file(name: str, data: bytes) -> Path:
    path = Path(_folder.name) / name
    path.write_bytes(data)
    return path


def blueprint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for name in ("net.json", "net.yaml"):
        with suppress(UserError):
            build(blueprints.parse(text, name))


def idx(data: bytes) -> None:
    read_single(_file("train-images-idx3-ubyte", data))


def npz(data: bytes) -> None:
    read_npz(_file("x.npz", data))


def npy_members(data: bytes) -> None:
    """The bytes, cut in two, as members of an archive whose checksums are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, part in zip(("x.npy", "y.npy"), data.split(b"#cut#", 1), strict=False):
            archive.writestr(name, part)
    read_npz(_file("x.npz", out.getvalue()))


def cifar_records(data: bytes) -> None:
    read_cifar(_file("data_batch_1.bin", data))


def cifar_pickle(data: bytes) -> None:
    read_batch("data_batch_1", data)


def saved(data: bytes) -> None:
    found = checkpoint.load(_file("last.npz", data))
    if "blueprint" in found.meta:
        assert found.blueprint.layers


def saved_meta(data: bytes) -> None:
    """The bytes as the JSON text of a checkpoint that is otherwise sound."""
    out = io.BytesIO()
    np.savez(out, meta=np.frombuffer(data, np.uint8), **{"weights/layer_0.weight": np.ones((2, 3), np.float32)})
    saved(out.getvalue())


def engine(data: bytes) -> None:
    """A .bin through the engine, with right checksums: what it says of itself, and an answer."""
    if len(data) >= 128:
        data = data[:8] + struct.pack("<I", len(data)) + data[12:]
        data = data[:16] + struct.pack("<I", zlib.crc32(data[128:])) + data[20:]
        data = data[:12] + struct.pack("<I", zlib.crc32(data[:12] + bytes(4) + data[16:128])) + data[16:]
    opened = InferenceEngine(data, kernels="portable")
    if opened._in_bytes > 1 << 18 or opened._words > 1 << 16 or opened.info["macs"] > 1 << 22:
        return
    json.dumps(opened.info, default=str)
    y = opened.predict(np.zeros(opened.input_shape, np.float32))
    json.dumps(answer(opened, "x", y, 1.0, 3))


def metadata(data: bytes) -> None:
    """The bytes as the metadata of a model that is otherwise sound."""
    base = (FORMAT_1 / "mlp.bin").read_bytes()
    at = struct.unpack_from("<I", base, 72)[0]
    head = bytearray(base[:at])
    struct.pack_into("<IIII", head, 72, at if data else 0, len(data), 0, 0)
    end = at if data else struct.unpack_from("<I", base, 64)[0] + struct.unpack_from("<I", base, 68)[0]
    engine(bytes(head[:end]) + data)


def image(data: bytes) -> None:
    decode(data)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def seeds() -> dict[str, list[bytes]]:
    rng = np.random.default_rng(7)
    x, y = rng.integers(0, 256, (6, 3, 3), np.uint8), np.arange(6) % 3
    net = {"input_shape": [3], "layers": [{"type": "linear", "out_features": 2}]}
    meta = {"checkpoint": 1, "blueprint": net, "progress": {"epoch": 1}}
    batch = {b"data": rng.integers(0, 256, (2, 3072), np.uint8), b"labels": [1, 2], b"batch_label": b"one"}
    small = [path.read_bytes() for path in ALL if path.stat().st_size < 3000]
    says = {"name": "n", "labels": ["a", "b", "c"], "layers": ["l0", "l1"], "loss": "cross_entropy", "accuracy": 0.5,
            "outputs": ["y"], "unknown": {"margin": 0.1, "energy": -1.0, "temperature": 1.5}, "answer": "classes",
            "parity": {"largest": 0.0}, "dataset": {"name": "d", "hash": "h", "samples": 3}}  # fmt: skip
    pictures = [b"P5 3 2 255\n" + bytes(6)]
    try:
        import cv2

        for kind in (".png", ".jpg", ".bmp", ".webp", ".ppm"):
            pictures.append(cv2.imencode(kind, rng.integers(0, 256, (5, 4, 3), np.uint8))[1].tobytes())
    except ImportError:
        pass
    blueprints_ = [path.read_bytes() for path in sorted(EXAMPLES.glob("*.json"))]
    return {
        "blueprint": [*blueprints_, YAML],
        "idx": [struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + bytes(24), struct.pack(">HBBI", 0, 8, 1, 5) + bytes(5)],
        "npz": [_npz(x=x, y=y), _npz(x_train=x, y_train=y, x_test=x, y_test=y, class_names=np.array(["a", "b", "c"]))],
        "npy_members": [_npy(x) + b"#cut#" + _npy(y), _npy(np.ones((4, 2), np.float32)) + b"#cut#" + _npy(y[:4])],
        "cifar_records": [bytes([3]) + bytes(3072), (bytes([1]) + bytes(range(256)) * 12) * 2],
        "cifar_pickle": [pickle.dumps(batch, protocol) for protocol in (2, 4)],
        "saved": [_npz(meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **{"weights/a": np.ones(3)})],
        "saved_meta": [json.dumps(meta).encode()],
        "engine": small,
        "metadata": [json.dumps(says).encode(), b"{}"],
        "image": pictures,
    }


TARGETS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f
    for f in (blueprint, idx, npz, npy_members, cifar_records, cifar_pickle, saved, saved_meta, engine, metadata, image)
}


def survives(name: str, data: bytes) -> None:
    """Run a target; our own errors are answers, and have a text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TARGETS[name](data)
        except OURS as error:
            assert str(error).strip()


def main(argv: list[str]) -> None:
    import atheris

    name, corpus = argv[1], Path(argv[2])
    corpus.mkdir(parents=True, exist_ok=True)
    for n, data in enumerate(seeds()[name]):
        (corpus / f"seed{n}").write_bytes(data)
    atheris.Setup([argv[0], str(corpus), *argv[3:]], lambda data: survives(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
