"""Data sets in memory: checks, statistics, splits, batches, the built-in digits, the compressed loader."""

import dataclasses
import hashlib
import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from litenet.trainer.data import (
    CompressedDataLoader,
    Dataset,
    epoch_order,
    iterate,
    mean_std,
    open_source,
    split,
    steps_per_epoch,
    to_input,
)
from litenet.trainer.errors import UserError

RNG = np.random.default_rng(5)


def pictures(n=20, shape=(4, 3, 1), classes=3):
    x = RNG.integers(0, 256, (n, *shape), dtype=np.uint8)
    return Dataset(x, np.arange(n) % classes)


def refused(*parts):
    """A UserError whose text holds all these parts."""
    return pytest.raises(UserError, match="(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts))


def same_bits(a, b):
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


# ---- Dataset


def test_a_data_set_tells_its_size_shape_and_classes():
    ds = Dataset(np.zeros((6, 4, 5, 3), np.uint8), np.array([0, 1, 2, 0, 1, 2]), ["a", "b", "c", "d"])
    assert (ds.count, ds.shape, ds.is_picture, ds.classes) == (6, (4, 5, 3), True, 4)
    assert ds.labels == ("a", "b", "c", "d")
    vectors = Dataset(np.zeros((2, 7), np.float32), np.array([0, 4]))
    assert (vectors.shape, vectors.is_picture, vectors.classes) == ((7,), False, 5)
    targets = Dataset(np.zeros((2, 7), np.float32), np.zeros((2, 3), np.float32))
    assert targets.classes == 0


@pytest.mark.parametrize(
    ("x", "y", "labels", "parts"),
    [
        (np.zeros((3, 2, 2, 1), np.uint8), np.zeros(2, int), None, ("3 samples but 2 answers",)),
        (np.zeros((0, 2, 2, 1), np.uint8), np.zeros(0, int), None, ("x is empty", "(0, 2, 2, 1)")),
        (np.zeros((2, 2), np.float64), np.zeros(2, int), None, ("float64", "uint8")),
        (np.zeros((2, 2), np.uint8), np.zeros(2, int), None, ("(2, 2)", "expected")),
        (np.zeros((2,), np.float32), np.zeros(2, int), None, ("shape (2,)", "expected")),
        (np.array([[0.0], [np.nan]], np.float32), np.zeros(2, int), None, ("x of sample 1", "nan")),
        (np.array([[0.0], [np.inf]], np.float32), np.zeros(2, int), None, ("x of sample 1", "inf")),
        (np.zeros((2, 1), np.float32), np.array([0, np.nan], np.float32), None, ("y of sample 1", "nan")),
        (np.zeros((2, 1), np.float32), np.array([1, -2]), None, ("sample 1 is -2", "numbered from 0")),
        (np.zeros((2, 1), np.float32), np.array([1, 1 << 40]), None, ("sample 1 is 1099511627776", "65536")),
        (np.zeros((2, 1), np.float32), np.array([1, 2], np.int32), None, ("y holds int32", "int64")),
        (np.zeros((2, 1), np.float32), np.zeros((2, 2), int), None, ("(2, 2)", "expected class numbers")),
        (np.zeros((2, 1), np.float32), np.zeros((2, 0), np.float32), None, ("(2, 0)", "expected")),
        (np.zeros((2, 1), np.float32), np.array([0, 2]), ["a", "b"], ("class 2", "only 2 class names")),
    ],
)
def test_bad_data_is_refused_with_the_place_and_what_was_expected(x, y, labels, parts):
    with refused("here: ", *parts):
        Dataset(x, y, labels, "set", "here")


def test_a_nan_far_into_a_large_set_is_found():
    x = np.zeros((50, 100_000), np.float32)
    x[49, 7] = np.nan
    with refused("sample 49"):
        Dataset(x, np.zeros(50, int))


def test_samples_of_a_data_set_cannot_be_changed_through_it():
    x = np.zeros((2, 2, 2, 1), np.uint8)
    ds = Dataset(x, np.zeros(2, int))
    with pytest.raises(ValueError, match="read-only"):
        ds.x[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        ds.x = x
    x[0] = 1  # the caller's own array stays as writable as it was


def test_the_hash_names_the_numbers_and_nothing_else():
    ds = pictures()
    assert re.fullmatch("[0-9a-f]{16}", ds.hash())
    assert ds.hash() == Dataset(np.array(ds.x), np.array(ds.y), ["x", "y", "z"], "other", "elsewhere").hash()
    changed = np.array(ds.x)
    changed[3, 2, 1, 0] ^= 1
    assert ds.hash() != Dataset(changed, ds.y).hash()
    assert ds.hash() != Dataset(ds.x.reshape(20, 3, 4, 1), ds.y).hash()
    assert ds.hash() != Dataset(ds.x.astype(np.float32), ds.y).hash()


def test_the_hash_is_the_stated_sha256():
    ds = Dataset(np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1), np.array([0, 1, 2]))
    stated = b"uint8[3, 2, 2, 1]" + bytes(range(12)) + b"int64[3]" + struct.pack("<3q", 0, 1, 2)
    assert ds.hash() == hashlib.sha256(stated).hexdigest()[:16]


def test_take_keeps_names_and_copies_rows():
    ds = Dataset(np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1), np.arange(4), list("abcd"), "n", "s")
    part = ds.take([3, 1])
    assert part.x.ravel().tolist() == [3, 1] and part.y.tolist() == [3, 1]
    assert (part.labels, part.name, part.source) == (ds.labels, "n", "s")
    assert not np.shares_memory(part.x, ds.x)


