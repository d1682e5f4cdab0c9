"""The profile of a step: numbers that add up, a page that needs nothing else, a trace, and no trace in the training."""

import importlib.util
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from nets import SMALL, net
from runs import train
from shim_device import ShimDevice

from litenet.trainer import profile_page
from litenet.trainer.budget import Scheme
from litenet.trainer.checkpoint import load
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.errors import UserError
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.profile import LANES, profile_step, traffic
from litenet.trainer.profile_page import chrome_trace, layer_colours, page, time_text, write
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

MLP = [{"type": "linear", "out_features": 13, "activation": "relu"}, {"type": "linear", "out_features": 3}]
WITH_STATE = [
    {"type": "linear", "out_features": 12},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "dropout", "rate": 0.3},
    {"type": "linear", "out_features": 3},
]


def samples(n=12, shape=(8, 8, 2), classes=3):
    x = np.random.default_rng(0).integers(0, 256, (n, *shape), np.uint8)
    return Dataset(x, (x.reshape(n, -1).sum(1) % classes).astype(np.int64))


def trainer_of(layers, shape, device, update="end", **more):
    blueprint = net(layers, shape, **more)
    if device == "cpu":
        return Trainer(blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, update)
    return DeviceTrainer(ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, scheme=Scheme(4, 1, update))


def profile_of(layers, shape=(128,), device="cpu", update="end", options=None, **more):
    trainer = trainer_of(layers, shape, device, update, **more)
    settings = settings_for(trainer.blueprint, {"epochs": 1, "batch_size": 4, **(options or {})})
    return trainer, profile_step(trainer, samples(), settings)


@pytest.fixture(scope="module")
def small():
    return profile_of(SMALL, (2, 8, 8), update="immediate", optimizer="momentum")


@pytest.fixture(scope="module")
def kernels():
    return profile_of(MLP, device="shim", options={"clip_norm": 1.0}, optimizer="momentum")


# ---- the numbers


@pytest.mark.parametrize("update", ["immediate", "end"])
def test_every_launch_of_the_plan_is_there_in_its_order(update):
    trainer, found = profile_of(SMALL, (2, 8, 8), update=update)
    assert [row.name for row in found.launches] == [launch.name for launch in trainer.plan.launches]
    assert [row.at for row in found.launches] == list(range(len(found.plan)))
    assert all(row.us > 0 for row in found.launches if row.kind != "clip")
    assert found.sum_us == pytest.approx(sum(row.us for row in found.launches))
    assert found.samples_per_second == pytest.approx(4e6 / found.step_us)


def test_a_device_shows_the_kernels_of_each_launch(kernels):
    trainer, found = kernels
    rows = {row.name: row for row in found.launches}
    assert [row.kind for row in found.launches if row.at is not None] == [
        "load", "forward", "forward", "loss", "backward", "backward", "update"]  # fmt: skip
    first = rows["layer_0.forward"].kernels[0]
    assert (first.file, first.name[:7]) == ("linear.cu", "linear_")
    assert "ACT=" in first.variant
    for row in found.launches:
        assert len(row.kernel_us) == len(row.kernels) > 0
        assert min(row.kernel_us) > 0
    assert [k.name for k in rows["update"].kernels][:2] == ["gradient_norm_f32", "update_momentum_f32"]
    assert found.replay_us > 0
    assert found.device == trainer.device.name


def test_operations_of_a_linear_layer_are_two_for_each_weight_and_sample(kernels):
    for found in (kernels[1], profile_of(MLP)[1]):
        rows = {row.name: row for row in found.launches}
        first, second = 2 * 4 * 128 * 13, 2 * 4 * 13 * 3
        assert rows["layer_0.forward"].flops == first
        assert rows["layer_1.forward"].flops == second
        assert rows["layer_1.backward"].flops == 2 * second  # of the weights and of the input
        assert rows["layer_0.backward"].flops == first  # nobody asks for the gradient of the pictures
        assert rows["loss"].flops == rows["update"].flops == 0


