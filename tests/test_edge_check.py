"""edge-check: what it says of machines without a card, of cards of all ages and troubles, and of wrong kernels."""

import ctypes
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from fake_cupy import FakeCuda

from litenet.trainer import blueprint as blueprints
from litenet.trainer import check, check_card, check_software, check_speed, profile_peaks
from litenet.trainer.backends import driver
from litenet.trainer.check_line import FAIL, OK, WARN, Line, guarded
from litenet.trainer.errors import UserError
from litenet.trainer.kernels import choose

ROOT = Path(__file__).resolve().parent.parent
SOFTWARE = ["Python", "LiteNet", "NumPy", "C runtime", "OpenCV", "extras", "cache"]
TINY = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "activation": "relu"},
    {"type": "flatten"},
    {"type": "linear", "out_features": 10},
]


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """A home of its own, no nvidia-smi, and sizes for a processor."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(check_card, "smi", lambda what, apps=False: [])
    monkeypatch.setattr(choose, "CANDIDATES", 1)
    monkeypatch.setattr(profile_peaks, "COPY", 1 << 14)
    monkeypatch.setattr(profile_peaks, "SIDE", 16)
    monkeypatch.setattr(check_speed, "CONV", (1, (4, 4, 4), {"out_channels": 8, "kernel_size": 3, "padding": 1}))
    monkeypatch.setattr(check_speed, "TIMED", 1)
    monkeypatch.setattr(check_speed, "LOW", 0.0)
    monkeypatch.setattr(check_speed, "NET", check_speed.NET | {"input_shape": [1, 8, 8], "layers": TINY})
    monkeypatch.setattr(check_speed, "BATCH", 8)
    monkeypatch.setattr(check_speed, "STEPS", 20)


@pytest.fixture
def nothing(monkeypatch):
    """A machine with neither driver nor CuPy."""
    return FakeCuda(driver_cuda=0, cupy=None).install(monkeypatch)


def found(capsys, *arguments):
    """(exit status, lines by name, the whole answer)."""
    status = check.main(["--json", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    whole = json.loads(out)
    assert whole["exit"] == status
    return status, {line["name"]: line for line in whole["lines"]}, whole


def one(capsys, monkeypatch, name, *arguments, **machine):
    """The line of that name on such a machine, and the exit status of `edge-check --quick`."""
    FakeCuda(**machine).install(monkeypatch)
    status, lines, _ = found(capsys, "--quick", *arguments)
    return lines[name], status


# ---- the software, and no card


def test_a_machine_without_a_card_is_well_and_is_told_what_works(nothing, capsys):
    status, lines, whole = found(capsys)
    assert status == 0
    assert [line["name"] for line in whole["lines"] if line["group"] == "software"] == SOFTWARE
    for name in SOFTWARE:
        assert lines[name]["status"] != FAIL, lines[name]
    for name in ("driver", "card", "CuPy"):
        assert lines[name]["status"] == WARN
    assert lines["driver"]["text"] == "no NVIDIA driver"
    assert lines["CuPy"]["text"] == "not installed"
    assert lines["estimate"]["facts"]["seconds_a_step"] > 0
    assert "on the CPU" in lines["estimate"]["text"]
    assert whole["device"] is None
    assert whole["verdict"] == (
        "no card to train on (driver, card, CuPy); training on the CPU, edge-export and edge-infer work"
    )


def test_asking_for_the_card_makes_its_absence_a_failure(nothing, capsys):
    status, lines, whole = found(capsys, "--device", "cuda", "--quick")
    assert status == 1
    assert [lines[name]["status"] for name in ("driver", "card", "CuPy", "verdict")] == [FAIL] * 4
    assert whole["verdict"].startswith("training on the card will not work (see driver, card, CuPy); training on")


def test_asking_for_the_processor_leaves_the_card_alone(monkeypatch, capsys):
    monkeypatch.setattr(driver, "probe", lambda: pytest.fail("the driver was asked"))
    status, lines, whole = found(capsys, "--device", "cpu", "--quick")
    assert status == 0
    assert whole["verdict"] == "training on the CPU, edge-export and edge-infer work"
    assert "driver" not in lines


def test_the_command_runs_on_this_machine_and_fits_80_columns():
    """As installed: a process of its own, whatever card there is."""
    code = "from litenet.trainer.check import main; raise SystemExit(main(['--quick']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1)
    assert done.stderr == ""
    assert done.stdout.startswith("software\n[OK]   Python        3.")
    assert "\nverdict\n[" in done.stdout
    long = [line for line in done.stdout.splitlines() if len(line) > 80 and len(line.split()) > 3]
    assert not long
    for line in done.stdout.splitlines():
        assert not line or re.match(r"\[(OK|WARN|FAIL)\] {1,3}\S| {21}|[a-z]", line), line


def test_help_comes_without_numpy():
    code = "import sys; from litenet.trainer.check import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout


def test_every_line_of_the_json_has_the_same_keys(nothing, capsys):
    _, _, whole = found(capsys, "--quick")
    assert set(whole) == {"lines", "verdict", "device", "exit"}
    for line in whole["lines"]:
        assert set(line) == {"group", "name", "status", "text", "advice", "facts"}
        assert line["status"] in (OK, WARN, FAIL)
        assert line["text"]
        assert line["group"] in ("software", "card", "speed", "verdict")


def test_the_page_tells_the_options_and_the_lines_there_are(nothing, monkeypatch, capsys):
    page = (ROOT / "docs" / "check.md").read_text()
    commands = re.findall(r"^edge-check(.*?)(?:#|$)", page, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        check._parser().parse_args(command.split())
    rows = {name for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE) for name in row.split(", ")}
    _, lines, _ = found(capsys, "--quick")
    FakeCuda().install(monkeypatch)
    _, more, _ = found(capsys, "--quick")
    assert rows - {"line"} == {*lines, *more} - {"verdict"}
    sample = page.split("```\n")[3].splitlines()
    names = [line[7:].split("  ")[0] for line in sample if line.startswith("[")]
    assert names == [*lines][:-1] + ["estimate", "verdict"]
    assert max(map(len, sample)) <= 80


def test_what_a_check_did_not_foresee_becomes_a_line():
    def breaks():
        yield Line("first", OK, "seen")
        raise ZeroDivisionError("division\nby zero")

    first, second = guarded("thing", breaks, status=WARN)
    assert first.name == "first"
    assert (second.name, second.status) == ("thing", WARN)
    assert second.text == "could not be checked: ZeroDivisionError: division by zero"


def test_a_missing_numpy_ends_the_software_and_the_verdict_names_it(nothing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numpy", None)
    status, lines, whole = found(capsys)
    assert status == 1
    assert lines["NumPy"]["status"] == FAIL
    assert lines["NumPy"]["advice"] == "pip install --force-reinstall numpy"
    assert "C runtime" not in lines
    assert "driver" not in lines
    assert whole["verdict"] == "LiteNet will not work here as it is: see NumPy"


def test_a_c_runtime_that_does_not_load_is_a_failure(monkeypatch):
    monkeypatch.setitem(sys.modules, "litenet.pyruntime._litenet", None)
    (line,) = check_software.runtime()
    assert line.status == FAIL
    assert "does not load" in line.text
    assert "C compiler" in line.advice


def test_a_c_runtime_that_gives_something_else_is_a_failure(monkeypatch):
    from litenet.pyruntime import InferenceEngine

    def differs(engine):
        raise UserError("model: conv_1 gives something else")

    monkeypatch.setattr(InferenceEngine, "selftest", differs)
    (line,) = check_software.runtime()
    assert line.status == FAIL
    assert "conv_1 gives something else" in line.text


def test_missing_extras_and_pictures_are_named(monkeypatch):
    monkeypatch.setattr(check_software, "find_spec", lambda name: None)
    (line,) = check_software.extras()
    assert line.status == WARN
    assert line.text == (
        "PyYAML is not installed: no blueprints in YAML; tqdm is not installed: no moving line of progress"
    )
    monkeypatch.setitem(sys.modules, "cv2", None)
    (line,) = check_software.opencv()
    assert line.status == FAIL


def test_a_folder_that_cannot_be_used_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    line = check_software.folder("cache", tmp_path / "file" / "cache", "Use another.")
    assert (line.status, line.advice) == (WARN, "Use another.")
    assert "cannot be written" in line.text
    line = check_software.folder("cache", tmp_path / "cache", "Use another.", room=1 << 62)
    assert (line.status, line.advice) == (WARN, "Make room, 4611686018 GB are wanted. Use another.")
    line = check_software.folder("cache", tmp_path / "cache", "Use another.")
    assert (line.status, line.advice) == (OK, "")
    assert list((tmp_path / "cache").iterdir()) == []


def test_compiled_kernels_are_kept_where_cupy_keeps_them(tmp_path, monkeypatch, capsys):
    line, _ = one(capsys, monkeypatch, "kernel cache")
    assert (line["status"], line["facts"]["folder"]) == (OK, str(tmp_path / ".cupy" / "kernel_cache"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file"))
    line, status = one(capsys, monkeypatch, "kernel cache")
    assert (line["status"], status) == (WARN, 0)
    assert "CUPY_CACHE_DIR" in line["advice"]


def test_more_threads_than_cores_are_a_warning(monkeypatch):
    monkeypatch.setattr(check_software, "_threads", lambda np: 64)
    monkeypatch.setattr(check_software, "usable_cores", lambda: 2)
    (line,) = check_software.numpy()
    assert (line.status, line.facts["threads"]) == (WARN, 64)
    assert "OPENBLAS_NUM_THREADS=2" in line.advice


def test_the_threads_of_openblas_are_those_it_uses():
    code = "import numpy; from litenet.trainer.check_software import _threads; print(_threads(numpy))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    assert done.stdout.strip() in ("1", "None"), done.stderr


def test_the_timed_net_is_that_of_the_examples(monkeypatch):
    monkeypatch.undo()
    example = blueprints.load(ROOT / "examples" / "mnist_cnn.json")
    ours = blueprints.parse(json.dumps(check_speed.NET))
    from litenet.trainer.graph import build

    assert [(n.op, vars(n.attrs)) for n in build(ours).nodes] == [(n.op, vars(n.attrs)) for n in build(example).nodes]
    assert (ours.optimizer, ours.loss) == (example.optimizer, example.loss)


def test_times_are_told_in_units_that_suit():
    for seconds, text in ((1.26e-4, "126 us"), (9.4e-6, "9.4 us"), (0.046, "46 ms"), (43.2, "43 s"), (2200, "37 min")):
        assert check_speed._spent(seconds) == text


def test_a_step_on_a_busy_processor_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(check_speed, "CPU_SECONDS", 0.0)
    taken = []
    run = check_speed.Trainer.run_batch
    monkeypatch.setattr(check_speed.Trainer, "run_batch", lambda *a: taken.append(run(*a)))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0, 0))
    (line,) = check_speed.step_on_cpu()
    assert (len(taken), line.status) == (2, OK)
    monkeypatch.setattr(os, "getloadavg", lambda: (1e4, 0, 0))
    (line,) = check_speed.step_on_cpu()
    assert (line.status, "OPENBLAS_NUM_THREADS=1" in line.advice) == (WARN, True)


# ---- the driver


class Library:
    """libcuda with one card, or with an error of cuInit."""

    def __init__(self, failed=0, cards=1):
        self.failed, self.cards = failed, cards

    def cuInit(self, _):  # noqa: N802
        return self.failed

    def cuDriverGetVersion(self, out):  # noqa: N802
        out._obj.value = 12040

    def cuDeviceGetCount(self, out):  # noqa: N802
        out._obj.value = self.cards

    def cuDeviceGet(self, out, index):  # noqa: N802
        out._obj.value = index

    def cuDeviceGetName(self, name, size, device):  # noqa: N802
        name.value = b"GeForce GTX 1060 6GB"

    def cuDeviceTotalMem_v2(self, out, device):  # noqa: N802
        out._obj.value = 6 << 30

    def cuDeviceGetAttribute(self, out, attribute, device):  # noqa: N802
        out._obj.value = {75: 6, 76: 1}[attribute]


def test_the_driver_is_asked_without_cupy(monkeypatch):
    monkeypatch.setattr(driver, "library", lambda: None)
    assert driver.probe() == driver.Driver(False)
    monkeypatch.setattr(driver, "library", Library)
    assert driver.probe() == driver.Driver(True, 12040, (driver.Card("GeForce GTX 1060 6GB", (6, 1), 6 << 30),))
    for failed, words in ((100, "sees no CUDA card"), (803, "differ in version"), (7, "error 7")):
        monkeypatch.setattr(driver, "library", lambda failed=failed: Library(failed))
        answer = driver.probe()
        assert (answer.installed, answer.cards) == (True, ())
        assert words in answer.problem
    monkeypatch.setattr(driver, "library", lambda: Library(cards=0))
    assert "sees no CUDA card" in driver.probe().problem


def test_no_library_of_a_driver_is_no_driver(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert driver.library() is None


def test_a_driver_without_a_card_says_why(monkeypatch, capsys):
    machine = {"cards": 0, "problem": "the driver's library and its kernel module differ in version"}
    line, status = one(capsys, monkeypatch, "driver", **machine)
    assert (line["status"], status) == (WARN, 0)
    assert line["text"] == f"runs CUDA up to 13.0, but {machine['problem']}"
    assert "restart" in line["advice"]
    line, status = one(capsys, monkeypatch, "driver", "--device", "cuda", **machine)
    assert (line["status"], status) == (FAIL, 1)


def test_cards_hidden_by_the_environment_are_told(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    line, _ = one(capsys, monkeypatch, "driver", cards=0, problem="the driver sees no CUDA card")
    assert "CUDA_VISIBLE_DEVICES='-1' hides every card" in line["text"]


def test_a_driver_that_breaks_the_question_is_a_line(monkeypatch, capsys):
    monkeypatch.setattr(driver, "library", object)
    status, lines, _ = found(capsys, "--quick")
    assert status == 1
    assert lines["driver"]["text"].startswith("could not be checked: AttributeError: ")


# ---- CuPy, and its compiler


def test_a_card_without_cupy_needs_one_command(monkeypatch, capsys):
    FakeCuda(cupy=None).install(monkeypatch)
    status, lines, whole = found(capsys, "--quick")
    assert status == 0
    assert lines["card"]["status"] == OK
    assert lines["CuPy"]["status"] == WARN
    assert lines["CuPy"]["advice"] == "pip install 'litenet[gpu]'"
    assert whole["verdict"].startswith("no card to train on (CuPy)")


def test_a_cupy_that_does_not_load_is_told_from_none(monkeypatch, capsys):
    monkeypatch.setattr(check_card, "_installed", lambda name: "14.2.0" if name == "cupy-cuda12x" else None)
    line, status = one(capsys, monkeypatch, "CuPy", cupy=None)
    assert (line["status"], status) == (FAIL, 1)
    assert line["text"].startswith("cupy-cuda12x 14.2.0, but it does not load: ")


@pytest.mark.parametrize(
    ("machine", "text", "advice"),
    [
        ({"driver_cuda": 11040}, "but the driver runs CUDA only up to 11.4", "Update the driver to 525 or newer"),
        ({"built": 13000, "driver_cuda": 12040}, "built for CUDA 13.0, but the driver", "to 580 or newer"),
        ({"built": 13000, "capability": (6, 1)}, "begins at compute capability 7.5: not this card", "cupy-cuda12x"),
    ],
)
def test_a_cupy_that_does_not_suit_is_refused(monkeypatch, capsys, machine, text, advice):
    line, status = one(capsys, monkeypatch, "CuPy", **machine)
    assert (line["status"], status) == (FAIL, 1)
    assert text in line["text"]
    assert advice in line["advice"]


def test_two_cupys_are_one_too_many(monkeypatch, capsys):
    monkeypatch.setattr(check_card, "_installed", lambda name: "14.2.0" if "cuda1" in name else None)
    line, status = one(capsys, monkeypatch, "CuPy")
    assert (line["status"], status) == (WARN, 0)
    assert "pip uninstall cupy-cuda11x cupy-cuda12x cupy-cuda13x" in line["advice"]


def test_a_missing_nvrtc_is_told_with_its_package(monkeypatch, capsys):
    line, status = one(capsys, monkeypatch, "NVRTC", broken=("nvrtc",))
    assert (line["status"], status) == (FAIL, 1)
    assert "libnvrtc.so.12" in line["text"]
    assert "nvidia-cuda-nvrtc-cu12" in line["advice"]
    project = (ROOT / "pyproject.toml").read_text()
    assert "nvidia-cuda-nvrtc-cu12" in project, "litenet[gpu] is said to bring a compiler"


@pytest.mark.parametrize(
    ("machine", "advice"),
    [
        ({"capability": (6, 1), "nvrtc": (13, 0), "archs": (75, 80, 90)}, "NVRTC 13 begins at 7.5, 12.9 is the last"),
        ({"capability": (13, 0)}, "newer than this compiler"),
        ({"capability": (6, 1), "archs": (75,)}, "Reinstall"),
    ],
)
def test_a_compiler_that_does_not_know_the_card_is_refused(monkeypatch, capsys, machine, advice):
    line, status = one(capsys, monkeypatch, "NVRTC", **machine)
    assert (line["status"], status) == (FAIL, 1)
    assert "does not compile for" in line["text"]
    assert advice in line["advice"]


# ---- the card


@pytest.mark.parametrize(
    ("capability", "family", "half"),
    [
        ((5, 0), "Maxwell", "has no arithmetic for it"),
        ((6, 1), "Pascal", "1/64 of float32's speed"),
        ((7, 5), "Turing", "fast; half-precision"),
        ((9, 0), "Hopper", "fast; half-precision"),
    ],
)
def test_cards_from_5_0_on_will_do(monkeypatch, capsys, capability, family, half):
    FakeCuda(capability=capability).install(monkeypatch)
    status, lines, whole = found(capsys, "--quick", "--device", "cuda")
    assert status == 0
    assert f"compute capability {capability[0]}.{capability[1]} ({family})" in lines["card"]["text"]
    assert half in lines["float16"]["text"]
    assert lines["float16"]["status"] == (OK if capability >= (7, 0) else WARN)
    assert whole["verdict"] == "training on the GeForce GTX Fake works: edge-train ... --device cuda"
    assert whole["device"] == "GeForce GTX Fake"


@pytest.mark.parametrize(("capability", "toolkit"), [((2, 1), "8.0"), ((3, 0), "10.2"), ((3, 5), "11.8")])
def test_older_cards_are_refused_with_the_last_compiler_that_knew_them(monkeypatch, capsys, capability, toolkit):
    line, status = one(capsys, monkeypatch, "card", capability=capability)
    assert (line["status"], status) == (FAIL, 1)
    assert f"NVRTC {toolkit} was the last" in line["advice"]
    assert "train on the CPU" in line["advice"]


def test_of_several_cards_the_first_trains(monkeypatch, capsys):
    FakeCuda(cards=2).install(monkeypatch)
    status, lines, _ = found(capsys, "--quick")
    assert status == 0
    assert "This one trains" in lines["card 0"]["advice"]
    assert lines["card 1"]["advice"] == ""


def test_a_card_that_cannot_be_opened_is_told(monkeypatch, capsys):
    line, status = one(capsys, monkeypatch, "card", broken=("open",))
    assert (line["status"], status) == (FAIL, 1)
    assert "devices are busy" in line["text"]


@pytest.mark.parametrize(
    ("free", "total", "status"),
    [(5 * 10**9, 6 * 10**9, OK), (9 * 10**8, 2 * 10**9, WARN), (10**8, 2 * 10**9, WARN), (10**8, 2 * 10**8, FAIL)],
)
def test_little_free_memory_is_told(monkeypatch, capsys, free, total, status):
    line, code = one(capsys, monkeypatch, "memory", free=free, total=total)
    assert line["status"] == status
    assert code == (status == FAIL)
    assert (line["facts"]["free_bytes"], line["facts"]["total_bytes"]) == (free, total)
    if free == 9 * 10**8:
        assert "--memory 600MB" in line["advice"]


def test_the_programs_that_hold_memory_are_named(monkeypatch, capsys):
    own = str(os.getpid())
    rows = [[own, "300", "python"], ["1", "[N/A]", "[Not Found]"], ["77", "1200", "C:\\games\\game.exe"], ["x"]]
    monkeypatch.setattr(check_card, "smi", lambda what, apps=False: rows if apps else [])
    line, _ = one(capsys, monkeypatch, "memory")
    users = line["facts"]["programs"]
    assert [u["pid"] for u in users] == [77, 1]
    assert users[0] == {"pid": 77, "name": "game.exe", "bytes": 1200 << 20}
    comm = Path("/proc/1/comm")
    if comm.exists():
        assert users[1]["name"] == comm.read_text().strip()
    assert "held by game.exe (77, 1.26 GB), " in line["text"]


def test_nvidia_smi_is_read_and_may_be_absent_slow_or_broken(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_card.smi("driver_version") == []
    tool = tmp_path / "nvidia-smi"
    for script, rows in (
        ("echo '580.159.03, 4'", [["580.159.03", "4"]]),
        ("echo no; exit 9", []),
        ("exec /bin/sleep 5", []),
    ):
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(check_card, "SMI_SECONDS", 0.5)
        assert check_card.smi("driver_version,pcie.link.gen.max") == rows


def test_a_card_that_drives_a_screen_has_a_limit(monkeypatch, capsys):
    line, status = one(capsys, monkeypatch, "display", watchdog=1)
    assert (line["status"], status) == (WARN, 0)
    assert "2 s" in line["text"]


def test_error_correction_and_a_narrow_slot_are_told(monkeypatch, capsys):
    monkeypatch.setattr(check_card, "smi", lambda what, apps=False: [["3", "1"]] if "pcie" in what else [])
    line, status = one(capsys, monkeypatch, "board", attributes={32: 1})
    assert (line["status"], status) == (WARN, 0)
    assert line["text"] == "error correction on, PCIe 3 with 1 lanes"


@pytest.mark.parametrize(
    ("broken", "text"), [("capture", "cudaErrorStreamCaptureUnsupported"), ("replay", "give a wrong sum")]
)
def test_graphs_that_do_not_work_are_a_failure(monkeypatch, capsys, broken, text):
    line, status = one(capsys, monkeypatch, "CUDA graphs", broken=(broken,))
    assert (line["status"], status) == (FAIL, 1)
    assert text in line["text"]


def test_the_version_shown_is_the_installed_one(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "9.9")
    (line,) = check_software.litenet()
    assert (line.status, line.text) == (OK, "9.9")
    assert np.__version__ in next(iter(check_software.numpy())).text
