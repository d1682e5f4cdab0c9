"""edge-infer --explain: the map against weights and feature maps, its place on the picture, the files, the refusals."""

import json

import bins
import cv2
import numpy as np
import pytest
from nets import net
from test_export import export, trained

from litenet.exporter import source
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.cli import main
from litenet.pyruntime.explain import UnexplainedError, explainer
from litenet.pyruntime.overlay import colours, spread
from litenet.trainer.fuse import without_training_only
from litenet.trainer.graph import build
from litenet.trainer.report import gradcam

HEADS = {
    "average and linear": [{"type": "global_avg_pool"}, {"type": "linear", "out_features": 21}],
    "average, linear, softmax": [{"type": "global_avg_pool"}, {"type": "linear", "out_features": 5},
                                 {"type": "softmax"}],
    "rows": [{"type": "flatten"}, {"type": "linear", "out_features": 19, "activation": "relu"},
             {"type": "linear", "out_features": 18, "activation": "leaky_relu", "alpha": 0.2},
             {"type": "linear", "out_features": 4, "activation": "relu6"}, {"type": "linear", "out_features": 3}],
    "one answer": [{"type": "global_avg_pool"}, {"type": "linear", "out_features": 1}],
}  # fmt: skip
BODY = [
    {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": 1, "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2},
    {"type": "conv2d", "out_channels": 18, "kernel_size": 3, "padding": 1},
    {"type": "batchnorm", "activation": "relu"},
]


# ---- the map


