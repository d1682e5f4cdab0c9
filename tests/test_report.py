"""The report of a run: everything is in it, it needs nothing else, a browser opens it, and a reader can follow it."""

import json
import re
from base64 import b64decode
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest
from runs import changed, mistake, train
from test_debug_nan import Card
from test_profile import browser, needs_browser, read  # noqa: F401  (a fixture)

from litenet.exporter.cli import main as edge_export
from litenet.trainer import checkpoint, cli, session
from litenet.trainer.backends import cuda
from litenet.trainer.cli import main
from litenet.trainer.report import evaluate as evaluating
from litenet.trainer.report import page as pages
from litenet.trainer.report.charts import MOST_POINTS, Series, lines
from litenet.trainer.report.cost import cost
from litenet.trainer.report.judged import Judged
from litenet.trainer.report.page_answers import answers_sections
from litenet.trainer.report.parts import Section, laid_out

ASKS = r"https?:|[\x22\x27(=]//|@import|url\((?!#)|fetch\(|XMLHttpRequest|import\("


class Outline(HTMLParser):
    """What someone who only hears the page goes by."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.sections, self.headings, self.links = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "section":
            self.sections.append(attrs["id"])
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag == "a":
            self.links.append(attrs["href"])


@pytest.fixture
def ran(here):
    """A run in "run", with a profile, that has made mistakes."""
    changed(here, epochs=3, learning_rate=0.002)
    assert train("--out", "run", "--profile", "--quiet") == 0
    return here / "run"


def judged_of(p, y, labels=None, shape=(6, 5), maps="a map needs a convolution"):
    """Answers with random pictures behind them."""
    pictures = np.random.default_rng(0).integers(0, 256, (len(y), *shape, 3), np.uint8)
    return Judged(
        model="m.bin", kind="bin", name="net", data=f"{len(y)} test samples",
        labels=labels or [str(k) for k in range(p.shape[1])],
        y=y, p=p, answers=p.argmax(1), values=None, frames=lambda i: pictures[i], maps=lambda i, k: maps,
        files=None, origin=None,
    )  # fmt: skip


# ---- what is in it


def test_a_run_ends_with_a_report_that_has_everything(ran):
    text = (ran / "report.html").read_text()
    said = " ".join(read(text).texts)
    outline = Outline(text)
    assert outline.sections == [
        "curves", "mistakes", "confusion", "classes", "calibration", "device", "step", "blueprint",
        "environment"]  # fmt: skip
    tested = json.loads((ran / "test.json").read_text())
    assert f"{100 * tested['accuracy']:.2f} %" in said
    rows = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        for key in ("train_loss", "validation_loss", "learning_rate", "grad_norm_mean"):
            assert f"{row[key]:.4g}" in said
    for label in (
        "Loss",
        "Accuracy",
        "Learning rate",
        "Gradient norm",
        "The step in time",
        "Who lives where in the arena",
    ):
        assert label in said
    assert '"type": "conv2d", "out_channels": 4' in said
    started = json.loads((ran / "environment.json").read_text())[0]
    assert started["command"] == "edge-train net.json --data pictures.npz --out run --profile --quiet"
    assert started["command"] in said
    assert started["numpy"] == np.__version__
    assert "Seed 3." in said


def test_the_same_report_can_be_made_again_from_the_folder(ran, capsys):
    first = (ran / "report.html").read_text()
    capsys.readouterr()
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out == "run/report.html\n"
    assert (ran / "report.html").read_text() == first
    assert main(["report", "run", "--out", "elsewhere.html"]) == 0
    assert (ran.parent / "elsewhere.html").read_text() == first


def test_no_report_leaves_it_away_and_trains_the_same(here):
    assert train("--out", "with", "--quiet") == 0
    assert train("--out", "without", "--quiet", "--no-report") == 0
    names = [{p.name for p in (here / run).iterdir()} for run in ("with", "without")]
    assert names[0] - names[1] == {"report.html"}
    a, b = checkpoint.load("with"), checkpoint.load("without")
    assert all(array.tobytes() == b.arrays[name].tobytes() for name, array in a.arrays.items())
    assert (here / "with" / "test.json").read_text() == (here / "without" / "test.json").read_text()


def test_without_a_test_set_the_best_weights_are_asked_about_the_samples_held_out(here):
    with np.load("pictures.npz") as file:
        np.savez("train.npz", x=file["x_train"], y=file["y_train"])
    changed(here, epochs=4, learning_rate=0.3)  # so high that the best epoch is not the last
    assert train("--out", "run", "--quiet", data="train.npz") == 0
    saved = checkpoint.load("run/best.npz").meta["progress"]
    row = saved["history"][saved["best_epoch"]]
    said = " ".join(read((here / "run" / "report.html").read_text()).texts)
    assert "3 held-out samples of train" in said
    assert f"{round(3 * row['validation_accuracy'])} of 3 right" in said
    first = (here / "run" / "report.html").read_text()
    assert main(["report", "run"]) == 0
    assert (here / "run" / "report.html").read_text() == first


def test_a_run_that_held_nothing_out_says_so(here):
    with np.load("pictures.npz") as file:
        np.savez("train.npz", x=file["x_train"], y=file["y_train"])
    assert train("--out", "run", "--quiet", "--validation-split", 0, data="train.npz") == 0
    text = (here / "run" / "report.html").read_text()
    assert "The run has neither a test set nor samples held out." in text
    assert Outline(text).sections == ["curves", "answers", "device", "blueprint", "environment"]
    assert main(["report", "run"]) == 0
    assert (here / "run" / "report.html").read_text() == text


def test_where_the_data_are_gone_the_rest_is_told_and_why(ran, capsys):
    (ran.parent / "pictures.npz").rename(ran.parent / "moved.npz")
    assert main(["report", "run"]) == 0
    said = " ".join(read((ran / "report.html").read_text()).texts)
    assert re.search(r"Not looked at: .*pictures.npz.* Give --data to edge-train report", said)
    assert "Learning rate" in said
    assert main(["report", "run", "--data", "moved.npz"]) == 0
    assert "Not looked at" not in (ran / "report.html").read_text()
    capsys.readouterr()
    assert "no such data set" in mistake(capsys, 1, "report", "run", "--data", "nowhere.npz")


def test_a_folder_that_is_no_run_is_refused_and_nothing_written(here, capsys):
    (here / "empty").mkdir()
    assert mistake(capsys, 1, "report", "empty").startswith("empty is no run folder.")
    (here / "empty" / "config.json").write_text("[1, 2]")
    assert mistake(capsys, 1, "report", "empty").startswith(
        "empty cannot be read as a run: config.json is not that of a run"
    )
    (here / "empty" / "config.json").write_text("{")
    assert "cannot be read as a run" in mistake(capsys, 1, "report", "empty")
    assert [p.name for p in (here / "empty").iterdir()] == ["config.json"]


def test_the_report_is_there_whole_or_not_at_all(ran, monkeypatch):
    old = (ran / "report.html").read_bytes()

    def broken(*_):
        raise KeyError("broken")

    monkeypatch.setattr(pages, "environment_section", broken)
    with pytest.raises(KeyError):
        main(["report", "run"])
    assert (ran / "report.html").read_bytes() == old
    assert not [p for p in ran.iterdir() if p.name.endswith(".tmp")]


def test_every_start_of_a_run_is_recorded(here, monkeypatch, capsys):
    save = session.Session.save
    monkeypatch.setattr(session.Session, "save", lambda self, which: (save(self, which), cli.signal.raise_signal(2))[0])
    assert train("--out", "run", "--quiet") == 130
    monkeypatch.undo()
    assert not (here / "run" / "report.html").exists()
    assert main(["--resume", str(here / "run"), "--quiet"]) == 0
    starts = json.loads((here / "run" / "environment.json").read_text())
    assert [s["command"].split()[1] for s in starts] == ["net.json", "--resume"]
    assert all(s["command"] in (here / "run" / "report.html").read_text() for s in starts)


def test_a_run_on_a_card_has_the_same_report(here, monkeypatch, capsys):
    monkeypatch.setattr(cuda, "CudaDevice", Card)
    assert train("--out", "run", "--device", "cuda", "--profile", "--quiet") == 0
    text = (here / "run" / "report.html").read_text()
    assert Outline(text).sections[:5] == ["curves", "mistakes", "confusion", "classes", "calibration"]
    assert json.loads((here / "run" / "environment.json").read_text())[0]["device"] == "the CPU"  # as it calls itself
    capsys.readouterr()
    found = []
    for device in ("cpu", "cuda"):
        assert main(["evaluate", "run", "--device", device, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["confusion"] == found[1]["confusion"]
    assert abs(found[0]["log_loss"] - found[1]["log_loss"]) <= 1e-5
    assert found[0]["accuracy"] == json.loads((here / "run" / "test.json").read_text())["accuracy"]


NETS = {
    "embedding": ([{"type": "embed_projection", "embed_dim": 6}, {"type": "dual_path"}], "what spoke for"),
    "rows": ([{"type": "flatten"}, {"type": "linear", "out_features": 5, "activation": "relu"}],
             "A map of what it looked at needs a convolution, or an embed_projection at the start"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NETS)
def test_a_net_without_convolution_shows_pixels_or_says_why_not(here, kind):
    layers, words = NETS[kind]
    changed(here, layers=[*layers, {"type": "linear", "out_features": 3}])
    assert train("--out", "run", "--quiet") == 0
    text = (here / "run" / "report.html").read_text()
    assert words in text
    assert ('class="heat"' in text) == (kind == "embedding")


def test_a_run_that_has_saved_nothing_yet_has_a_report_of_what_there_is(ran):
    for name in ("best.npz", "last.npz", "test.json", "metrics.jsonl"):
        (ran / name).unlink()
    assert main(["report", "run"]) == 0
    text = (ran / "report.html").read_text()
    assert Outline(text).sections == ["curves", "answers", "step", "blueprint", "environment"]
    assert "No epoch has ended yet." in text
    assert "Not looked at: run holds no checkpoint" in text


# ---- its parts


def test_what_it_says_of_the_file_is_what_edge_export_writes(ran):
    assert edge_export(["run", "-o", "net.bin"]) == 0
    assert edge_export(["run", "-o", "half.bin", "--fp16"]) == 0
    found = cost(ran / "best.npz", json.loads((ran / "config.json").read_text())["data"])
    assert abs((ran.parent / "net.bin").stat().st_size - found.file) <= 64
    assert abs((ran.parent / "half.bin").stat().st_size - found.half) <= 64
    from litenet.pyruntime import InferenceEngine

    info = InferenceEngine(ran.parent / "net.bin").info
    assert (info["arena_bytes"], info["macs"]) == (found.arena, found.macs)
    assert found.parameters == sum(a.size for n, a in checkpoint.load(ran / "best.npz").arrays.items()
                                   if n.startswith("weights/") and "running" not in n)  # fmt: skip
    assert f"{found.arena:,} bytes of RAM" in (ran / "report.html").read_text()


def test_statistics_of_layers_are_shown_where_the_metrics_have_them(ran):
    rows = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
    for i, row in enumerate(rows):
        row["layers"] = [
            {"name": "layer_0", "dead": 0.2 * i, "mean": 0.5, "std": 1.25, "gradient": 0.1, "update_ratio": 1e-3},
            {"name": "<layer>", "dead": 0.75, "mean": 0.1, "std": 0.2, "gradient": 0.01, "update_ratio": 0.5},
            {"name": "new", "mean": None},
        ]
    (ran / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["report", "run"]) == 0
    text = (ran / "report.html").read_text()
    said = " ".join(read(text).texts)
    assert "Layer by layer" in said
    assert "40.0 %" in said
    assert "75 % of <layer> never fires" in said
    assert "<layer> is rewritten at every step: an update is 5.0e-01 of its weights" in said
    assert text.count('class="spark"') == 6  # two layers with three histories


def test_mistakes_come_as_pictures_with_maps_and_words():
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.99, 0.01]])
    heat = np.linspace(0, 1, 6 * 2).reshape(2, 3, 2).astype(np.float32)
    judged = judged_of(p, np.array([1, 1, 1]), ["cat", "d<g"], maps=heat)
    body = next(answers_sections(judged)).body
    tags = Outline(body).tags
    assert [attrs["aria-label"] for tag, attrs in tags if tag == "svg"] == [
        "number 2, d<g", "what spoke for cat", "what spoke for d<g",
        "number 0, d<g", "what spoke for cat", "what spoke for d<g"]  # fmt: skip
    images = [attrs for tag, attrs in tags if tag == "image"]
    assert len(images) == 2 + 4  # each picture once, and its maps
    assert [attrs["href"] for tag, attrs in tags if tag == "use"] == ["#picture-2"] * 2 + ["#picture-0"] * 2
    data = np.frombuffer(b64decode(images[0]["href"].split(",")[1]), np.uint8)
    assert (cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1] == judged.frames(np.array([2]))[0]).all()
    assert "d&lt;g</b> taken for <b>cat" in body
    assert "99.0 % sure, 1 % for d&lt;g" in body


def test_a_net_without_mistakes_shows_what_came_nearest():
    section = next(answers_sections(judged_of(np.array([[0.6, 0.4], [0.9, 0.1]]), np.array([0, 0]))))
    assert section.title == "Nearest to a mistake"
    assert "There is no mistake" in section.body
    assert "A map needs a convolution." in section.body
    assert section.body.index("number 0") < section.body.index("number 1")


@pytest.mark.parametrize("classes", [2, 12, 13, 30, 31, 200])
def test_any_number_of_classes_has_its_confusion_matrix(classes):
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(classes), 400)
    y = rng.integers(0, classes, 400)
    judged = judged_of(p, y)
    sections = list(answers_sections(judged))
    body = read(laid_out(sections))
    cells = re.findall(r'<td class="(?:hit|miss|none)"[^>]*>([\d,]+)', sections[1].body)
    if classes <= 30:
        assert [int(c) for c in cells] == judged.figures.confusion.reshape(-1).tolist()
    else:
        assert cells == []
        assert 'class="matrix"' in sections[1].body
    assert len(body.rows) >= classes
    assert len(laid_out(sections)) < 300_000


def test_large_pictures_are_scaled_down_and_the_page_stays_small():
    p = np.tile([[0.9, 0.1]], (400, 1))
    heat = np.random.default_rng(0).random((12, 32, 32)).astype(np.float32)
    noise = judged_of(p, np.ones(400, int), shape=(1000, 700), maps=heat)  # nothing is harder to compress
    noise = Judged(
        **{
            **vars(noise),
            "frames": lambda i: np.random.default_rng(0).integers(0, 256, (len(i), 1000, 700, 3), np.uint8),
        }
    )
    assert len(laid_out(list(answers_sections(noise)))) < 700_000


def test_lines_have_gaps_where_there_is_no_number_and_are_thinned_where_there_are_many():
    text = lines("Loss", [Series("a", [1.0, float("nan"), 0.5, None, 0.25, 0.2]), Series("b", [None] * 6, 1)])
    runs = re.findall(r'<polyline points="([^"]*)"', text)
    assert [len(run.split()) for run in runs] == [2, 2, 2]  # two single points are drawn as dots
    assert "a: from 1 to 0.2" in text
    assert ">b<" not in text
    assert lines("Loss", [Series("a", [None, float("inf")])]) == ""
    long = lines("Loss", [Series("a", list(np.linspace(1, 0, 5000)))])
    points = re.search(r'<polyline points="([^"]*)"', long).group(1).split()
    assert len(points) == MOST_POINTS
    assert (points[0], points[-1]) == ("0,0", "1000,1000")
    assert len(lines("Loss", [Series("a", [0.0, 0.0])], log=True)) == 0


@pytest.mark.parametrize(
    "values", [[1e-9, 2e-9], [5.0, 5.0], [0.0, 0.0], [-3.0, 4.0], [1e6, 3e7], [0.97, 0.9701], [1.0]]
)
@pytest.mark.parametrize("kind", ["plain", "percent", "log"])
def test_axes_hold_all_that_is_drawn(values, kind):
    if kind == "percent":
        values = [min(max(v, 0), 1) for v in values]
    if kind == "log":
        values = [abs(v) + 1e-12 for v in values]
    text = lines("x", [Series("a", values)], log=kind == "log", percent=kind == "percent")
    for point in re.search(r'<polyline points="([^"]*)"', text).group(1).split():
        assert all(-1e-6 <= float(v) <= 1000.001 for v in point.split(","))
    labels = re.findall(r'class="y" style="top:([-\d.]+)%">([^<]*)', text)
    assert len(labels) >= 2
    assert len({label for _, label in labels}) == len(labels)
    assert all(-0.01 <= float(at) <= 100.01 for at, _ in labels)


def test_halves_stand_side_by_side_only_in_company():
    half, whole = Section("a", "A", "", True), Section("b", "B", "")
    assert laid_out([half, half, whole]).count('class="two"') == 1
    assert 'class="two"' not in laid_out([half, whole, half])


# ---- as a page


def test_the_report_asks_nothing_of_a_network_and_names_cannot_break_it(here):
    changed(here, labels=["</script><b>", '"&', "<!--"], description="</pre>")
    assert train("--out", "run", "--quiet") == 0
    text = (here / "run" / "report.html").read_text()
    reader = read(text)
    assert "</script><b>" in reader.texts
    assert '  "description": "</pre>"' in "".join(reader.texts)
    assert not re.search(ASKS, re.sub(r"data:image/[a-z]+;base64,[\w+/=]*", "", text))
    assert "default-src 'none'" in text
    outline = Outline(text)
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert all(attrs["href"].startswith("data:image/") for tag, attrs in outline.tags if tag == "image")


def test_the_report_can_be_followed_by_ear_and_by_keyboard(ran):
    outline = Outline((ran / "report.html").read_text())
    tags = outline.tags
    assert next(attrs for tag, attrs in tags if tag == "html")["lang"] == "en"
    assert outline.headings[0] == 1
    assert set(outline.headings[1:]) == {2}
    assert len(set(outline.ids)) == len(outline.ids)
    assert all("alt" in attrs for tag, attrs in tags if tag == "img")
    assert all(attrs.get("aria-hidden") == "true" or attrs["aria-label"] for tag, attrs in tags if tag == "svg")
    plots = [attrs for tag, attrs in tags if tag == "div" and attrs.get("role") == "img"]
    assert len(plots) == 7  # four curves, reliability, time line, memory
    assert all(len(attrs["aria-label"]) > 20 for attrs in plots)
    assert all("scope" in attrs for tag, attrs in tags if tag == "th")
    assert all("tabindex" in attrs for _, attrs in tags if "table" in attrs.get("class", "").split())
    for landmark in ("header", "nav", "main", "footer"):
        assert sum(tag == landmark for tag, _ in tags) == 1


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_browser_opens_it_offline_without_a_complaint(browser, ran, tmp_path, width, scheme):  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    tab, complaints, requests = context.new_page(), [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto((ran / "report.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    drawn = "[...document.querySelectorAll('.tile')].every(tile => tile.getBoundingClientRect().height > 40)"
    assert tab.evaluate(drawn)
    assert tab.evaluate(
        "[...document.querySelectorAll('figure')].every(f => f.getBoundingClientRect().right <= innerWidth)"
    )
    first = tab.locator(".read").first
    before = first.inner_text()
    assert before.startswith("epoch 3: training ")
    tab.locator("[data-cursor]").first.focus()
    tab.keyboard.press("Home")
    assert first.inner_text().startswith("epoch 1: training ")
    tab.keyboard.press("ArrowRight")
    assert first.inner_text().startswith("epoch 2: training ")
    box = tab.locator("[data-cursor]").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    assert first.inner_text() == before
    tab.click("#classes thead th:nth-child(4) button")
    column = "[...document.querySelectorAll('#classes tbody tr')].map(row => +row.cells[3].dataset.v)"
    found = tab.evaluate(column)
    assert found == sorted(found, reverse=True)
    if tab.locator("#mistakes .heat").count():
        tab.click("#mistakes button")
        assert tab.locator("#mistakes .heat").first.evaluate("e => getComputedStyle(e).visibility") == "hidden"
    colours = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(colours) == ("rgb(17, 22, 28)" if scheme == "dark" else "rgb(246, 247, 249)")
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert len(tab.screenshot(path=tmp_path / "report.png", full_page=True)) > 20_000
    context.close()


@needs_browser
def test_it_can_be_read_without_scripts(browser, ran):  # noqa: F811
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((ran / "report.html").as_uri())
    assert tab.locator("#curves polyline").count() >= 6
    assert tab.locator("#classes tbody tr").count() == 3
    assert tab.locator("#confusion td").first.is_visible()
    context.close()


# ---- one model alone


def test_an_evaluation_can_be_a_page(ran, capsys):
    assert edge_export(["run", "-o", "net.bin"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "net.bin", "--data", "pictures.npz", "--html", "audit.html"]) == 0
    out, err = capsys.readouterr()
    assert err == "audit.html shows it\n"
    assert out.startswith("net.bin (small) on 9 test samples")
    outline = Outline((ran.parent / "audit.html").read_text())
    assert outline.sections == ["mistakes", "confusion", "classes", "calibration"]
    assert evaluating.evaluate(ran, None, None).figures.accuracy == evaluating.evaluate(
        ran.parent / "net.bin", "pictures.npz", None).figures.accuracy  # fmt: skip
