"""Run a .bin model from Python: a thin layer over litenet.h. Arrays are passed to C in place."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from . import metadata, preprocess
from ._litenet import ffi, lib
from .errors import ModelError
from .kernels import map_file, pages, prepare
from .preprocess import Preprocessing

from_buffer, litenet_run, litenet_run_real = ffi.from_buffer, lib.litenet_run, lib.litenet_run_real  # a look-up less
FLOATS, FLOAT32, INT8 = ffi.typeof("float[]"), np.dtype(np.float32), np.dtype(np.int8)
BYTES = ffi.typeof("uint8_t[]")
DTYPES = ("float32", "float16", "int8", "uint8", "int32")  # by LN_F32, LN_F16, ...

# keys of the metadata
PROVENANCE = ("loss", "accuracy", "unknown", "dataset", "source", "created", "litenet", "parity")


@dataclass(frozen=True)
class Layer:
    """One operator of the program. `shape` and `dtype` are its output's, the shape without the batch; int8 numbers q
    stand for scale * (q - zero_point). `algorithm` is how it runs here; of weights_bytes, stored_bytes are
    weights transformed for Winograd's algorithm."""

    name: str
    op: str
    activation: str
    shape: tuple[int, ...]
    weight_dtype: str
    weights_bytes: int
    macs: int
    algorithm: str
    dtype: str = "float32"
    scale: float = 1.0
    zero_point: int = 0
    stored_bytes: int = 0


class Traced(NamedTuple):
    """One operator of one run. `array` has real numbers, float32, whatever the operator calculates with. `microseconds`
    is its time alone; copying the array is not counted."""

    name: str
    op: str
    shape: tuple[int, ...]
    array: np.ndarray
    microseconds: float


