"""Every reader of files in Python stands mutated files: an answer or one of our errors, never another exception."""

import json
import random
import tracemalloc
from pathlib import Path

import fuzz_readers
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litenet.trainer import blueprint as blueprints
from litenet.trainer.errors import UserError

KEPT = Path(__file__).resolve().parent / "data" / "fuzz"
SEEDS = fuzz_readers.seeds()
QUICK = {"idx": 300, "cifar_records": 60, "blueprint": 60, "image": 150}
EDIT = st.tuples(st.integers(0, 1 << 20), st.sampled_from(["set", "flip", "drop", "cut", "double", "insert"]),
                 st.binary(min_size=1, max_size=6))  # fmt: skip


def edited(data, edits):
    for place, kind, value in edits:
        at = place % (len(data) + 1)
        if kind == "set":
            data = data[:at] + value + data[at + len(value) :]
        elif kind == "flip":
            data = data[:at] + bytes(b ^ 1 << value[0] % 8 for b in data[at : at + 1]) + data[at + 1 :]
        elif kind == "drop":
            data = data[:at] + data[at + value[0] % 64 + 1 :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "double":
            data = data[:at] + data[at : at + value[0]] + data[at:]
        else:
            data = data[:at] + value + data[at:]
    return data


def attack(name, examples):
    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.sampled_from(SEEDS[name]), st.lists(EDIT, min_size=1, max_size=6))
    def run(data, edits):
        fuzz_readers.survives(name, edited(data, edits))

    run()


@pytest.mark.parametrize("name", fuzz_readers.TARGETS)
def test_a_mutated_file_is_answered_or_refused(name):
    for data in SEEDS[name]:
        fuzz_readers.survives(name, data)
    attack(name, QUICK.get(name, 120))


FOUND = sorted(path for name in fuzz_readers.TARGETS for path in (KEPT / name).glob("*"))


@pytest.mark.parametrize("path", FOUND, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_what_fuzzing_has_found_stays_mended(path):
    fuzz_readers.survives(path.parent.name, path.read_bytes())


def test_a_pickle_that_asks_for_gigabytes_is_refused_before_it_gets_them():
    data = (KEPT / "cifar_pickle" / "asks_for_five_gigabytes.pickle").read_bytes()
    tracemalloc.start()
    with pytest.raises(UserError, match="it ends after 4 of 5368709120 bytes"):
        fuzz_readers.cifar_pickle(data)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# ---- texts that are JSON, with values that nobody expects where they stand

ODD: list[object] = [
    None, True, False, 0, -1, 1, 3, 1e308, -1e308, 1e-320, 2**31, 2**70, 0.5, "", "x", "relu", "\0", "é" * 300, [], {},
    [0], [None], [1, "a"], {"a": 1}, {"type": "linear"}, [[[[]]]], [1] * 40, "1", "auto", [-1, -1], [2**40], ["", ""],
]  # fmt: skip


def tree(name, data):
    return blueprints.parse(data.decode(), "net.json").resolved if name == "blueprint" else json.loads(data)


TEXTS = {name: [tree(name, data) for data in SEEDS[name] if data != fuzz_readers.YAML]
         for name in ("blueprint", "saved_meta", "metadata")}  # fmt: skip


def places(value, path=()):
    """Every place in a tree of dicts and lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def replaced(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_with_an_odd_value_anywhere_is_answered_or_refused(name, request):
    rng = random.Random(5)
    trials = [(tree, path, odd) for tree in TEXTS[name] for path in places(tree) for odd in ODD]
    if not request.config.getoption("--slow"):
        trials = rng.sample(trials, min(600, len(trials)))
    for tree, path, odd in trials:
        text = json.dumps(replaced(tree, path, odd)).encode()
        try:
            fuzz_readers.survives(name, text)
        except Exception as error:
            raise AssertionError(f"{path}: {odd!r} gives {type(error).__name__}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz_readers.TARGETS)
def test_thousands_of_mutated_files_are_answered_or_refused(name):
    attack(name, 100 * QUICK.get(name, 120))
