"""Random numbers: Philox against the known answers of its authors, and the distributions made from it."""

import numpy as np
import pytest
from closeness import assert_close

from litenet.trainer import rng

# counter words 0..3, key words 0..1, result words 0..3: the known-answer vectors that come with Random123
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


def philox_by_hand(counter, key):
    """One counter, in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, want):
    c = words(counter)
    got = rng.philox((np.array([c[0]] * 3), *c[1:]), tuple(words(key)))
    assert got.dtype == np.uint32
    assert got.tolist() == [words(want)] * 3


def test_value_i_is_word_i_mod_4_of_counter_i_div_4():
    seed, stream, step = 0x0123456789ABCDEF, rng.AUGMENT, 0xFEDCBA9876543210
    got = rng.bits(seed, stream, step, 4 * rng._BLOCK + 9)
    key = (0x89ABCDEF, 0x01234567)
    for i in (0, 1, 5, 4 * rng._BLOCK - 1, 4 * rng._BLOCK, 4 * rng._BLOCK + 8):
        assert got[i] == philox_by_hand((i // 4, 0x76543210, 0xFEDCBA98, stream), key)[i % 4]


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 4095, 4097])
def test_a_shorter_draw_is_the_beginning_of_a_longer_one(n):
    assert rng.bits(7, 1, 2, n).tolist() == rng.bits(7, 1, 2, 5000)[:n].tolist()


def test_seed_stream_and_step_each_change_every_draw():
    draws = [rng.bits(*place, 8).tolist() for place in [(0, 1, 0), (1, 1, 0), (1 << 32, 1, 0), (0, 2, 0), (0, 1, 1)]]
    assert len({tuple(draw) for draw in draws}) == 5


@pytest.mark.parametrize("place", [(-1, 1, 0, 1), (1 << 64, 1, 0, 1), (0, 1 << 32, 0, 1), (0, 1, -1, 1), (0, 1, 0, -1)])
def test_a_place_outside_the_counter_is_refused(place):
    with pytest.raises(ValueError, match="out of range"):
        rng.bits(*place)


def test_uniform_values_are_the_high_24_bits():
    got = rng.uniform(3, rng.DROPOUT, 4, (30, 40))
    assert got.shape == (30, 40)
    assert got.dtype == np.float32
    want = (rng.bits(3, rng.DROPOUT, 4, 1200) >> np.uint32(8)).astype(np.float64) / 2**24
    assert (got.reshape(-1) == want).all()
    assert 0 <= got.min() < 0.01
    assert 0.99 < got.max() < 1
    assert_close(got.mean(), 0.5, 0.03, 0)


def test_normal_values_follow_box_and_muller():
    got = rng.normal(3, rng.INIT, 4, 5)
    u, v = np.split(rng.bits(3, rng.INIT, 4, 6).astype(np.float64).reshape(3, 2), 2, axis=1)
    r, angle = np.sqrt(-2 * np.log((u + 0.5) / 2**32)), 2 * np.pi * v / 2**32
    want = np.concatenate([r * np.cos(angle), r * np.sin(angle)], axis=1).reshape(-1)[:5]
    assert got.dtype == np.float32
    assert_close(got, want, 1e-7, 1e-6)


def test_normal_values_have_mean_0_and_variance_1():
    got = rng.normal(0, rng.INIT, 0, (100, 1000)).astype(np.float64)
    assert np.isfinite(got).all()
    assert_close(got.mean(), 0.0, 0.02, 0)
    assert_close(got.var(), 1.0, 0.02, 0)
    assert_close(np.mean(np.abs(got) < 1), 0.6827, 0.01, 0)
    assert_close(np.mean(got[:, 0::2] * got[:, 1::2]), 0.0, 0.02, 0)  # cos and sin of one pair


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_a_permutation_has_every_number_once(n):
    got = rng.permutation(5, rng.SHUFFLE, 1, n)
    assert got.dtype == np.int64
    assert sorted(got.tolist()) == list(range(n))


def test_permutations_of_two_epochs_differ_and_each_repeats():
    first = rng.permutation(5, rng.SHUFFLE, 1, 100).tolist()
    assert first == rng.permutation(5, rng.SHUFFLE, 1, 100).tolist()
    assert first != rng.permutation(5, rng.SHUFFLE, 2, 100).tolist()


def test_each_place_of_a_permutation_is_equally_likely():
    counts = np.zeros((4, 4))
    for step in range(2000):
        counts[np.arange(4), rng.permutation(9, rng.SHUFFLE, step, 4)] += 1
    assert_close(counts, np.full((4, 4), 500.0), 100, 0)
