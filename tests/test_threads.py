"""The thread pool: same bits with any number of threads, no races, and nothing moves between calls."""

import os
import subprocess
import time

import bins
import cbuild
import numpy as np
import pytest
from test_fast import HERE

from litenet.pyruntime import InferenceEngine

pytestmark = pytest.mark.skipif(not HERE or os.name != "posix", reason="no vector kernels, or no threads here")
OWN = [cbuild.SRC / "ln_threads.c", cbuild.SRC / "ln_file.c", cbuild.TESTS_C / "threads_driver.c"]


def large() -> bins.Bin:
    """Layers that are shared out by rows, by tiles, and by channels; and ones too small to be."""
    net = bins.Bin((48, 40, 3))
    net.add("conv2d", out_channels=64, kernel_size=3, padding=1, activation="relu")
    net.add("conv2d", out_channels=64, kernel_size=3, padding=1, activation="relu")
    net.add("maxpool2d", kernel_size=2, stride=2)
    net.add("conv2d", out_channels=128, kernel_size=3, stride=2, padding=1, activation="relu")
    net.add("conv2d", out_channels=128, kernel_size=3, padding=1, activation="relu")
    net.add("conv2d", out_channels=256, kernel_size=3, stride=3, padding=1).add("flatten")
    return net.add("linear", out_features=600, activation="relu").add("linear", out_features=5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("threads") / "large.bin"
    path.write_bytes(large().bytes(0))
    return path


def driver(sanitizer: str, tmp_path) -> str:
    """Everything that handles threads under the sanitizer; the kernels, which know nothing of them, without."""
    cbuild.need("gcc")
    flags = (f"-fsanitize={sanitizer}",)
    names = ("fast_run.c", "fast_plan.c", "fast_plan_depthwise.c", "fast_join.c", "fast_cpu.c")
    walk = [p for p in cbuild.fast() if p.name in names]
    built = cbuild.objects([*cbuild.core(), *walk, *OWN], "gcc", sanitize=False, flags=flags)
    built += cbuild.objects([p for p in cbuild.fast() if p not in walk], "gcc", sanitize=False, flags=("-O2",))
    out = tmp_path / "driver"
    done = subprocess.run(["gcc", *map(str, built), *flags, "-pthread", "-o", out], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"gcc cannot link -fsanitize={sanitizer} here")
    return str(out)


@pytest.mark.parametrize("pool", [1, 2, 5])
def test_eight_callers_share_one_model_and_one_pool_without_races(pool, model, tmp_path):
    command = [driver("thread", tmp_path), model, "0", str(pool), "8", "4"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not work with this kernel")
    assert done.returncode == 0 and done.stdout == "32\n", (done.returncode, done.stderr[-2000:])


def test_threads_keep_inside_their_scratch_memory(model, tmp_path):
    command = [driver("address", tmp_path), model, "0", "3", "2", "3"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("kernels", HERE)
def test_an_engine_gives_the_same_bits_with_any_number_of_threads(kernels):
    data = large().bytes(0)
    x = np.random.default_rng(1).standard_normal((48, 40, 3)).astype(np.float32)
    first = InferenceEngine(data, threads=1, kernels=kernels).predict(x)
    for threads in (2, 3, 8):
        engine = InferenceEngine(data, threads=threads, kernels=kernels)
        assert engine.threads == threads
        for _ in range(3):
            assert engine.predict(x).tobytes() == first.tobytes()


def test_small_nets_get_one_thread():
    assert InferenceEngine(bins.digits().bytes(0)).threads == 1


def test_threads_sleep_between_calls(model):
    engine = InferenceEngine(str(model), threads=4)
    x = np.zeros(engine.input_shape, np.float32)
    for _ in range(5):
        engine.predict(x)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05
