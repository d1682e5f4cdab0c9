"""What a trained net says of pictures of another kind: how many it names a class, by its own rule for `unknown` and
by a threshold on the largest softmax probability that may lose as many right answers.

    python benchmarks/strangers.py runs/mnist_cnn clothes=fashion-mnist things=cifar10 [--data-dir DIR] [--most 10000]

Each stranger is NAME=SOURCE: a known set, a folder of photos (with or without folders in it) or an .npz; its test set
where it has one. Pictures are brought to the net's input as a device would. Both rules are fitted on what the run held
out, at 1, 2 and 5 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from litenet.pyruntime import decode
from litenet.pyruntime.errors import ImageError
from litenet.pyruntime.preprocess import Preprocessing
from litenet.trainer import checkpoint, unknown
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.data.load import holds_photos, open_source
from litenet.trainer.data.photos import PhotoOptions
from litenet.trainer.data.pictures import rules, to_frames
from litenet.trainer.report.evaluate import weights_of
from litenet.trainer.report.samples import chosen_samples
from litenet.trainer.session import frame_for
from litenet.trainer.settings import Settings
from litenet.trainer.trainer import Trainer

SHARES = (0.01, 0.02, 0.05)


class Net:
    """A run's best checkpoint, and the samples it knows."""

    def __init__(self, run: Path, data_dir: str | None):
        saved = checkpoint.load(run)
        self.blueprint, self.settings, data = saved.blueprint, Settings(**saved.meta["settings"]), saved.meta["data"]
        mean, std = tuple(data["mean"]), tuple(data["std"])
        self.trainer = Trainer(self.blueprint, 100, self.settings.seed, mean, std)
        weights = {f"weights/{name}": array for name, array in weights_of(saved).items()}
        self.trainer.load_arrays(weights, saved.where, optimizer=False)
        photos = PhotoOptions(**(data.get("photos") or {}))
        where = {} if data_dir is None else {"cache": Path(data_dir)}
        splits = open_source(data["source"], photos=photos, frame=frame_for(self.blueprint), **where)
        self.held, self.test = (self.framed(chosen_samples(splits, part, self.settings)[0])
                                for part in ("validation", "test"))  # fmt: skip

    def framed(self, ds: Dataset) -> Dataset:
        return to_frames(ds, self.blueprint.preprocessing, self.trainer.graph.input_shape)

    def scores(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([self.trainer.infer(x[at : at + 100]) for at in range(0, len(x), 100)])

    def strangers(self, source: str, most: int, data_dir: str | None) -> np.ndarray:
        """Frames uint8 (N, *input)."""
        path, (H, W, C) = Path(source), self.trainer.graph.input_shape
        if holds_photos(source) or loose(path):
            recipe, out = Preprocessing(**rules(self.blueprint.preprocessing, C)), []
            for file in sorted(p for p in path.rglob("*") if p.is_file())[:most]:
                try:
                    pixels, layout = decode(file)
                except ImageError:
                    continue
                out.append(recipe.frame(pixels, H, W, layout))
            return np.stack(out)
        splits = open_source(source, **({} if data_dir is None else {"cache": Path(data_dir)}))
        found = splits.test or splits.train
        return self.framed(found.take(np.arange(min(most, len(found.x))))).x


def loose(path: Path) -> bool:
    """Whether this is a folder of pictures without classes: no other data set is one."""
    names = ("*.npz", "*ubyte*", "*batch*")
    return path.is_dir() and not any(next(path.rglob(name), None) for name in names)


def probability(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).max(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("strangers", nargs="+", metavar="NAME=SOURCE")
    parser.add_argument("--data-dir")
    parser.add_argument("--most", type=int, default=10_000)
    options = parser.parse_args()
    net = Net(options.run, options.data_dir)
    z, y, tz, ty = net.scores(net.held.x), net.held.y, net.scores(net.test.x), net.test.y
    made = [net.scores(x) for x in unknown.strangers(net.held.x[: unknown.MOST], net.settings.seed)]
    others = {}
    for word in options.strangers:
        name, _, source = word.partition("=")
        others[name] = net.scores(net.strangers(source, options.most, options.data_dir))
    print(f"{options.run}: {len(y):,} held out, {len(ty):,} tested, {100 * (tz.argmax(1) == ty).mean():.2f} % right; "
          + ", ".join(f"{len(found):,} {name}" for name, found in others.items()))  # fmt: skip
    for share in SHARES:
        fitted = unknown.fit(z, y, made, share)
        least = np.quantile(probability(z)[z.argmax(1) == y], share)
        used = ", ".join(name for name in unknown.MEASURES if name in fitted)
        for rule, given in ((used, lambda q, f=fitted: unknown.accepted(q, f)),
                            ("softmax", lambda q, p=least: probability(q) >= p)):  # fmt: skip
            own = given(tz)
            right = (tz.argmax(1) == ty)[own].mean()
            named = ", ".join(f"{name} {100 * given(found).mean():.1f} %" for name, found in others.items())
            said = f"own kind unknown {100 * (1 - own.mean()):5.1f} %, right on the others {100 * right:6.2f} %"
            print(f"{100 * share:3.0f} % {rule:28} {said}; strangers named: {named}")


if __name__ == "__main__":
    main()