# ---- statistics


def test_mean_and_std_of_bytes_are_exact():
    x = RNG.integers(0, 256, (50, 7, 5, 3), dtype=np.uint8)
    x[..., 2] = 9
    mean, std = mean_std(Dataset(x, np.zeros(50, int)))
    for c in range(3):
        values = [int(v) for v in x[..., c].ravel()]
        n, s1, s2 = len(values), sum(values), sum(v * v for v in values)
        assert mean[c] == np.float32(s1 / n)
        want = math.sqrt((n * s2 - s1 * s1) / (n * n)) or 1.0
        assert std[c] == np.float32(want)
    assert mean[2] == 9 and std[2] == 1


def test_mean_and_std_of_floats_survive_a_large_offset():
    x = (RNG.standard_normal((1000, 3)) + 1000).astype(np.float32)
    x[:, 1] = 5
    mean, std = mean_std(Dataset(x, np.zeros(1000, int)))
    want = x.astype(np.float64)
    assert np.abs(mean - want.mean(0)).max() <= 1e-4
    assert np.abs(std[[0, 2]] - want.std(0)[[0, 2]]).max() <= 1e-5
    assert std[1] == 1


# ---- split


@pytest.mark.parametrize("fraction", [0.1, 0.25, 1 / 3, 0.9])
def test_split_parts_are_disjoint_complete_and_stratified_within_one(fraction):
    y = np.repeat([0, 1, 2, 4], [40, 17, 3, 101])
    ds = Dataset(np.arange(len(y), dtype=np.float32)[:, None], y)
    train, validation = split(ds, fraction, seed=3)
    assert sorted([*train.x.ravel(), *validation.x.ravel()]) == list(range(len(y)))
    for k in (0, 1, 2, 4):
        n = int((y == k).sum())
        assert abs(int((validation.y == k).sum()) - fraction * n) <= 1
        assert (train.y == k).any()
    assert (np.diff(train.x.ravel()) > 0).all() and (np.diff(validation.x.ravel()) > 0).all()


def test_split_takes_the_rounded_share_of_the_whole():
    ds = Dataset(np.zeros((100, 1), np.float32), np.arange(100) % 10)
    assert split(ds, 0.25, 0)[1].count == 25  # 2.5 of each class


def test_split_depends_on_the_seed_alone():
    ds = pictures(60)
    assert split(ds, 0.3, 1)[1].hash() == split(ds, 0.3, 1)[1].hash()
    assert split(ds, 0.3, 1)[1].hash() != split(ds, 0.3, 2)[1].hash()


def test_targets_are_split_as_one_group():
    ds = Dataset(np.arange(10, dtype=np.float32)[:, None], np.zeros((10, 2), np.float32))
    train, validation = split(ds, 0.3, 0)
    assert (train.count, validation.count) == (7, 3)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, float("nan")])
def test_a_fraction_that_is_no_share_is_refused(fraction):
    with refused("between 0 and 1"):
        split(pictures(), fraction, 0)


def test_a_split_without_a_validation_sample_is_refused():
    with refused("0.01 of 20 samples", "larger fraction"):
        split(pictures(20), 0.01, 0)


# ---- batches


