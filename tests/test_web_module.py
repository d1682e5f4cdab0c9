"""The WebAssembly module and litenet.js under Node: the numbers, the pictures and the sentences of the C runtime."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import bins
import everything
import int8_nets
import numpy as np
import pytest
from closeness import assert_close
from test_c_ops import jobs

from litenet.exporter import format as writer
from litenet.pyruntime import InferenceEngine, ModelError
from litenet.pyruntime.answers import probabilities
from litenet.trainer.ops import OPS

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "wasm"))
from npm_package import lean  # noqa: E402

LIMIT, LIMIT_GZIP = 100_000, 40_000  # bytes a page fetches, the model aside
MODULES = ("litenet.wasm", "litenet-simd.wasm", "litenet-relaxed.wasm", "litenet-full.wasm")
TOOLS = [tool for tool in ("node", "clang", "make") if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(TOOLS), reason=f"{' and '.join(TOOLS)} is not here")
NETS = {
    "mlp": bins.mlp().bytes(),
    "digits": bins.digits().bytes(),
    "colors": bins.colors().bytes(),
    "half": bins.digits(half=True).bytes(),
    "everything": writer.write(everything.everything()[0]),
}


@pytest.fixture(scope="session")
def built():
    done = subprocess.run(["make", "-s", "wasm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ROOT / "wasm"


def packed(array) -> str:
    return base64.b64encode(array if isinstance(array, bytes) else np.ascontiguousarray(array).tobytes()).decode()


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.float32)


@pytest.fixture(scope="session")
def relaxed():
    """The option that gives this Node relaxed vectors; None where it needs none."""
    flag = "--experimental-wasm-relaxed-simd"
    program = f"await WebAssembly.compile(require('fs').readFileSync('{ROOT}/wasm/litenet-relaxed.wasm'))"
    for options in ([], [flag]):
        command = ["node", *options, "-e", f"(async () => {{ {program} }})()"]
        done = subprocess.run(command, capture_output=True)
        if done.returncode == 0:
            return options
    pytest.skip("this Node has no relaxed vectors")


def node(built, *jobs, options=()):
    """What litenet.js gives for each job; see web_jobs.mjs."""
    ready = [{**job, "model": packed(job["model"])} if "model" in job else job for job in jobs]
    done = subprocess.run(
        ["node", *options, str(ROOT / "tests" / "web_jobs.mjs")],
        input=json.dumps(ready),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def x_of(engine, seed=0):
    return np.random.default_rng(seed).standard_normal(engine.input_shape).astype(np.float32)


@pytest.mark.parametrize("net", NETS)
def test_the_plain_module_gives_the_bits_of_the_portable_kernels(built, net):
    engine = InferenceEngine(NETS[net], kernels="portable")
    x = x_of(engine)
    (found,) = node(built, {"model": NETS[net], "do": "run", "input": packed(x), "module": "litenet.wasm"})
    want = engine.predict(x)
    want = np.concatenate([np.ravel(part) for part in (want if isinstance(want, tuple) else (want,))])
    np.testing.assert_array_equal(floats(found), want)


@pytest.mark.parametrize("module", ["litenet-simd.wasm", "litenet-full.wasm", "litenet-relaxed.wasm"])
@pytest.mark.parametrize("net", NETS)
def test_the_vector_modules_give_the_portable_numbers(built, relaxed, module, net):
    engine = InferenceEngine(NETS[net], kernels="portable")
    x = x_of(engine)
    found, layers = node(
        built,
        {"model": NETS[net], "do": "trace", "input": packed(x), "module": module},
        {"model": NETS[net], "do": "info", "module": module},
        options=relaxed,
    )
    copied = (built / module).read_bytes() == (built / "litenet-simd.wasm").read_bytes()  # by an old clang
    assert layers["info"]["kernels"] == ("wasm relaxed" if "relaxed" in module and not copied else "wasm")
    for got, want in zip(found, engine.trace(x), strict=True):
        assert (got["name"], got["op"], tuple(got["shape"])) == (want.name, want.op, want.shape)
        scale = max(float(np.abs(want.array).max()), 1e-3)
        assert np.abs(floats(got["values"]) - np.ravel(want.array)).max() <= 1e-5 * scale, got["name"]


@pytest.mark.parametrize("module", MODULES)
def test_an_int8_model_takes_and_gives_floats_and_has_one_answer(built, relaxed, module):
    file = int8_nets.picture_model(int8_nets.pictures(), loss="cross_entropy")
    engine = InferenceEngine(file)
    x = x_of(engine)
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 4), np.uint8)
    picture = {"data": packed(pixels), "width": 30, "height": 20}
    job = {"model": file, "module": module}
    out, each, made, test = node(
        built,
        {**job, "do": "run", "input": packed(x)},
        {**job, "do": "trace", "input": packed(x)},
        {**job, "do": "prepare", "picture": picture},
        {**job, "do": "selfTest"},
        options=relaxed,
    )
    np.testing.assert_array_equal(floats(out), engine.predict(x))
    for got, want in zip(each, engine.trace(x), strict=True):
        np.testing.assert_array_equal(floats(got["values"]), np.ravel(want.array))
    steps = engine.prepare(pixels, "rgba")
    np.testing.assert_array_equal(floats(made), (steps.ravel().astype(np.float32) - 3) / 32)
    assert test is None


@pytest.mark.parametrize("op", ["concat", "mul", "pad", "reshape", "resize", "slice", "transpose", "unary"])
def test_what_the_core_lacks_runs_in_the_full_module(built, op):
    job = jobs(op)[0]
    file = {"model": writer.write(job.model), "input": packed(job.x), "module": "litenet-simd.wasm"}
    found, about = node(built, {**file, "do": "run"}, {**file, "do": "info"})
    assert_close(floats(found).reshape(job.want.shape), job.want, *OPS[op].OP.tolerance)
    assert about["layers"][job.at]["op"] == op and about["info"]["kernels"] == "wasm"


def test_without_the_full_module_a_refusal_is_a_number(built, tmp_path):
    for name in ("litenet.js", "litenet-simd.wasm"):
        shutil.copy(built / name, tmp_path)
    program = f"""
        const {{ LiteNet }} = await import("{tmp_path}/litenet.js");
        await LiteNet.load(new Uint8Array(200)).catch((e) => console.log(e.name, e.status, e.message));"""
    done = subprocess.run(["node", "--input-type=module", "-e", program], capture_output=True, text=True)
    assert "LiteNetError 2 model: refused with status 2 of litenet.h; " in done.stdout, done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_the_self_test_passes_and_finds_a_wrong_weight(built, relaxed, module):
    file = bytearray(NETS["digits"])
    (fine,) = node(built, {"model": bytes(file), "do": "selfTest", "module": module}, options=relaxed)
    assert fine is None
    wrong = with_wrong_weight(bytes(file))
    (found,) = node(built, {"model": wrong, "do": "selfTest", "module": module}, options=relaxed)
    with pytest.raises(ModelError) as caught:
        InferenceEngine(wrong).selftest()
    assert found["error"].split(":", 1)[1] == str(caught.value).split(":", 1)[1]


def with_wrong_weight(file: bytes) -> bytes:
    """One weight doubled, and both checksums made right again."""
    changed = bytearray(file)
    weights = np.frombuffer(file, np.float32, 16, 128 + 64)
    changed[128 + 64 : 128 + 128] = (weights * 2 + 1).tobytes()
    changed[16:20] = zlib.crc32(bytes(changed[128:])).to_bytes(4, "little")
    changed[12:16] = bytes(4)
    changed[12:16] = zlib.crc32(bytes(changed[:128])).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("channels,layout", [(1, "gray"), (2, "gray_alpha"), (3, "rgb"), (4, "rgba")])
def test_a_picture_is_prepared_to_the_same_bits(built, channels, layout):
    rng = np.random.default_rng(channels)
    pixels = rng.integers(0, 256, (37, 53, channels), np.uint8)
    picture = {"data": packed(pixels), "width": 53, "height": 37}
    for net in ("digits", "colors"):
        (found,) = node(built, {"model": NETS[net], "do": "prepare", "picture": picture})
        np.testing.assert_array_equal(floats(found), np.ravel(InferenceEngine(NETS[net]).prepare(pixels, layout)))


def test_the_answer_is_that_of_the_command(built):
    net = bins.digits()
    net.metadata["labels"] = [f"number {i}" for i in range(10)]
    engine = InferenceEngine(net.bytes())
    x = x_of(engine)
    (found,) = node(built, {"model": net.bytes(), "do": "predict", "input": packed(x), "options": {"top": 3}})
    want = probabilities(engine, engine.predict(x))
    order = np.argsort(-want, kind="stable")[:3]
    assert [one["index"] for one in found["top"]] == order.tolist()
    assert found["label"] == f"number {order[0]}"
    assert all(abs(one["probability"] - want[one["index"]]) <= 1e-5 for one in found["top"])


@pytest.mark.parametrize(
    "file",
    [b"", b"\x89PNG\r\n\x1a\n" + bytes(60), b"PK\x03\x04" + bytes(60), b"<!DOCTYPE html><html>", NETS["digits"][:200],
     NETS["digits"] + b"x", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", bytes(200)],
)  # fmt: skip
def test_a_wrong_file_gets_the_sentence_of_the_runtime(built, file):
    (found,) = node(built, {"model": file, "do": "info"})
    with pytest.raises(ModelError) as caught:
        InferenceEngine(file)
    assert found["kind"] == "LiteNetError"
    assert found["error"] == str(caught.value)
    assert found["status"] == caught.value.status


def test_wrong_inputs_are_told_what_is_expected(built):
    short, values, odd, gone, address = node(
        built,
        {"model": NETS["digits"], "do": "run", "input": packed(np.zeros(3, np.float32))},
        {"model": NETS["mlp"], "do": "run", "picture": {"data": packed(bytes(4)), "width": 1, "height": 1}},
        {"model": NETS["digits"], "do": "run", "picture": {"data": packed(bytes(7)), "width": 1, "height": 1}},
        {"model": NETS["digits"], "do": "disposed", "input": packed(np.zeros(784, np.float32))},
        {"address": "/nowhere/model.bin", "do": "info"},
    )
    assert "has 3 values; expected" in short["error"]
    assert "values, not a picture" in values["error"]
    assert "expected 1 to 4 bytes for each pixel" in odd["error"]
    assert "disposed of; load it again" in gone["error"]
    assert address["error"].startswith("/nowhere/model.bin cannot be read (ENOENT)")


@pytest.mark.parametrize("value,said", [(np.nan, "NaN"), (np.inf, "Infinity"), (-np.inf, "-Infinity")])
def test_an_input_that_is_no_number_is_reported_and_not_classified(built, value, said):
    whole = int8_nets.picture_model(int8_nets.pictures())
    for net, shape in ((NETS["digits"], (28, 28, 1)), (whole, (12, 10, 3))):
        x = np.zeros(shape, np.float32)
        x.flat[7] = value
        for what in ("run", "predict", "trace"):
            (found,) = node(built, {"model": net, "do": what, "input": packed(x)})
            assert found["error"] == f"model: value 7 of the input is {said}; give finite numbers."


def test_five_hundred_models_come_and_go_in_the_memory_of_one(built):
    x = np.zeros(784, np.float32)
    few, many = node(
        built,
        *({"model": NETS["digits"], "do": "lives", "times": times, "input": packed(x)} for times in (5, 500)),
    )
    assert many["most"] == few["most"]
    assert many["resident"] - few["resident"] <= 30e6


@pytest.mark.parametrize("core", ["litenet-simd.wasm", "litenet-relaxed.wasm"])
def test_what_a_page_fetches_is_small(built, core):
    files = [(built / core).read_bytes(), lean((built / "litenet.js").read_text(), "").encode()]  # as packed
    sizes = sum(map(len, files)), sum(len(gzip.compress(file, 9)) for file in files)
    print(f"{core} and litenet.js: {sizes[0]:,} bytes, {sizes[1]:,} with gzip")
    assert sizes[0] <= LIMIT and sizes[1] <= LIMIT_GZIP


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not here")
def test_a_fresh_project_installs_the_package_and_uses_it(built, tmp_path):
    def run(*command, cwd):
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    project = tmp_path / "project"
    project.mkdir()
    (project / "net.bin").write_bytes(NETS["digits"])
    (project / "use.mjs").write_text(
        """import { LiteNet } from "litenet";
           const model = await LiteNet.load("net.bin");
           await model.selfTest();
           console.log(model.info.outputs[0].shape, model.predict(new Float32Array(784)).values.length);
           await LiteNet.load("use.mjs").catch((error) => console.log(error.message));"""
    )
    run(sys.executable, str(built / "npm_package.py"), str(tmp_path / "package"), cwd=tmp_path)
    made = run("npm", "pack", "--silent", str(tmp_path / "package"), cwd=tmp_path).split()[-1]
    run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", str(tmp_path / made), cwd=project)
    said = run("node", "use.mjs", cwd=project).splitlines()
    assert said[0] == "[ 10 ] 10" and said[1].startswith("use.mjs: ") and "not a LiteNet model" in said[1]