def test_bytes_are_those_of_the_values_a_launch_names(small, kernels):
    for trainer, found in (small, kernels):
        for row in found.launches:
            if row.at is None or row.kind in ("load", "update", "clip"):
                continue
            launch, values = trainer.plan.launches[row.at], trainer.plan.values
            reads = {*launch.reads.values(), *launch.adds.values()}
            assert row.read == sum(values[name].bytes for name in reads), row.name
            written = {role: name for role, name in launch.writes.items() if role != "scratch"}
            assert row.written == sum(values[name].bytes for name in written.values()), row.name
    rows = {row.name: row for row in kernels[1].launches}
    assert (rows["layer_0.forward"].read, rows["layer_0.forward"].written) == (4 * (4 * 128 + 13 * 129), 4 * 4 * 13)
    weights = 4 * (13 * 129 + 3 * 14)
    assert (rows["update"].read, rows["update"].written) == (3 * weights, 2 * weights)  # w, its gradient, its velocity
    assert (rows["load"].read, rows["load"].written) == (4 * 128 + 4 * 4, 4 * 4 * 128 + 4 * 4)


def test_what_is_computed_again_counts_as_work_of_the_backward_pass():
    blueprint = net(SMALL, (2, 8, 8))
    kept = Trainer(blueprint, 4).graph
    again = kept.tensors[kept.nodes[0].output].name
    trainer = Trainer(blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, recompute=[again])
    found = profile_step(trainer, samples(), settings_for(blueprint, {"batch_size": 4}))
    forward, repeated = (
        next(row for row in found.launches if row.kind == kind and row.op == "conv2d") for kind in ("forward", "again")
    )
    assert (repeated.flops, repeated.lane, repeated.layer) == (forward.flops, "backward", forward.layer)
    assert repeated.us > 0


def test_an_update_of_one_tensor_moves_that_tensor_alone(small):
    trainer, _ = small
    launch = next(launch for launch in trainer.plan.launches if launch.group == "layer_0.bias")
    assert traffic(trainer.plan, launch, ("velocity",), 1) == (3 * 16, 2 * 16, 0)


def test_the_floor_is_what_the_slower_of_memory_and_arithmetic_needs(small):
    found = small[1]
    for row in found.launches:
        memory, compute = (row.read + row.written) / found.peaks.gbs / 1e3, row.flops / found.peaks.gflops / 1e3
        assert row.floor_us == pytest.approx(max(memory, compute))
        assert row.binds == ("arithmetic" if compute > memory else "memory")
        assert row.share * row.us == pytest.approx(row.floor_us)
        assert row.gap_us == pytest.approx(max(0, row.us - row.floor_us))
        assert row.gflops * row.us * 1e3 == pytest.approx(row.flops)
        assert row.gbs * row.us * 1e3 == pytest.approx(row.read + row.written)
    assert 0 < found.share <= 1.5


def test_layers_add_up_to_the_step(small, kernels):
    for trainer, found in (small, kernels):
        assert sum(us for layer in found.layers for us in layer.us.values()) == pytest.approx(found.sum_us)
        assert sum(layer.weights for layer in found.layers) == sum(np.prod(p.shape) for p in trainer.graph.trainable)
        assert sum(layer.bytes for layer in found.layers) == sum(row.read + row.written for row in found.launches)


def test_the_next_tenant_takes_the_same_bytes_later_and_none_comes_between(small):
    trainer, found = small
    for b in found.buffers:
        def on_my_bytes(other, mine=b):
            return other.offset < mine.offset + mine.bytes and mine.offset < other.offset + other.bytes

        later = [other for other in found.buffers if other.first > b.last and on_my_bytes(other)]
        if b.next is None:
            assert not later
        else:
            assert on_my_bytes(found.buffers[b.next])
            assert found.buffers[b.next].first == min(other.first for other in later)
    assert any(b.next is not None for b in found.buffers)
    assert max(found.live) == found.live[found.peak] <= found.lower_bound <= found.arena == trainer.plan.arena_bytes


# ---- training is not disturbed


RUNS = [
    pytest.param("cpu", "immediate", {}, id="cpu"),
    pytest.param("cpu", "end", {"accumulation": 2, "clip_norm": 0.1}, id="cpu, two batches an update, clipped"),
    pytest.param("shim", "end", {"clip_norm": 0.1}, id="kernels, clipped"),
    pytest.param("shim", "immediate", {}, id="kernels, one tensor at a time"),
]