def test_the_order_is_a_permutation_repeats_itself_and_differs_per_epoch_and_seed():
    orders = {(s, e): epoch_order(101, s, e) for s in (0, 1) for e in (0, 1)}
    for (s, e), order in orders.items():
        assert sorted(order) == list(range(101))
        assert np.array_equal(order, epoch_order(101, s, e))
    assert len({tuple(order) for order in orders.values()}) == 4


def test_batches_cut_the_order_and_can_start_anywhere():
    ds = pictures(10)
    order = epoch_order(10, 7, 2)
    batches = list(iterate(ds, 4, 7, 2))
    assert [b.tolist() for b in batches] == [order[:4].tolist(), order[4:8].tolist()]
    assert [b.tolist() for b in iterate(ds, 4, 7, 2, start_batch=1)] == [batches[1].tolist()]
    assert [len(b) for b in iterate(ds, 4, 7, 2, drop_last=False)] == [4, 4, 2]
    assert [len(b) for b in iterate(ds, 40, 7, 2, drop_last=False)] == [10]


def test_steps_per_epoch_counts_batches():
    assert [steps_per_epoch(10, 4), steps_per_epoch(10, 4, False), steps_per_epoch(8, 4, False)] == [2, 3, 2]


def test_impossible_batch_sizes_are_refused():
    with refused("batch size is 0"):
        iterate(pictures(10), 0, 0, 0)
    with refused("batch size is 11", "only 10 samples"):
        iterate(pictures(10), 11, 0, 0)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 8, 8, 1), (3, 7, 5, 3), (2, 4, 4, 4)])
def test_to_input_has_the_bits_of_the_formula(shape):
    rows = RNG.integers(0, 256, shape, dtype=np.uint8)
    C = shape[-1]
    mean = RNG.uniform(90, 140, C).astype(np.float32)
    std = RNG.uniform(30, 90, C).astype(np.float32)
    want = np.empty(shape, np.float32)
    for at in np.ndindex(shape):
        want[at] = (np.float32(rows[at]) - mean[at[-1]]) / std[at[-1]]
    assert same_bits(to_input(rows, mean, std), want)


def test_to_input_is_exact_for_every_byte():
    rows = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    mean, std = np.array([33.31842], np.float32), np.array([78.56749], np.float32)
    want = (np.arange(256, dtype=np.float32) - mean) / std
    assert same_bits(to_input(rows, mean, std).ravel(), want)


def test_to_input_writes_into_an_arena_and_nowhere_else():
    arena = np.full(64, -7, np.float32)
    out = arena[8:56].reshape(4, 2, 2, 3)
    rows = RNG.integers(0, 256, (4, 2, 2, 3), dtype=np.uint8)
    assert to_input(rows, np.zeros(3), np.ones(3), out) is out
    assert np.array_equal(out, rows) and (arena[:8] == -7).all() and (arena[56:] == -7).all()


def test_to_input_takes_floats_vectors_and_no_rows():
    rows = RNG.standard_normal((4, 6)).astype(np.float32)
    mean, std = np.arange(6, dtype=np.float32), np.arange(1, 7, dtype=np.float32)
    assert same_bits(to_input(rows, mean, std), (rows - mean) / std)
    assert to_input(np.zeros((0, 2, 2, 1), np.uint8), [0], [1]).shape == (0, 2, 2, 1)


def test_to_input_says_when_shapes_do_not_fit():
    rows = np.zeros((2, 2, 2, 3), np.uint8)
    with pytest.raises(ValueError, match="3 channels"):
        to_input(rows, [0], [1])
    for out in (
        np.empty((2, 2, 2, 1), np.float32),
        np.empty(rows.shape),
        np.empty((2, 2, 2, 6), np.float32)[..., ::2],
    ):
        with pytest.raises(ValueError, match="contiguous float32"):
            to_input(rows, [0] * 3, [1] * 3, out)


# ---- the built-in digits