class InferenceEngine:
    """engine = InferenceEngine("model.bin"); engine.predict(x) maps float32 to float32, of an int8 model too.

    model: a path, or the file's bytes. A file is mapped, not read: to replace it, rename a new one over it;
    never write into it while an engine has it open.
    device: "cpu" is what this runtime has.
    threads: how many do the work of one call; None: one for small nets, else as many as there are processors. They
    sleep between calls. Results are the same bits for any number.
    kernels: "avx512", "avx2", "sse2", "neon" or "portable" instead of the best that this processor has. Results
    differ in the last bits; to name a set is for tests, and for telling whose fault something is.
    tuned: True takes the algorithms that `edge-infer --tune` has found fastest for this model on this processor, if it
    ever ran; False lets the cost model choose. Bytes are a number for each operator (LN_DIRECT, ... in litenet_fast.h).
    Results differ in the last bits.

    Several threads may call one engine at once: the model is only read, and each call has its own working
    memory. Use it as a context manager, or close() it, to let go of the file early.
    """

    def __init__(self, model: str | os.PathLike[str] | bytes, device: str = "cpu", threads: int | None = None, *,
                 kernels: str | None = None, tuned: bool | bytes = True):  # fmt: skip
        if device != "cpu":
            raise ModelError(f"There is no device {device!r}; this runtime runs on 'cpu'.")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ModelError(f"threads is {threads!r}; expected a whole number from 1 on, or None.")
        data: Any
        if isinstance(model, (bytes, bytearray, memoryview)):
            self.name, data = "model", model
        else:
            self.name, data = os.fspath(model), _map(Path(model))
        contents = ffi.from_buffer(data)  # keeps data alive
        self._model = ffi.new("ln_model *")
        status = lib.ln_fast_open(self._model, contents, len(contents))
        if status != lib.LN_OK:
            raise ModelError(f"{self.name}: {_explain(self._model)}", status)
        try:
            self.kernels, self.threads, plan = prepare(self._model, kernels, threads, tuned)
        except ModelError as error:
            raise ModelError(f"{self.name}: {error}", error.status) from None
        self.prepared_bytes, self.scratch_bytes = lib.ln_fast_size(self._model), self._model.fast_bytes
        self._held: Any = (contents, plan)  # what running calls must keep alive

        tensors = [self._tensor(i) for i in range(self._model.tensor_count)]
        given = [t for t in tensors if t.is_output]
        outputs = [_dims(t) for t in given]
        self.input_shape: tuple[int, ...] = _dims(tensors[0])  # (H, W, C) for pictures; no batch
        self.output_shape: tuple[int, ...] = outputs[0]
        self._outputs = outputs
        self.input_dtype = DTYPES[tensors[0].dtype]  # "float32" or "int8"
        self.output_dtypes = [DTYPES[t.dtype] for t in given]
        self._steps = [(t.scale, t.zero_point) for t in given]
        self._reals = _real(np.arange(256, dtype=np.uint8).view(INT8), *self._steps[0])  # by the byte
        self._taken = np.dtype(self.input_dtype)
        self._given = np.dtype(self.output_dtypes[0]) if len(outputs) == 1 else None  # None: several
        self._in, self._in_bytes = lib.ln_input_elements(self._model), lib.ln_input_bytes(self._model)
        self._words = -(-lib.ln_output_bytes(self._model) // 4)
        self._arena_bytes = lib.ln_arena_bytes(self._model)
        int8 = len(given) == 1 and "int8" in (self.input_dtype, *self.output_dtypes)
        self._spare = lib.litenet_run_real_bytes(self._model) + 64 if int8 else 0  # bytes behind the arena
        self._arenas: list[tuple[Any, Any]] = []  # free ones; as many are made as calls ran at once
        self._arenas.append(self._take_arena())

    # running

    def predict(self, x, raw: bool = False) -> Any:
        """The output for one input of input_shape, or for a batch (N, *input_shape). The caller may keep it.

        x is float32 and already normalised (predict_image does that for pictures); other number types are
        converted, except uint8, which is most likely a picture. A model with several outputs gives a tuple. Where the
        input is int8, float32 is rounded to its steps, and int8 is taken as it is (prepare gives that); outputs of int8
        come as the float32 they stand for, or with `raw` as they are.
        ModelError where x holds NaN or infinity.
        """
        if self._spare and not raw and type(x) is np.ndarray and x.shape == self.input_shape and x.dtype is FLOAT32:
            try:
                given = from_buffer(FLOATS, x)
            except (ValueError, BufferError):  # not in one piece
                return self.predict(np.ascontiguousarray(x))
            y = np.empty(self.output_shape, FLOAT32)
            self._run(given, from_buffer(FLOATS, y), litenet_run_real)
            return y
        if type(x) is np.ndarray and x.shape == self.input_shape and x.dtype is self._taken and self._given:
            try:
                given = from_buffer(BYTES, x)
            except (ValueError, BufferError):  # not in one piece
                return self.predict(np.ascontiguousarray(x), raw)
            y = np.empty(self.output_shape, self._given)
            self._run(given, from_buffer(BYTES, y))
            return y if raw or self._given is FLOAT32 else self._reals.take(y.view(np.uint8))
        return self._answers(self._as_input(x), raw)

    def _answers(self, x: np.ndarray, raw: bool) -> Any:
        """x: as _as_input gives it."""
        single = x.shape == self.input_shape
        count = 1 if single else len(x)
        y = np.empty((count, self._words), np.int32)  # outputs begin at multiples of 4 bytes
        if count:
            first, out = ffi.from_buffer(BYTES, x), ffi.from_buffer(BYTES, y)
            for n in range(count):
                self._run(first + n * self._in_bytes, out + n * 4 * self._words)
        return self._parts(y, single, raw)

    def outputs_of(self, data: bytes, raw: bool = False) -> Any:
        """The outputs in the bytes that a run elsewhere wrote, on a board say, as predict gives them."""
        y = np.frombuffer(data.ljust(4 * self._words, b"\0"), np.int32)
        if y.size != self._words:
            raise ModelError(f"{self.name}: its outputs take {4 * self._words} bytes, not {len(data)}.")
        return self._parts(y.reshape(1, -1), True, raw)

    def _parts(self, y: np.ndarray, single: bool, raw: bool) -> Any:
        """y: what ln_run wrote, a row for each input."""
        count, parts, at = len(y), [], 0
        for shape, dtype, steps in zip(self._outputs, self.output_dtypes, self._steps, strict=True):
            kind = np.dtype(dtype)
            size = prod(shape) * kind.itemsize
            part = np.ascontiguousarray(y.view(np.uint8)[:, at : at + size]).view(kind)
            part = part.reshape(shape if single else (count, *shape))
            parts.append(part if raw or dtype == "float32" else _real(part, *steps))
            at += -(-size // 4) * 4
        return parts[0] if len(parts) == 1 else tuple(parts)

    def predict_image(self, pixels: np.ndarray, layout: str | None = None) -> Any:
        """As predict, for a picture of any size: uint8 (H, W, C). layout names the channels ("rgb", ...);
        without it 1, 2, 3 and 4 channels are gray, gray_alpha, bgr and bgra, as OpenCV has them."""
        return self.predict(self.prepare(pixels, layout))

    def prepare(self, pixels: np.ndarray, layout: str | None = None) -> np.ndarray:
        """The picture as this model's input: float32 of input_shape, or int8 where the input is that."""
        if self.preprocessing is None:
            raise ModelError(
                f"{self.name} takes {_shape_text(self.input_shape)}, not a picture; "
                "give the values to InferenceEngine.predict."
            )
        pixels, code = preprocess.as_pixels(pixels, layout)
        x = np.empty(self.input_shape, self.input_dtype)
        height, width = pixels.shape[:2]
        buffers = ffi.from_buffer(BYTES, pixels), ffi.from_buffer(BYTES, x)
        preprocess.check(self._call(lib.ln_preprocess, buffers[0], height, width, code, buffers[1]))
        return x

    def random_input(self) -> np.ndarray:
        """One input of normal noise, the same at every call, as ln_run takes it."""
        return self._as_input(np.random.default_rng(0).standard_normal(self.input_shape, np.float32))

    def trace(self, x) -> list[Traced]:
        """Run one input and keep what every operator gives, in order."""
        found: list[Traced] = []

        def keep(index: int, data: Any, microseconds: float) -> None:
            layer = self.layers[index]
            array = np.empty(layer.shape, layer.dtype)
            ffi.memmove(ffi.from_buffer(array), data, array.nbytes)
            if layer.dtype == "int8":
                array = _real(array, layer.scale, layer.zero_point)
            found.append(Traced(layer.name, layer.op, layer.shape, array, microseconds))

        self._run_each(x, keep)
        return found

    def layer_times(self, x) -> list[float]:
        """Microseconds of each operator in one run; what noting them costs is mostly left out."""
        times: list[float] = []
        self._run_each(x, lambda index, data, microseconds: times.append(microseconds))
        return times

    def selftest(self) -> None:
        """Run the file's golden inputs; ModelError names the first operator that gives something else."""
        x, out = np.empty(-(-self._in_bytes // 4), np.int32), np.empty(self._words, np.int32)
        buffers = ffi.from_buffer(BYTES, x), ffi.from_buffer(BYTES, out)
        pair = self._take_arena()

        def test(model: Any) -> None:
            own = ffi.new("ln_model *", model[0])  # the finding is written into it
            status = lib.ln_selftest(own, pair[1], self._arena_bytes, *buffers)
            if status != lib.LN_OK:
                raise ModelError(f"{self.name}: {_explain(own)}", status)

        self._call(test)
        self._arenas.append(pair)

    # what the file says

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The file's metadata section, as the exporter wrote it. ModelError where a value has another type than
        FORMAT.md says."""
        at, size = self._model.metadata_at, self._model.metadata_bytes
        text = self._call(lambda model: ffi.buffer(model.bin + at, size)[:])
        found, fault = metadata.read(text)
        if fault is not None:
            raise ModelError(f"{self.name}: the metadata at byte {at} {fault}; export it again.")
        return found

    @property
    def labels(self) -> list[str] | None:
        """Names of the classes, in the order of the outputs; None where the model has none."""
        return self.metadata.get("labels")

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every output, in the order in which predict gives them."""
        names = self.metadata.get("outputs") or []
        if not len(names) == len(set(names)) == len(self._outputs):
            names = [f"output{i}" for i in range(len(self._outputs))]
        return dict(zip(names, self._outputs, strict=True))

    @cached_property
    def preprocessing(self) -> Preprocessing | None:
        """What happens to a picture before the net sees it; None when the input is no picture."""
        record = ffi.new("ln_preprocessing *")
        self._call(lib.ln_get_preprocessing, record)
        return preprocess.from_record(record)

    @cached_property
    def layers(self) -> list[Layer]:
        """The operators of the program, in the order they run."""
        names = self.metadata.get("layers") or []
        op, found = ffi.new("ln_op *"), []
        for index in range(self._model.op_count):
            self._call(lib.ln_get_op, index, op)
            kind = ffi.string(lib.ln_op_name(op.id)).decode()
            output = self._tensor(op.output)
            found.append(
                Layer(
                    name=names[index] if index < len(names) else f"{kind}{index}",
                    op=kind,
                    activation=ffi.string(lib.ln_activation_name(op.activation)).decode(),
                    shape=_dims(output),
                    weight_dtype=DTYPES[op.weight_dtype] if op.weights_bytes else "",
                    weights_bytes=op.weights_bytes,
                    macs=self._call(lib.ln_op_macs, index),
                    algorithm=ffi.string(self._call(lib.ln_fast_algorithm, index)).decode(),
                    dtype=DTYPES[output.dtype],
                    scale=output.scale,
                    zero_point=output.zero_point,
                    stored_bytes=_stored_bytes(op.algorithm, self._tensor(op.inputs[0]), output),
                )
            )
        return found

    @property
    def info(self) -> dict[str, Any]:
        """Sizes and counts of the model, and where it comes from."""
        model, known = self._model, self.metadata
        return {
            "name": known.get("name"),
            "format": f"{model.major}.{model.minor}",
            "input_shape": self.input_shape,
            "output_shape": self.output_shape,
            "input_dtype": self.input_dtype,
            "output_dtypes": self.output_dtypes,
            "outputs": self.outputs,
            "file_bytes": model.len,
            "weights_bytes": model.weights_bytes,
            "arena_bytes": model.arena_bytes,
            "operators": model.op_count,
            "macs": sum(layer.macs for layer in self.layers),
            "classes": len(self.labels) if self.labels else None,
            **{key: known.get(key) for key in PROVENANCE},
        }

    # life

    def close(self) -> None:
        """Let go of the file, once the calls that still run are done. Nothing works afterwards."""
        self._held = None  # each running call holds it too

    def __enter__(self) -> InferenceEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"InferenceEngine({self.name!r}: {self.input_shape} -> {self.output_shape})"

    # the inside

    def _call(self, function: Any, *args: Any) -> Any:
        """function(model, *args). The file stays mapped until it returns, even if another thread closes."""
        held = self._held
        if held is None:
            raise ModelError(f"{self.name}: this engine has been closed; open the model again.")
        return function(self._model, *args)

    def _run(self, x: Any, y: Any, run: Any = litenet_run) -> None:
        held = self._held  # the file stays mapped until this returns, even if another thread closes
        if held is None:
            self._call(None)
        try:
            pair = self._arenas.pop()
        except IndexError:
            pair = self._take_arena()
        status = run(self._model, pair[1], self._arena_bytes, x, y)
        self._arenas.append(pair)
        if status:
            preprocess.check(status)

    def _run_each(self, x: Any, after: Any) -> None:
        """Run one input; after(index, data, microseconds) sees each operator's output."""
        x = self._as_input(x)
        if x.shape != self.input_shape:
            raise ModelError(f"{self.name}: give one input of shape {self.input_shape}, not a batch {x.shape}.")
        y, watch = np.empty(self._words, np.int32), _Watch(after)
        pair, handle = self._take_arena(), ffi.new_handle(watch)
        buffers = ffi.from_buffer(BYTES, x), ffi.from_buffer(BYTES, y)
        watch.since = perf_counter()
        status = self._call(lib.ln_run_each, pair[1], self._arena_bytes, *buffers, lib.litenet_after_op, handle)
        self._arenas.append(pair)
        if watch.error is not None:
            raise watch.error
        preprocess.check(status)

    def _take_arena(self) -> tuple[Any, Any]:
        """(what keeps it alive, its address): a free one, or a new one. list.pop and append are atomic."""
        try:
            return self._arenas.pop()
        except IndexError:
            return pages(max(self._arena_bytes, 1) + self._spare)

    def _as_input(self, x: Any) -> np.ndarray:
        """x as ln_run takes it, contiguous, of input_shape or of that with a batch in front."""
        want, given = self.input_shape, x
        if type(x) is np.ndarray and x.dtype == self.input_dtype and x.flags.c_contiguous and x.shape == want:
            return x
        try:
            given = np.asarray(x)
            if given.dtype == np.uint8:
                raise ModelError(
                    f"{self.name}: predict takes normalised float32 values, not uint8; "
                    "use predict_image for a picture, or x.astype('float32')."
                )
            kind = INT8 if given.dtype == INT8 == np.dtype(self.input_dtype) else FLOAT32
            given = np.ascontiguousarray(given, kind).reshape(given.shape)
        except (TypeError, ValueError):
            raise ModelError(
                f"{self.name}: the input is not an array of numbers; expected float32 of shape {want}."
            ) from None
        given = self._shaped(given)
        return given if given.dtype == self.input_dtype else self._quantised(given)

    def _shaped(self, given: np.ndarray) -> np.ndarray:
        """An array of input_shape, or of that with a batch in front."""
        want = self.input_shape
        if given.shape[-len(want) :] == want and given.ndim <= len(want) + 1:
            return given
        hint = ""
        if len(want) == 3:
            planes = (want[2], want[0], want[1])
            hint = f" (height, width, channels), or (N, {', '.join(map(str, want))}) for a batch"
            if given.shape[-3:] == planes:
                hint += "; this one is channels first: np.moveaxis(x, -3, -1) turns it"
            if want[2] == 1 and given.shape[-2:] == want[:2] and given.ndim <= 3:
                return given[..., None]  # grey without its channel axis
        raise ModelError(f"{self.name}: the input has shape {given.shape}; expected {want}{hint}.")

    def _quantised(self, x: np.ndarray) -> np.ndarray:
        """float32 as the nearest steps of an int8 input."""
        x = np.ascontiguousarray(x)
        q = np.empty(x.shape, INT8)
        if x.size:
            values, steps = ffi.from_buffer(FLOATS, x), ffi.from_buffer(BYTES, q)
            for n in range(0, x.size, self._in):
                preprocess.check(self._call(lib.ln_quantize_input, values + n, steps + n))
        return q

    def _tensor(self, index: int) -> Any:
        tensor = ffi.new("ln_tensor *")
        lib.ln_get_tensor(self._model, index, tensor)
        return tensor


class _Watch:
    """What the C callback sees of one traced run."""

    def __init__(self, after: Any):
        self.after = after
        self.since = 0.0
        self.error: BaseException | None = None


@ffi.def_extern(error=1)
def litenet_after_op(user, op_index, op, output, data):
    now = perf_counter()
    watch = ffi.from_handle(user)
    try:
        watch.after(op_index, data, (now - watch.since) * 1e6)
    except BaseException as error:  # nothing may pass through C: the caller raises it
        watch.error = error
        return 1
    watch.since = perf_counter()
    return 0


def _map(path: Path) -> mmap.mmap | bytes:
    """The file in memory without a copy. An empty one cannot be mapped."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return map_file(file.fileno()) if size else file.read(1)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; check the path of the model.") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder; expected a .bin model.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None


def say_on_bus_error(sentence: str) -> None:
    """For commands: if a file that this process has mapped is cut short, print this and end with 1."""
    text = f"{sentence}\n".encode()
    lib.litenet_say_on_bus_error(text, len(text))


def _explain(model: Any) -> str:
    text = ffi.new("char[]", 1024)
    lib.ln_explain(model, text, len(text))
    return ffi.string(text).decode("utf-8", "replace")


def _real(q: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """What int8 stands for, float32."""
    return np.float32(scale) * (q.astype(np.int32) - zero_point).astype(np.float32)


def _stored_bytes(algorithm: int, x: Any, y: Any) -> int:
    """Of the transformed weights behind those of a convolution: FORMAT.md, section 5."""
    return 4 * (0, 36, 16)[algorithm] * (x.dims[2] * y.dims[2] + 16) if algorithm else 0


def _dims(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.dims[i] for i in range(tensor.rank))


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} values" if len(shape) == 1 else f"an array {shape}"
