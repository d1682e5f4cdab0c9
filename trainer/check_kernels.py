"""The self-test of a card: every kernel on small shapes, against the NumPy definitions in float64.

Launches are built as training builds them. Of all the cases and variants that exist, a test is made of each that
launches a kernel no test before it does: that reaches every kernel, and leaves little to compile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from . import losses, optimizers, rng
from .aids import decay_at
from .backends.device import TRAINED, Device
from .data.augment import Augmentation, augment
from .data.batches import to_input
from .data.mix import UNMIXED, Mix, draw_mix
from .errors import LaunchError, UserError
from .fields import Options
from .kernels import calls_gemm, calls_load, calls_moments, calls_other, calls_step
from .kernels.call import Call, Kernel, Ref, Shapes
from .kernels.tiles import COUNTERS
from .ops import OPS, activations, backward_needs, make_attrs, parameters

FAMILIES = {
    "linear": "products", "embed_projection": "products", "conv2d": "convolution", "conv2d_pool": "convolution",
    "depthwise_conv2d": "convolution", "maxpool2d": "pooling", "avgpool2d": "pooling", "global_avg_pool": "pooling",
    "batchnorm": "normalisation", "batchnorm_add": "normalisation", "layernorm": "normalisation",
    "softmax": "normalisation", "activation": "elementwise", "add": "elementwise", "dropout": "elementwise",
}  # fmt: skip
LARGER: dict[str, list[dict[str, Any]]] = {  # what the operators' own cases do not reach: sums of several blocks
    "batchnorm": [{"x": (20, 18, 36), "activation": "relu"}],
    "batchnorm_add": [{"x": (20, 18, 36), "activation": "relu"}],
    "conv2d_pool": [{"out_channels": 20, "kernel_size": 3, "padding": 1, "x": (20, 36, 20), "activation": "relu"}],
    "conv2d": [{"out_channels": 36, "kernel_size": 3, "padding": 1, "x": (16, 17, 36), "activation": "relu"}],
    "depthwise_conv2d": [{"kernel_size": 9, "padding": 4, "x": (5, 6, 3)}],  # more taps than registers hold
    "layernorm": [{"x": (1028,)}],
    "linear": [{"x": (200,), "out_features": 36, "activation": "relu"}],
    "softmax": [{"x": (1100,)}],
}
NORMED = [*LARGER["conv2d"], {"out_channels": 20, "kernel_size": 3, "padding": 1, "x": (40, 41, 3)}]  # batchnorm behind
FORMS = ("KEEP", "MOMENTS", "POOL", "SPLIT", "STRIDED", "TURNED")  # macros that make another kernel of the same name
HALF_ROLES = frozenset({"x", "x2", "y", "z", "dy", "dz", "d:x", "d:x2"})  # stored as the net's activations are
TOLERANCE = 2e-5  # of a value and of the values' root mean square: ten times what rounding does to these sums
WINOGRAD_TOLERANCE, HALF_TOLERANCE = 3e-4, 4e-3
SCALE = 1024.0  # of the loss, in half precision
ROWS, SEED, MICRO = 3, 0x123456789ABCDEF0, (1 << 33) + 5


@dataclass(frozen=True)
class Test:
    """Launches, what lies in memory before (by role; outputs are NaN), and what must lie there afterwards."""

    family: str
    name: str
    calls: tuple[Call, ...]
    arrays: dict[str, np.ndarray]
    want: dict[str, np.ndarray]
    tolerance: float = TOLERANCE

    @property
    def kernels(self) -> set[Kernel]:
        return {call.kernel for call in self.calls}


@dataclass(frozen=True)
class Outcome:
    """worst: the largest error of a test, 1 being what is allowed. problem: what was wrong, or nothing."""

    test: Test
    worst: float
    problem: str = ""
    fatal: bool = False  # the card does not go on after this


def tests(sms: int, half: bool = False) -> list[Test]:
    """All tests; with half, of the kernels that store activations in half precision."""
    from . import check_int8

    made = [t for op in TRAINED if op in OPS for t in _operator(op, sms, half)]
    made += [t for group in (_sums, _loads, _losses, _updates) for t in group(sms, half)]
    return made if half else [*made, *check_int8.tests(sms)]


def run(device: Device, made: list[Test]) -> Iterator[Outcome]:
    """One test after another, in one block of memory. Ends after a failure the card does not survive."""
    base = device.allocate(max(_places(t)[1] for t in made))
    try:
        for test in made:
            outcome = _run(device, base, test)
            yield outcome
            if outcome.fatal:
                return
    finally:
        if hasattr(device, "release"):
            device.release(base)


def _run(device: Device, base: int, test: Test) -> Outcome:
    places, _ = _places(test)
    try:
        for role, array in test.arrays.items():
            device.upload(base + places[role], array)
        for call in test.calls:
            refs = [arg for arg in call.args if isinstance(arg, Ref)]
            device.launch(call, [base + places[r.role] + r.offset if r.role in places else None for r in refs])
        found = {}
        for role in test.want:
            found[role] = np.empty_like(test.arrays[role])
            device.download(base + places[role], found[role])
    except LaunchError as error:
        return Outcome(test, float("inf"), _short(error), fatal=True)
    except UserError as error:  # a kernel that does not compile: the next one may
        return Outcome(test, float("inf"), _short(error))
    except Exception as error:
        names = ", ".join(call.kernel.name for call in test.calls)
        return Outcome(test, float("inf"), f"{names}: {type(error).__name__}: {_short(error)}", fatal=True)
    worst, problem = 0.0, ""
    for role, want in test.want.items():
        share, text = _compare(found[role], want, test.tolerance)
        worst = max(worst, share)
        if not share <= 1 and not problem:
            problem = f"{', '.join(call.kernel.name for call in test.calls)} in {test.name}: {role} {text}"
    return Outcome(test, worst, problem)


def _short(error: Exception) -> str:
    """An error's text in a line or two: of a compiler's, what tells the cause."""
    return " ".join(str(error).split())[:240]


def _places(test: Test) -> tuple[dict[str, int], int]:
    """Offset of each role, and all bytes."""
    at, places = 0, {}
    for role, array in test.arrays.items():
        places[role] = at
        at += -(-max(array.nbytes, 1) // 256) * 256
    return places, at


def _compare(got: np.ndarray, want: np.ndarray, tolerance: float) -> tuple[float, str]:
    """(largest error in units of what is allowed, infinite for NaN; a sentence about it)."""
    if want.dtype.kind in "iu":
        wrong = int((got != want).sum())
        return (2.0, f"has {wrong} of {want.size} values wrong") if wrong else (0.0, "")
    size = float(np.sqrt(np.mean(np.square(want)))) if want.size else 0.0
    with np.errstate(invalid="ignore"):  # NaN is found below
        error = np.abs(got.astype(np.float64) - want)
    if not np.isfinite(error).all():
        return float("inf"), f"has {int((~np.isfinite(error)).sum())} of {want.size} values not finite or not written"
    share = error / (tolerance * (np.abs(want) + max(size, 1e-6)))
    return float(share.max(initial=0.0)), f"is off by {error.max():.3g}, of values about {size:.3g}"


# ---- operators


class _Draw:
    """The random numbers of the only node that draws, as trainer/backends/numpy.py has them."""

    @staticmethod
    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        return rng.uniform(SEED, rng.DROPOUT, MICRO, shape)


def _operator(op: str, sms: int, half: bool) -> Iterator[Test]:
    seen: set[tuple] = set()
    cases = sorted((*OPS[op].CASES, *LARGER.get(op, ())), key=lambda case: -prod(case["x"]))
    for case in cases:  # the largest first, since most kernels are tested on the first they take
        example = _Example(op, case, sms, half)
        for direction in ("train", "forward", "backward", "again"):
            if example.defines(direction):
                for test in example.tests(direction):
                    new = {_form(call.kernel) for call in test.calls}
                    if not new <= seen:
                        seen |= new
                        yield test
    for case in NORMED if op == "conv2d" else ():
        seen = set()
        for test in _Example(op, case, sms, half).with_norm():
            new = {_form(call.kernel) for call in test.calls}
            if not new <= seen:
                seen |= new
                yield test


def _form(kernel: Kernel) -> tuple:
    return (kernel.file, kernel.name, *(pair for pair in kernel.defines if pair[0] in FORMS))


class _Example:
    """One case of an operator: inputs as stored on the device, and the definition in float64 of the same numbers."""

    def __init__(self, op: str, case: dict[str, Any], sms: int, half: bool):
        self.op, self.module, self.half, draw = op, OPS[op], half, np.random.default_rng(0)
        x = tuple(case["x"])
        self.a = make_attrs(self.module.OP, {k: v for k, v in case.items() if k != "x"})
        self.y = tuple(self.module.out_shape(self.a, *[x] * len(self.module.OP.inputs)))
        self.s = Shapes(self.a, ROWS, x, self.y, sms=sms, half=half)
        self.env = {role: self.stored(role, draw.standard_normal((ROWS, *x))) for role in self.module.OP.inputs}
        for w in self.module.OP.weights:
            if not (w.needs and not getattr(self.a, w.needs)):
                value = draw.standard_normal(w.shape(self.a, x)) / 2
                self.env[w.name] = self.stored(w.name, abs(value) + 0.5 if w.name == "running_var" else value)
        self.dy = self.stored("dy", draw.standard_normal((ROWS, *self.y)))

    def stored(self, role: str, array: np.ndarray) -> np.ndarray:
        """As the device stores it: activations in half or single precision, small numbers (of pools) as they are."""
        return array if array.dtype.kind in "iu" else _stored(array, self.half and role in HALF_ROLES)

    def defines(self, direction: str) -> bool:
        if direction == "again":
            return hasattr(self.module, "forward_again")
        return direction != "backward" or self.op == "activation" or self.a.activation in activations.FROM_OUTPUT

    def define(self, function: Any, **more: Any) -> Any:
        wide = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in (self.env | more).items()}
        wide |= {"rng": _Draw, "x_shape": (ROWS, *self.s.x), "want": frozenset({"x", "x2"})}
        return function(self.a, *(wide.get(p) for p in parameters(function)))

    def trained(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """y and what training keeps besides."""
        found = self.define(getattr(self.module, "forward_train", self.module.forward))
        return found if isinstance(found, tuple) else (found, {})

    def tests(self, direction: str) -> Iterator[Test]:
        env, s = dict(self.env), self.s
        if direction == "forward":
            want = {"y": self.define(self.module.forward)}
        else:
            y, aux = self.trained()
            want = {"y": y} | (aux if direction == "train" else {})
            kept = {"y": self.stored("y", y)} | {k: self.stored(k, v) for k, v in aux.items()}
            if direction == "again":
                env |= {k: v for k, v in kept.items() if k != "y" and k not in env}
            if direction == "backward":
                kept = {k: v for k, v in kept.items() if k not in env}  # running statistics stay what they were
                gradients = self.define(self.module.backward, **kept, dy=self.dy)
                needed = (*backward_needs(self.op, self.a), "dy")
                env = {k: v for k, v in (env | kept | {"dy": self.dy}).items() if k in needed}
                present = set(self.module.OP.inputs) | set(self.env)
                want = {f"d:{k}": v for k, v in gradients.items() if v is not None and k in present}
                s = replace(s, want=frozenset(role[2:] for role in want))
        for part, variant, calls, scratch in self.variants(direction, s):
            roles = {arg.role for call in calls for arg in call.args if isinstance(arg, Ref)}
            here = {k: v for k, v in want.items() if k in roles}
            arrays = {k: v for k, v in env.items() if k in roles}
            arrays |= {k: _unwritten(self.stored(k, v)) for k, v in here.items() if k not in arrays}
            arrays |= _memory(roles, scratch)
            family = "Winograd" if "winograd" in variant else FAMILIES.get(self.op, self.op)
            shape = " x ".join(map(str, self.s.x))
            name = " ".join(word for word in (self.op, part if part != direction else "", direction, variant) if word)
            tolerance = HALF_TOLERANCE if self.half else WINOGRAD_TOLERANCE if family == "Winograd" else TOLERANCE
            yield Test(family, f"{name} of {shape}", calls, arrays, here, tolerance)

    def with_norm(self) -> Iterator[Test]:
        """Each way to make y and leave its moments, and a batchnorm that makes z of both."""
        module, draw, C = OPS["batchnorm"], np.random.default_rng(5), self.y[-1]
        a = make_attrs(module.OP, {"activation": "relu"})
        s = Shapes(a, ROWS, self.y, self.y, sms=self.s.sms, half=self.half, moments=True)
        norm = [_renamed(call, {"x": "y", "y": "z"}) for call in calls_other.CALLS["batchnorm"]("train", s)]
        y = self.stored("y", self.trained()[0])
        weights = {w.name: _stored(abs(draw.standard_normal(C)) + 0.5, False) for w in module.OP.weights}
        z, aux = module.forward_train(a, *(v.astype(np.float64) for v in (y, *weights.values())))
        want = {"y": y.astype(np.float64), "z": z} | aux
        for _, variant, calls, scratch in self.variants("train", replace(self.s, moments=True)):
            arrays = self.env | weights
            made = {k: _stored(v, self.half and k in ("y", "z")) for k, v in want.items() if k not in weights}
            arrays |= {k: _unwritten(v) for k, v in made.items()}
            arrays["moments"] = np.full(calls_moments.floats(y.size // C, C), np.nan, np.float32)
            arrays |= _memory({"scratch", "counters"}, scratch)
            tolerance = HALF_TOLERANCE if self.half else WINOGRAD_TOLERANCE
            name = f"conv2d {variant} and batchnorm of {' x '.join(map(str, self.s.x))}"
            yield Test("convolution", name, (*calls, *norm), arrays, want, tolerance)

    def variants(self, direction: str, s: Shapes) -> Iterator[tuple[str, str, tuple[Call, ...], int]]:
        if self.op in calls_gemm.PARTS:
            for part, found in calls_gemm.parts(self.op, direction, s).items():
                for v in found:
                    yield part, v.name, v.calls, v.scratch
        else:
            scratch = calls_other.SCRATCH.get(self.op, lambda *_: 0)(direction, s)
            yield "", "", tuple(calls_other.CALLS[self.op](direction, s)), scratch


def _renamed(call: Call, roles: dict[str, str]) -> Call:
    def one(arg: Any) -> Any:
        return replace(arg, role=roles.get(arg.role, arg.role)) if isinstance(arg, Ref) else arg

    return replace(call, args=tuple(one(arg) for arg in call.args))


# ---- what belongs to no operator


def _sums(sms: int, half: bool) -> Iterator[Test]:
    """A sum of gradients, and the search for a value that is not finite."""
    a, b = _stored(np.random.default_rng(1).standard_normal((2, 1030)), half)
    calls = calls_step.sum_calls(a.size, sms, half)
    yield _test("elementwise", "sum", calls, {"a": a, "b": b}, {"y": a.astype(np.float64) + b}, half)
    a = a.copy()
    a[[700, 701]] = np.inf, np.nan
    calls = calls_step.finite_calls(a.size, "a", 0, half, sms)
    arrays = {"a": a, "finite": np.array([calls_step.NOT_FOUND], np.int32)}
    yield _test("elementwise", "finite", calls, arrays, {"finite": np.array([700], np.int32)}, half)
    x = _stored(np.random.default_rng(2).standard_normal((1100, 36)), half)
    parts = np.array_split(x.astype(np.float64), calls_step.sum_parts(len(x)))
    want = np.array([np.stack([part.sum(0), (part**2).sum(0), (part > 0).any(0)], -1) for part in parts])
    yield _test("elementwise", "sums of channels", calls_step.channel_sums_calls(len(x), x.shape[1], 0, half), {"x": x},
                {"layer_sums": want}, half)  # fmt: skip
    if not half:
        w, before = np.random.default_rng(3).standard_normal((2, 1000)).astype(np.float32)
        squares = np.array([[(w.astype(np.float64) ** 2).sum(), ((w.astype(np.float64) - before) ** 2).sum()]])
        calls = calls_step.squares_calls(w.size, 0, Ref("weights"), Ref("before"))
        yield _test("elementwise", "sums of squares", calls, {"weights": w, "before": before}, {"layer_sums": squares})


def _loads(sms: int, half: bool) -> Iterator[Test]:
    """Samples of a set that lies on the card, in a given order, the second batch of it."""
    draw, count, rows, shape = np.random.default_rng(4), 11, 4, (6, 7, 3)
    mean, std = np.array([100, 120, 90], np.float32), np.array([70, 60, 50], np.float32)
    labels, order = draw.integers(0, 9, count).astype(np.int32), draw.permutation(count).astype(np.int32)
    index = order[rows : 2 * rows]
    specs = {
        "augmented": Augmentation("both", translate=2, pad_mode="reflect", cutout=3),
        "turned and mixed": Augmentation("both", 1, rotate=90, scale=0.3, contrast=0.3, tint=0.2, mixup=1.0),
        "cut into": Augmentation("none", 1, "reflect", 2, saturation=0.5, cutmix=1.0),
    }
    common = {"labels": labels, "order": order, "mean": mean, "std": std}
    sizes = (rows, rows, count, prod(shape), shape[-1])
    for dtype in ("u8", "f32"):
        data = draw.integers(0, 256, (count, *shape)).astype(np.uint8 if dtype == "u8" else np.float32)
        arrays, target = {"set": data, "step": _step(cursor=1), **common}, {"target": labels[index]}
        want = to_input(data[index].astype(np.float32), mean, std)
        calls = calls_load.load_calls(dtype, *sizes, sms=sms, half=half)
        yield _test("loading", f"load {dtype}", calls, arrays, {"x": want, **target}, half)
        for name, spec in specs.items():
            want = augment(data[index], spec, SEED, MICRO, index, 0, mean, std)
            calls = calls_load.load_calls(dtype, *sizes, sms=sms, half=half, augment=spec, width=shape[1])
            mixed = {"step": _step(cursor=1, mix=draw_mix(spec, SEED, MICRO, *shape[:2]))}
            yield _test("loading", f"load {dtype}, {name}", calls, arrays | mixed, {"x": want, **target}, half)


def _losses(sms: int, half: bool) -> Iterator[Test]:
    for N, C in ((33, 10), (70, 300)):
        for name, classes in (("cross_entropy", True), ("logit_margin", True), ("mse", True), ("mse", False),
                              ("bce", True), ("bce", False)):  # fmt: skip
            loss, draw = losses.make_loss(Options(name, {})), np.random.default_rng(C)
            z = _stored(3 * draw.standard_normal((N, C)), half)
            t = draw.integers(0, 2, (N, C)).astype(np.float32) if not classes else draw.integers(0, C, N, np.int32)
            value, dz = loss(z.astype(np.float64), t)
            found = loss.predictions(z, t)
            right = 0 if found is None else int((found == t.reshape(found.shape)).sum())
            scale = SCALE if half else 1.0
            want = {"dz": dz * scale, "history": np.array([[[value, right, scale, 0]]])}  # of one block: its own sums
            calls = calls_step.loss_calls(loss, N, (C,), classes, 1, 1, half)
            arrays = {"z": z, "target": t, "scaling": _scaling(), "step": _step()}
            yield _test("losses", f"{name} of {N} x {C}", calls, arrays, want, half)
            if name == "cross_entropy":
                value, dz = loss(z.astype(np.float64), t, 0.625)
                want = {"dz": dz * scale, "history": np.array([[[value, right, scale, 0]]])}
                calls = calls_step.loss_calls(loss, N, (C,), classes, 1, 1, half, mixed=True)
                arrays["step"] = _step(mix=Mix(0.625, 0.625))
                yield _test("losses", f"{name} of {N} x {C}, mixed", calls, arrays, want, half)


def _updates(sms: int, half: bool) -> Iterator[Test]:
    """One update by each optimiser, gradients scaled down to a norm."""
    n, rate, limit, draw = 2152, 0.1, 0.5, np.random.default_rng(2)
    bounds, count = calls_step.decay_bounds([(0, n, True)]), calls_step.partial_count(n, sms)
    for name in ("sgd", "momentum", "nesterov", "adam", "adamw"):
        rule = optimizers.make_optimizer(Options(name, {"weight_decay": 0.01}))
        states = {state: (abs(draw.standard_normal(n)) * 0.1).astype(np.float32) for state in rule.states}
        w, g = draw.standard_normal((2, n), np.float32)
        want = {role: array.astype(np.float64) for role, array in {"weights": w, **states}.items()}
        scaled = g.astype(np.float64) * limit / np.sqrt((g.astype(np.float64) ** 2).sum())
        own = {state: want[state] for state in rule.states}
        rule.apply(want["weights"], scaled, own, float(np.float32(rate)), 3, True)
        arrays = {"weights": w, "gradients": g * np.float32(SCALE if half else 1), "bounds": bounds, **states}
        arrays |= {"step": _step(t=3, lr=rate), "partials": np.full(count, np.nan), "scaling": _scaling()}
        calls = calls_step.update_calls(rule, n, len(bounds), 0.0, limit, 0, sms, half)
        yield _test("optimisers", name, calls, arrays, want)
    w, average = draw.standard_normal((2, n)).astype(np.float32)
    want = {"average": average + (1 - decay_at(0.9, 3)) * (w.astype(np.float64) - average)}
    calls = calls_step.average_calls(n, 0.9, sms)
    yield _test("optimisers", "average", calls, {"weights": w, "average": average, "step": _step(t=3)}, want)


def _test(
    family: str, name: str, calls: Iterable[Call], arrays: dict, want: dict, half: bool = False, scratch: int = 0
) -> Test:
    """half: activations (HALF_ROLES) among the results are stored so."""
    calls = tuple(calls)
    roles = {arg.role for call in calls for arg in call.args if isinstance(arg, Ref)}
    exact = {k for k, v in want.items() if v.dtype.kind in "iu" or k == "layer_sums"}  # the latter in float64
    outputs = {k: v if k in exact else _stored(v, half and k in HALF_ROLES) for k, v in want.items()}
    outputs = {k: _unwritten(v) for k, v in outputs.items()}
    held = {k: v for k, v in {**outputs, **_memory(roles, scratch), **arrays}.items() if k in roles}
    return Test(family, name, calls, held, want, HALF_TOLERANCE if half else TOLERANCE)


def _stored(array: np.ndarray, half: bool) -> np.ndarray:
    return array.astype(np.float16 if half else np.float32)


def _scaling() -> np.ndarray:
    scaling = calls_step.scaling()
    scaling["scale"] = SCALE
    return scaling


def _step(cursor: int = 0, t: int = 1, lr: float = 0.1, mix: Mix = UNMIXED) -> np.ndarray:
    step = np.zeros(1, calls_step.STEP)
    step["seed"], step["micro"] = (SEED & 0xFFFFFFFF, SEED >> 32), (MICRO & 0xFFFFFFFF, MICRO >> 32)
    step["cursor"], step["t"], step["lr"], step["grad_scale"] = cursor, t, lr, 1.0
    step["share"], step["blend"], step["box"] = mix.share, mix.blend, (mix.top, mix.left, mix.height, mix.width)
    return step


def _memory(roles: set[str], scratch: int) -> dict[str, np.ndarray]:
    """What launches may need besides values: room for partial results, counters at 0, and the step."""
    more: dict[str, np.ndarray] = {"counters": np.zeros(COUNTERS, np.int32), "step": _step()}
    more["scratch"] = np.full(max(scratch, 4), 0xFF, np.uint8)
    return {role: array for role, array in more.items() if role in roles}


def _unwritten(array: np.ndarray) -> np.ndarray:
    """An array of that kind which nothing has written: NaN."""
    return np.full(max(array.nbytes, 1), 0xFF, np.uint8).view(array.dtype).reshape(array.shape)