@pytest.mark.parametrize(("device", "update", "options"), RUNS)
def test_training_after_a_profile_gives_the_bits_of_training_without_one(device, update, options):
    ends = []
    for profiled in (True, False):
        trainer = trainer_of(WITH_STATE, (128,), device, update, optimizer="adam", learning_rate=0.01)
        settings = settings_for(trainer.blueprint, {"epochs": 2, "batch_size": 4, **options})
        data, progress = samples(), Progress()
        before = trainer.state_arrays()
        if profiled:
            rate = trainer.optimizer.lr
            profile_step(trainer, data, settings)
            assert (trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr) == (0, 0, rate)
            after = trainer.state_arrays()
            assert all(after[name].tobytes() == array.tobytes() for name, array in before.items())
        fit(trainer, data, data, settings, progress, Events())
        ends.append((trainer.state_arrays(), progress.history))
    (profiled, rows), (plain, plain_rows) = ends
    assert profiled.keys() == plain.keys()
    for name, array in plain.items():
        assert profiled[name].tobytes() == array.tobytes(), name
    for row, plain_row in zip(rows, plain_rows, strict=True):
        assert row | {"seconds": 0} == plain_row | {"seconds": 0}


def test_a_step_that_fails_leaves_the_trainer_as_it_was():
    trainer = trainer_of(MLP, (128,), "cpu")
    settings = settings_for(trainer.blueprint, {"epochs": 1, "batch_size": 4})
    before = trainer.state_arrays()
    with pytest.raises(UserError):
        profile_step(trainer, samples(shape=(3, 3, 2)), settings)
    assert trainer.optimizer.lr > 0
    assert all(trainer.state_arrays()[name].tobytes() == array.tobytes() for name, array in before.items())


# ---- the page