def test_digits_are_1797_pictures_with_the_published_counts():
    splits = open_source("digits")
    assert (splits.train.count, splits.test.count) == (1442, 355)
    assert splits.train.shape == (8, 8, 1) and splits.train.labels == tuple("0123456789")
    counts = np.bincount(splits.train.y) + np.bincount(splits.test.y)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(splits.test.y).tolist() == [n // 5 for n in counts]
    assert splits.train.x.max() == 255 and splits.train.x.min() == 0


def test_digits_are_those_of_scikit_learn_scaled_to_bytes():
    load_digits = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits
    source = load_digits()
    with np.load(Path(open_source("digits").train.source.split(" [")[0])) as ours:
        assert np.array_equal(ours["x"], (source.images.astype(int) * 255 + 8) // 16)
        assert np.array_equal(ours["y"], source.target)


def test_digits_name_their_source_and_licence():
    text = Path(open_source("digits").train.source.split(" [")[0]).with_suffix(".txt").read_text()
    assert "Alpaydin" in text and "Kaynak" in text and "CC BY 4.0" in text and "What was changed" in text


# ---- CompressedDataLoader


@pytest.fixture
def bytes_npz(tmp_path):
    path = tmp_path / "mnist.npz"
    x = RNG.integers(0, 256, (10, 4, 4), dtype=np.uint8)
    x.reshape(-1)[:2] = 0, 255
    np.savez(path, x_train=x, y_train=np.arange(10) % 3)
    return path


def test_the_compressed_loader_halves_the_set_and_yields_float32_in_minus_one_to_one(bytes_npz):
    loader = CompressedDataLoader(dataset_path=bytes_npz, batch_size=4, dtype="float16", normalize=True)
    assert len(loader) == 2 and loader.nbytes == 10 * 16 * 2
    data = open_source(bytes_npz).train
    for batch in loader:
        assert batch.x.dtype == np.float32 and batch.x.shape == (4, 4, 4, 1)
        want = (data.x[batch.indices].astype(np.float64) - 127.5) / 127.5
        assert np.abs(batch.x - want).max() <= 1 / 32 * 2 / 255
        assert np.array_equal(batch.y, data.y[batch.indices])
    everything = np.concatenate([b.x for b in CompressedDataLoader(bytes_npz, 5)])
    assert everything.min() == -1 and everything.max() == 1


def test_bytes_stay_bytes_and_lose_nothing(bytes_npz):
    loader = CompressedDataLoader(bytes_npz, 5, dtype="uint8")
    assert loader.nbytes == 10 * 16
    exact = CompressedDataLoader(bytes_npz, 5, dtype="float32")
    assert all(same_bits(a.x, b.x) for a, b in zip(loader, exact, strict=True))
    plain = CompressedDataLoader(bytes_npz, 5, dtype="uint8", normalize=False)
    data = open_source(bytes_npz).train
    assert all(np.array_equal(b.x, data.x[b.indices]) for b in plain)


def test_each_pass_is_another_epoch_and_each_loader_repeats_it(bytes_npz):
    def passes(loader):
        return [np.concatenate([b.indices for b in loader]).tolist() for _ in range(2)]

    first, second = passes(CompressedDataLoader(bytes_npz, 5)), passes(CompressedDataLoader(bytes_npz, 5))
    assert first == second and first[0] != first[1]
    assert passes(CompressedDataLoader(bytes_npz, 5, seed=1)) != first
    assert [len(b.indices) for b in CompressedDataLoader(bytes_npz, 4, drop_last=False)] == [4, 4, 2]


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_batches_can_be_written_into_memory_of_the_caller(bytes_npz, dtype):
    into = np.zeros((4, 4, 4, 1), np.float32)
    fresh = CompressedDataLoader(bytes_npz, 4, dtype, drop_last=False)
    for batch, want in zip(
        CompressedDataLoader(bytes_npz, 4, dtype, drop_last=False, into=into), fresh, strict=True
    ):
        assert np.shares_memory(batch.x, into) and same_bits(batch.x, want.x)


def test_float_pictures_are_normalised_from_zero_to_one(tmp_path):
    path = tmp_path / "f.npz"
    np.savez(path, x=np.linspace(0, 1, 32, dtype=np.float32).reshape(2, 4, 4), y=[0, 1])
    (batch,) = CompressedDataLoader(path, 2, "float32")
    assert batch.x.min() == -1 and batch.x.max() == 1
    with refused("'uint8'", "float16, float32"):
        CompressedDataLoader(path, 2, "uint8")


def test_the_loader_refuses_what_it_cannot_store(tmp_path, bytes_npz):
    with refused("'int4'", "uint8, float16, float32"):
        CompressedDataLoader(bytes_npz, 2, "int4")
    path = tmp_path / "v.npz"
    np.savez(path, x=np.array([[-1.0, 70000.0]]), y=[0])
    with refused("-1 to 70000", "normalize=False"):
        CompressedDataLoader(path, 1)
    with refused("float16 ends at 65504"):
        CompressedDataLoader(path, 1, normalize=False)
    (batch,) = CompressedDataLoader(path, 1, "float32", normalize=False)
    assert batch.x.tolist() == [[-1.0, 70000.0]]
