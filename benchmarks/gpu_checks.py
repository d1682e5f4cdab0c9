"""What a card has to prove, each in a sentence that can fail; nothing is timed.

    python benchmarks/gpu_checks.py [kernels] [bits] [resume] [budget]          all of them unless some are named
    compute-sanitizer --tool memcheck python benchmarks/gpu_checks.py kernels   (and racecheck)

kernels: every kernel of edge-check's self-test, in float32 and in half precision.
bits: two runs end with equal bits; so does one whose steps are taken launch by launch (LITENET_CHECK), and one
      within less memory, that computes tensors again.
resume: a run ended by SIGKILL in the middle of an epoch and resumed ends with the bits of one that was not.
budget: nets that do not fit 1.5 GB as a matter of course train in it, and take what was said, to the byte.

Needs NumPy and CuPy; an installed litenet is not needed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gpu_training import ROOT, case

from litenet.trainer import blueprint as blueprints
from litenet.trainer import check_kernels
from litenet.trainer.backends.cuda import CudaDevice
from litenet.trainer.device_budget import verdict
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for

STEPS, CAP = 30, 1_500_000_000
RUN = """
import sys, types
for name in ("litenet", "litenet.trainer", "litenet.exporter", "litenet.pyruntime"):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [] if name == "litenet" else [sys.argv[1] + "/" + name.split(".")[1]]
engine = sys.modules["litenet.pyruntime.engine"] = types.ModuleType("litenet.pyruntime.engine")  # wants the C runtime
engine.say_on_bus_error = lambda sentence: None
from litenet.trainer.cli import main
raise SystemExit(main(sys.argv[2:]))
"""


def kernels() -> str:
    device = CudaDevice()
    count = 0
    made = {half: check_kernels.tests(device.sms, half) for half in (False, True)}
    device.compile({kernel for tests in made.values() for test in tests for kernel in test.kernels})
    for tests in made.values():
        for outcome in check_kernels.run(device, tests):
            assert not outcome.problem, f"{outcome.test.name}: {outcome.problem}"
            count += 1
    return f"{count} tests of kernels give what the definitions say"


def trained(name: str, budget: int | None = None, clip: float = 0.0) -> tuple[DeviceTrainer, dict[str, np.ndarray]]:
    """A net of gpu_training.py after STEPS updates, within `budget` bytes."""
    blueprint, batch, data = case(name)
    settings = settings_for(blueprint, {"epochs": max(STEPS * batch // len(data.x), 1), "batch_size": batch})
    device = CudaDevice()
    found = verdict(device, blueprint, settings, [data], True, budget)
    channels = data.x.shape[-1]
    trainer = DeviceTrainer(
        device, blueprint, seed=1, mean=(120.0,) * channels, std=(70.0,) * channels, scheme=found.scheme,
        arena=found.arena, room=found.room,
    )  # fmt: skip
    trainer.prepare(settings, [data])
    taken, free = device.allocated, device.free_bytes()
    assert fit(trainer, data, None, settings, Progress(), Events()) == "done"
    assert device.allocated == taken == trainer.backend.bytes + trainer.feed.bytes, "training allocated memory"
    assert device.free_bytes() >= free - (1 << 21), "the card has less free memory than before"
    return trainer, trainer.state_arrays()


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], what: str) -> None:
    different = [name for name in a if a[name].tobytes() != b[name].tobytes()]
    assert not different, f"{what}: {len(different)} arrays differ, the first is {different[0]}"


def bits() -> str:
    for name in ("mnist_cnn-64", "cifar_cnn-64", "resnet18_cifar-64"):
        first, weights = trained(name)
        same(weights, trained(name)[1], f"{name}, again")
        os.environ["LITENET_CHECK"] = "1"
        same(weights, trained(name)[1], f"{name}, launch by launch")
        del os.environ["LITENET_CHECK"]
    lean, fewer = trained(name, int(0.75 * (first.backend.bytes + first.feed.bytes)))
    assert lean.plan.recomputed or lean.update_mode == "immediate", f"{name}: nothing saves memory but scratch"
    said = "runs repeat to the bit, launch by launch too"
    if kernels_of(lean) == kernels_of(first):  # others, for less scratch memory, may round otherwise
        same(weights, fewer, f"{name}, in three quarters of the memory")
        return f"{said}, and in three quarters of the memory"
    return f"{said}; in three quarters of the memory other kernels run"


def kernels_of(trainer: DeviceTrainer) -> dict[str, list]:
    """By launch that is an operator's, forward and backward, its kernels and their grids."""
    launches = (launch for launch in trainer.plan.launches if launch.kind in ("forward", "backward"))
    bound = {launch.name: trainer.backend.bind(trainer.plan, launch, trainer.batch_size) for launch in launches}
    return {name: [(call.kernel, call.grid) for call, _ in calls] for name, calls in bound.items()}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", RUN, str(ROOT), *arguments, "--device", "cuda", "--quiet", "--no-report"]


def resume() -> str:
    folder = Path(tempfile.mkdtemp())
    plain = blueprints.load(ROOT / "examples" / "digits_cnn.json").resolved
    plain.pop("preprocessing")  # which the C runtime does, and that need not be here
    (folder / "digits.json").write_text(json.dumps(plain))
    net = [str(folder / "digits.json"), "--data", "digits", "--epochs", "40", "--save-every", "20"]
    try:
        subprocess.run(command(*net, "--out", str(folder / "whole")), check=True)
        running = subprocess.Popen(command(*net, "--out", str(folder / "killed")))
        while not (folder / "killed" / "last.npz").exists() and running.poll() is None:
            time.sleep(0.01)
        assert running.poll() is None, "the run ended before it could be killed"
        running.send_signal(signal.SIGKILL)
        running.wait()
        subprocess.run(command("--resume", str(folder / "killed")), check=True)
        ends = [dict(np.load(folder / name / "last.npz")) for name in ("whole", "killed")]
        same(*({k: v for k, v in end.items() if k != "meta"} for end in ends), "after SIGKILL and --resume")
    finally:
        shutil.rmtree(folder)
    return "a run ended by SIGKILL and resumed ends with the bits of one that was not"


def budget() -> str:
    told = []
    for name in ("tomato_cnn-16", "resnet18_cifar-64"):
        trainer, _ = trained(name, CAP)
        assert trainer.device.allocated <= CAP
        told.append(f"{name} takes {trainer.device.allocated:,} bytes as decided")
    return "; ".join(told)


CHECKS = {check.__name__: check for check in (kernels, bits, resume, budget)}


def main(names: list[str]) -> int:
    failed = 0
    for name in names or CHECKS:
        try:
            print(f"[OK]   {name}: {CHECKS[name]()}", flush=True)
        except Exception as error:
            failed += 1
            print(f"[FAIL] {name}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