@pytest.mark.parametrize("half", [False, True], ids=["single", "half"])
def test_it_is_the_last_features_weighted_by_the_row_of_the_class(half):
    net = bins.colors(half=half)
    engine, rng = InferenceEngine(net.bytes()), np.random.default_rng(1)
    found = explainer(engine)
    assert found.layer == "conv2d0"
    x = rng.normal(size=(16, 16, 3)).astype(np.float32)
    features, w = net.values(x)[0], net.steps[2][2]["weight"]
    for k in range(4):
        want = np.maximum(features @ w[k], 0)
        assert np.abs(found.of(x, k) - want / want.max()).max() <= (2e-3 if half else 1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_without_a_gradient_it_gives_what_the_gradient_gives(tmp_path, head):
    blueprint = net([*BODY, *HEADS[head]], (3, 16, 16))
    path = trained(tmp_path, blueprint)
    assert export(path, tmp_path / "net.bin") == 0
    loaded = source.load_source(str(path))
    graph = build(blueprint)
    trainers = gradcam.explainer(graph, loaded.weights)
    assert trainers.graph.nodes[0].op == without_training_only(graph).nodes[0].op == "conv2d"
    x = np.random.default_rng(3).normal(size=(4, 16, 16, 3)).astype(np.float32)
    with InferenceEngine(tmp_path / "net.bin") as engine:
        runtimes = explainer(engine)
        for k in range(min(3, max(2, engine.output_shape[0]))):
            want = trainers.maps(x, np.full(4, k))
            got = np.stack([runtimes.of(one, k) for one in x])
            assert want.shape == got.shape == (4, 8, 8)
            assert np.abs(got - want).max() <= 1e-4
            assert got.max() <= 1


@pytest.mark.parametrize("end", ["plain", "softmax", "one answer"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("dim", [9, 70], ids=["narrow", "wider than the picture has pixels"])
def test_an_embedding_is_measured_pixel_by_pixel_without_a_gradient(tmp_path, keep, end, dim):
    head = [{"type": "linear", "out_features": 1 if end == "one answer" else 3}]
    head += [{"type": "softmax"}] * (end == "softmax")
    layers = [{"type": "embed_projection", "embed_dim": dim, "keep_channels": keep}, {"type": "dual_path"}, *head]
    path = trained(tmp_path, net(layers, (3, 8, 8)))
    assert export(path, tmp_path / "net.bin") == 0
    loaded = source.load_source(str(path))
    trainers = gradcam.explainer(build(net(layers, (3, 8, 8))), loaded.weights)
    x = np.random.default_rng(3).normal(size=(2, 8, 8, 3)).astype(np.float32)
    with InferenceEngine(tmp_path / "net.bin") as engine:
        runtimes = explainer(engine)
        assert runtimes.layer == "layer_0"
        for k in range(2):
            want = trainers.maps(x, np.full(2, k))
            got = np.stack([runtimes.of(one, k) for one in x])
            assert want.shape == got.shape == (2, 8, 8)
            assert np.abs(got - want).max() <= 5e-3
        assert (runtimes.of(0 * x[0], 1) == 0).all()


def test_nets_that_end_otherwise_are_told_so_in_one_sentence(tmp_path):
    with pytest.raises(UnexplainedError, match=r"^model has no convolution, so its answers come from no place"):
        explainer(InferenceEngine(bins.mlp().bytes()))
    for head, what in (
        ([{"type": "global_avg_pool"}, {"type": "dual_path"}, {"type": "linear", "out_features": 3}], r"layernorm"),
        ([{"type": "flatten"}, {"type": "linear", "out_features": 5, "activation": "gelu"},
          {"type": "linear", "out_features": 3}], r"gelu"),
    ):  # fmt: skip
        path = trained(tmp_path, net([*BODY, *head], (3, 16, 16)))
        assert export(path, tmp_path / "net.bin") == 0
        with pytest.raises(UnexplainedError, match=rf"\({what}\) lies between the last feature map and the answer"):
            explainer(InferenceEngine(tmp_path / "net.bin"))


# ---- its place


def test_a_stretched_map_covers_the_picture():
    heat = np.array([[0, 1], [0, 1]], np.float32)
    out = spread(heat, "stretch", (40, 60), (8, 8), (20, 30))
    assert out.shape == (20, 30)
    assert (out[:, :5] == 0).all()
    assert (out[:, -5:] == 1).all()


def test_a_cropped_map_covers_what_the_net_saw_and_nothing_else():
    out = spread(np.ones((2, 2), np.float32), "crop", (40, 100), (8, 8), (40, 100))  # 40 x 40 from the middle
    assert (out[:, 30:70] == 1).all()
    assert (out[:, :30] == -1).all()
    assert (out[:, 70:] == -1).all()
    tall = spread(np.ones((2, 2), np.float32), "crop", (100, 40), (8, 16), (100, 40))  # 20 rows from the middle
    assert (np.flatnonzero(tall[:, 0] == 1) == np.arange(40, 60)).all()


def test_the_bars_of_a_letterbox_are_cut_off():
    heat = np.zeros((8, 8), np.float32)
    heat[:2] = heat[6:] = 1  # exactly the bars of a picture twice as wide as high
    assert spread(heat, "letterbox", (50, 100), (8, 8), (50, 100)).max() <= 0.5  # where they are blended at the edge
    heat = 1 - heat
    assert (spread(heat, "letterbox", (50, 100), (8, 8), (50, 100)) >= 0.5).all()


def test_colours_are_clear_where_nothing_spoke_and_strong_where_most_did():
    rgba = colours(np.array([[0.0, 0.5, 1.0]], np.float32))
    assert rgba.dtype == np.uint8
    assert rgba.shape == (1, 3, 4)
    assert rgba[0, 0, 3] == 0 < rgba[0, 1, 3] < rgba[0, 2, 3] < 255
    assert rgba[0, 2, 0] > rgba[0, 2, 2]  # red at the hot end


# ---- the command


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colors.bin").write_bytes(bins.colors().bytes())
    (tmp_path / "mlp.bin").write_bytes(bins.mlp().bytes())
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(9)
    cv2.imwrite("photos/a.png", rng.integers(0, 256, (28, 28, 3), np.uint8))
    cv2.imwrite("photos/b.jpg", rng.integers(0, 256, (1200, 1600, 3), np.uint8))
    return tmp_path


def run(capfd, *argv):
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code
    out, err = capfd.readouterr()
    return code, out.splitlines(), err.splitlines()


def test_explain_draws_beside_each_picture_and_passes_over_its_own_drawings(place, capfd):
    for _ in range(2):
        code, out, err = run(capfd, "colors.bin", "photos", "--explain", "--json")
        assert (code, err, len(out)) == (0, [], 2)
    names = sorted(p.name for p in (place / "photos").iterdir())
    assert names == ["a.png", "a.png.explain.png", "b.jpg", "b.jpg.explain.png"]
    found = json.loads(out[1])
    assert found["explained"] == {"file": "photos/b.jpg.explain.png", "label": found["label"], "layer": "conv2d0"}
    assert cv2.imread("photos/a.png.explain.png").shape == (256, 256, 3)  # small ones are drawn larger
    assert cv2.imread("photos/b.jpg.explain.png").shape == (768, 1024, 3)


def test_the_drawing_is_the_picture_with_colour_where_the_map_says(place):
    engine = InferenceEngine("colors.bin")
    pixels = np.full((64, 128, 3), 90, np.uint8)
    pixels[:, 64:] = 160
    cv2.imwrite("half.png", pixels)
    assert main(["colors.bin", "half.png", "--explain-out", "out.png", "--json"]) == 0
    drawn = cv2.imread("out.png").astype(int)
    assert drawn.shape == (128, 256, 3)
    outside = np.r_[0:64, 192:256]  # the net is shown the middle half
    grey = np.where(np.arange(256) < 128, 45, 80)[None, :, None]
    assert np.abs(drawn[:, outside] - grey[:, outside]).max() <= 1
    x = engine.prepare(pixels)
    k = int(engine.predict(x).argmax())
    over = spread(explainer(engine).of(x, k), "crop", (64, 128), (16, 16), (128, 256))
    clear = over[:, 64:192] == 0
    inside = np.where(np.arange(256) < 128, 90, 160)[None, 64:192, None]
    if clear.any():
        assert np.abs(drawn[:, 64:192] - inside)[clear].max() <= 1
    assert np.abs(drawn[:, 64:192] - inside)[over[:, 64:192] > 0.9].max() > 20


def test_the_path_can_be_a_folder_or_one_file(place, capfd):
    code, out, _ = run(capfd, "colors.bin", "photos/a.png", "photos/b.jpg", "--explain-out", "drawn/here")
    assert code == 0
    assert out[1] == "  what spoke for " + out[0].split()[1] + ": drawn/here/a.png.explain.png"
    assert sorted(p.name for p in (place / "drawn" / "here").iterdir()) == ["a.png.explain.png", "b.jpg.explain.png"]
    (place / "more").mkdir()
    (place / "photos" / "a.png").rename(place / "more" / "a.png")
    cv2.imwrite("photos/a.png", np.zeros((20, 20, 3), np.uint8))
    assert run(capfd, "colors.bin", "photos", "more", "--explain-out", "both")[0] == 0
    assert sorted(p.name for p in (place / "both").iterdir()) == [
        "a.png-2.explain.png", "a.png.explain.png", "b.jpg.explain.png"]  # fmt: skip
    code, out, err = run(capfd, "colors.bin", "photos", "--explain-out", "one.png")
    assert code == 1
    assert err == ["edge-infer: photos/b.jpg: one.png has been drawn for another picture; give --explain-out a folder."]
    assert [p.name for p in place.iterdir() if "tmp" in p.name] == []


def test_what_cannot_be_explained_or_written_is_one_sentence(place, capfd):
    code, out, err = run(capfd, "mlp.bin", "photos/a.png", "--explain")
    assert (code, out) == (1, [])
    assert err == ["edge-infer: mlp.bin: --explain draws on pictures, but this model takes values."]
    (place / "flat.bin").write_bytes(
        bins.Bin((4, 4, 1), bins.GRAY).add("flatten").add("linear", out_features=3).bytes()
    )
    code, out, err = run(capfd, "flat.bin", "photos/a.png", "--explain")
    assert (code, out) == (1, [])
    assert err == ["edge-infer: flat.bin has no convolution, so its answers come from no place of a picture."]
    (place / "file").write_text("")
    code, _, err = run(capfd, "colors.bin", "photos/a.png", "--explain-out", "file/below")
    assert code == 1
    reason = "could not be written (Not a directory); name a folder by --explain-out."
    assert err == [f"edge-infer: file/below/a.png.explain.png {reason}"]
    code, _, err = run(capfd, "colors.bin", "--info", "--explain")
    assert (code, err[-1].endswith("--explain needs a picture")) == (2, True)