class Reader(HTMLParser):
    """Checks that tags are closed in order, and collects texts, rows and attributes."""

    VOID = {"meta", "br", "link", "img", "input", "hr"}

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.texts, self.rows, self.data = [], [], [], [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.attributes += [(tag, *attr) for attr in attrs]
        if tag == "tr":
            self.rows.append(dict(attrs).get("data-i"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, text):
        if self.open and self.open[-1] == "script" and text.startswith("{"):
            self.data = text
        elif self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(text)


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_is_well_formed_and_has_a_row_for_every_launch(small, kernels):
    for _, found in (small, kernels):
        reader = read(page(found))
        rows = [int(row) for row in reader.rows if row is not None]
        assert sorted(rows) == list(range(len(found.launches)))
        assert [found.launches[i].us for i in rows] == sorted((row.us for row in found.launches), reverse=True)
        text = " ".join(reader.texts)
        for row in found.launches:
            assert row.name in text
        for layer in found.layers:
            assert layer.name in text
        assert time_text(found.step_us) in text
        assert found.peaks.gbs_by in text
        data = json.loads(reader.data)
        assert len(data["launches"]["rows"]) == len(found.launches)
        assert len(data["buffers"]["rows"]) == len(found.buffers)
        assert "<!--" not in page(found).replace("<!doctype", "")


def test_names_cannot_break_the_page(small):
    evil = '</script><b title="x">&'
    reader = read(page(replace(small[1], net=evil)))
    assert evil in "".join(reader.texts)
    assert json.loads(reader.data)["net"] == evil


def test_the_page_asks_nothing_of_a_network(small):
    text = page(small[1])
    asks = r"https?:|[\x22\x27(=]//|@import|\bsrc=|href=|url\((?!#)|fetch\(|XMLHttpRequest|import\("
    assert not re.search(asks, text)
    assert "default-src 'none'" in text


def test_a_page_of_four_hundred_launches_stays_far_under_a_megabyte():
    layers = [{"type": "linear", "out_features": 8}] * 100
    trainer, found = profile_of(layers, (128,), update="immediate")
    assert len(trainer.plan.launches) > 400
    assert len(page(found)) < 700_000


def test_neighbouring_layers_have_different_colours():
    found = profile_of([{"type": "linear", "out_features": 8}] * 40)[1]
    colours = list(layer_colours(found).values())
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert all(a != b for a, b in zip(colours[1:40], colours[2:41], strict=True))


# ---- the trace


def test_the_trace_holds_complete_events_end_to_end_and_the_bytes_in_use(small, kernels):
    for _, found in (small, kernels):
        trace = json.loads(json.dumps(chrome_trace(found)))
        events = trace["traceEvents"]
        complete = [e for e in events if e["ph"] == "X" and e["cat"] != "kernel"]
        assert [e["name"] for e in complete] == [row.name for row in found.launches]
        now = 0.0
        for event, row in zip(complete, found.launches, strict=True):
            assert event["ts"] == pytest.approx(now, abs=1e-3)
            assert event["dur"] == pytest.approx(row.us, abs=1e-3)
            assert (event["args"]["bytes"], event["args"]["flops"]) == (row.read + row.written, row.flops)
            now += row.us
        threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert [threads[e["tid"]] for e in complete] == [LANES[row.kind] for row in found.launches]
        several = [row for row in found.launches if len(row.kernels) > 1]
        parts = [e for e in events if e["ph"] == "X" and e["cat"] == "kernel"]
        assert len(parts) == sum(len(row.kernels) for row in several)
        for part in parts:
            assert any(
                e["tid"] == part["tid"] and e["ts"] <= part["ts"] and part["ts"] + part["dur"] <= e["ts"] + e["dur"]
                for e in complete
            )
        counters = [sum(e["args"].values()) for e in events if e["ph"] == "C"]
        assert counters == list(found.live[: len(counters)])
        assert max(counters) == max(found.live)


# ---- files and the command


def test_both_files_are_written_whole_or_not_at_all(small, tmp_path, monkeypatch):
    write(small[1], tmp_path)
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert old.keys() == {"profile.html", "profile.json"}
    monkeypatch.setattr(profile_page, "chrome_trace", lambda profile: {"not": {"JSON"}})
    with pytest.raises(TypeError):
        write(small[1], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
    with pytest.raises(UserError, match="could not be written"):
        monkeypatch.undo()
        write(small[1], tmp_path / "nowhere")


def test_profile_goes_on_to_train_the_same_weights(here, capsys):
    assert train("--out", "plain") == 0
    assert train("--out", "shown", "--profile") == 0
    assert re.search(r"shown.profile\.html: a step takes [\d.]+ .?s", capsys.readouterr().out)
    assert {p.name for p in (here / "shown").iterdir()} - {p.name for p in (here / "plain").iterdir()} == {
        "profile.html", "profile.json"}  # fmt: skip
    plain, shown = load("plain"), load("shown")
    assert all(array.tobytes() == shown.arrays[name].tobytes() for name, array in plain.arrays.items())


def test_profile_only_trains_nothing(here, capsys):
    for _ in range(2):  # a second look replaces the first
        assert train("--profile-only") == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert sorted(p.name for p in (here / "runs").iterdir()) == ["small-profile"]
    assert sorted(p.name for p in (here / "runs" / "small-profile").iterdir()) == [
        ".lock", "config.json", "profile.html", "profile.json"]  # fmt: skip
    assert "small" in read((here / "runs" / "small-profile" / "profile.html").read_text()).texts


# ---- in a browser


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    BROWSER is None or importlib.util.find_spec("playwright") is None, reason="needs chromium and pip's playwright"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_browser_draws_every_launch_without_a_complaint(browser, kernels, tmp_path, width, scheme):
    found = kernels[1]
    path, _ = write(found, tmp_path)
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(path.as_uri())
    count = "selector => document.querySelectorAll(selector).length"
    assert tab.evaluate(count, "#time [data-i]") == len(found.launches)
    assert tab.evaluate(count, "#roofline > svg [data-i]") == len([row for row in found.launches if row.at is not None])
    assert tab.evaluate(count, "#memory > svg [data-b]") == len(found.buffers)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    longest = max(range(len(found.launches)), key=lambda i: found.launches[i].us)
    tab.click(f"#time [data-i='{longest}']")
    assert tab.get_attribute("#launches tr.picked", "data-i") == str(longest)
    assert found.launches[longest].name in tab.inner_text("#picked")
    tab.keyboard.press("Escape")
    assert tab.is_hidden("#picked")
    tab.focus("#launches tbody tr[tabindex='0']")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    second = sorted(found.launches, key=lambda row: -row.us)[1]
    assert second.name in tab.inner_text("#picked")
    tab.click("#launches thead th:first-child button")
    tab.click("#launches thead th:first-child button")
    assert tab.get_attribute("#launches tbody tr", "data-i") == "0"
    tab.click("#legend button >> nth=1")
    assert 0 < tab.evaluate(count, "svg .dim") < tab.evaluate(count, "svg [data-l]")
    assert complaints == []
    tab.close()


@needs_browser
def test_tables_can_be_read_without_scripts(browser, small, tmp_path):
    path, _ = write(small[1], tmp_path)
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert tab.locator("#launches tbody tr").count() == len(small[1].launches)
    assert tab.locator("noscript section").is_visible()
    assert tab.locator("#time").is_hidden()
    context.close()
