"""One training run from start to end: blueprint, data, settings, trainer, run folder. What edge-train drives."""

from __future__ import annotations

import csv
import io
import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import balance, checkpoint, embedding, lock, loop
from . import blueprint as blueprints
from .base import BaseTrainer, Evaluation, fits
from .data.augment import check_classes, check_pictures
from .data.dataset import Dataset, Splits, mean_std, split
from .data.known import KNOWN
from .data.load import open_source
from .data.photos import Frame, PhotoOptions, summary
from .data.pictures import to_frames
from .errors import UserError
from .fits import find_rate
from .graph import build, nhwc
from .int8.qat import Start
from .machine import Machine, fitted
from .settings import Settings, option, settings_for
from .trainer import Trainer
from .transfer import Origin, transfer

if TYPE_CHECKING:
    from .data.preflight import Preflight
    from .device_trainer import DeviceTrainer


@dataclass
class Session:
    """A run ready to go (again)."""

    folder: Path
    blueprint: blueprints.Blueprint
    settings: Settings
    trainer: Trainer | DeviceTrainer
    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    data: dict[str, Any]
    progress: loop.Progress
    remembered: dict[str, Any]  # about the machine: what a resumed run needs for the same bits
    notes: list[str]
    preflight: Preflight | None = None  # what was found in a folder of photos
    unseen: dict[str, Dataset] | None = None  # of an embedding: the classes set apart

    def run(self, events: loop.Events, save_every: int = 0, debug_nan: bool = False) -> str:
        """Train; checkpoints, metrics and log go to the folder. Returns "done", "early" or "stopped". debug_nan: see
        debug_nan.py."""
        save, epoch = events.save, events.epoch

        def saved(which: str) -> None:
            self.save(which)
            save(which)

        def ended(progress: loop.Progress, row: dict[str, Any]) -> None:
            self.write_metrics()
            shown = {k: v for k, v in row.items() if v is not None and k != "layers"}
            self.log("epoch " + ", ".join(f"{k} {_short(v)}" for k, v in shown.items()))
            if text := loop.alarm_text(row, self.settings.clip_norm is not None):
                self.log(f"alarm: {text}")
            epoch(progress, row)

        hooked = replace(events, save=saved, epoch=ended)
        watch = None
        if debug_nan:
            from .debug_nan import Watch

            watch = Watch(self.trainer, self.progress, self.folder)
        before = self._memory()
        self.log(f"start at epoch {self.progress.epoch + 1}, batch {self.progress.batch}")
        for note in self.notes:
            self.log(note)
        if watch is not None:
            self.log(f"--debug-nan keeps a copy of {watch.state.bytes:,} bytes beside the arena")
        try:
            result = loop.fit(
                self.trainer, self.train, self.validation, self.settings, self.progress, hooked, save_every, watch
            )
        except UserError as error:
            with suppress(UserError):  # no room for a line either
                self.log(f"end: {error}")
            raise
        if before is not None and (after := self._memory()) is not None:
            grown = before[1] - after[1]
            self.log(f"memory: {after[0] - before[0]} allocations since the start, {grown:,} bytes less are free")
        self.log(f"end: {result}")
        return result

    def _memory(self) -> tuple[int, int] | None:
        """(allocations made, bytes free) of the card, or None on the CPU."""
        device = getattr(self.trainer, "device", None)
        return None if device is None else (device.allocations, device.free_bytes())

    def write_config(self) -> None:
        config = {"blueprint": self.blueprint.resolved, "settings": self.settings.as_dict(), "data": self.data}
        write_text(self.folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    def save(self, which: str) -> None:
        """Write best.npz or last.npz. Raises UserError instead where a value is not finite."""
        arrays = self.trainer.state_arrays()
        self._check_finite(arrays)
        meta = {
            "blueprint": self.blueprint.resolved,
            "settings": self.settings.as_dict(),
            "data": self.data,
            "progress": self.progress.as_dict() | {"t": self.trainer.optimizer.t},
            "machine": self.remembered,
        } | ({"int8": self.trainer.int8} if hasattr(self.trainer, "int8") else {})
        checkpoint.save(self.folder / f"{which}.npz", arrays, meta)

    def _check_finite(self, arrays: dict[str, np.ndarray]) -> None:
        """An update may overflow while loss and gradients are finite; the next loss would say it, after the save."""
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                value = array[~np.isfinite(array)][0]
                raise UserError(
                    f"{name} became {value} by update {self.progress.updates}, so nothing was saved.\n"
                    "  Lower the learning rate, or add --clip-norm 1; --debug-nan tells more. What was saved before is "
                    "kept."
                )

    def test_best(self, scores: bool = False) -> Evaluation | None:
        """Evaluate the best checkpoint on the test set, if there is one; the trainer then holds its weights. scores:
        also keep what the net said of each sample."""
        if self.test is None:
            return None
        best = checkpoint.load(self.folder)
        self.trainer.load_arrays(best.arrays, best.where)
        found = self.trainer.evaluate(self.test.x, self.test.y, scores)
        result = {"checkpoint": Path(best.where).name, "loss": found.loss, "accuracy": found.accuracy}
        result["samples"] = len(self.test.x)
        write_text(self.folder / "test.json", json.dumps(result, indent=2) + "\n")
        self.log(f"test loss {found.loss:.5f}, accuracy {found.accuracy}")
        return found

    def write_metrics(self) -> None:
        rows = self.progress.history
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        text = io.StringIO()
        columns = [key for key in rows[0] if key != "layers"]
        table = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n", restval="")
        table.writeheader()
        table.writerows(rows)
        write_text(self.folder / "metrics.csv", text.getvalue())

    def log(self, line: str) -> None:
        path = self.folder / "log.txt"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
        except OSError as error:
            raise checkpoint.unwritten(path, error) from None


def start(
    blueprint: blueprints.Blueprint,
    source: str,
    given: dict[str, Any],
    folder: Path | None,
    machine: Machine | None = None,
    photos: PhotoOptions | None = None,
    class_weights: str | list[float] | None = None,
    origin: Origin | None = None,
    **fetch: Any,
) -> Session:
    """A new run: everything is checked, and planned, before the folder is made. photos: how a folder of pictures is
    split and where its frames are kept; the seed is the settings'. class_weights: numbers or "auto", which overrule the
    blueprint's. origin: weights to begin with, and the pixels' mean and deviation they know."""
    settings = settings_for(blueprint, given)
    if folder is not None and any((folder / name).exists() for name in ("best.npz", "last.npz")):
        raise UserError(
            f"{folder} holds a run already.\n  Go on with it by --resume {folder}, or choose another folder with --out."
        )
    photos = replace(photos or PhotoOptions(), seed=settings.seed)
    found = open_source(source, photos=photos, frame=frame_for(blueprint), **fetch)
    splits, unseen = _apart(_framed(found, blueprint), settings, blueprint.where)
    mean, std = _normalisation(blueprint, splits.train, origin)
    data = {
        "source": _lasting(source),
        "folder": _lasting(fetch["cache"]) if fetch.get("cache") else None,
        "name": splits.train.name,
        "hash": found.train.hash(),
        "samples": len(splits.train.x),
        "stored_shape": list(found.train.x.shape[1:]),
        "shape": list(splits.train.x.shape[1:]),
        "picture": splits.train.is_picture,
        "photos": None if found.preflight is None else photos.lasting(),
        "labels": list(blueprint.labels or splits.train.labels or []) or None,
        "mean": mean,
        "std": std,
    } | ({"weights_from": origin.where} if origin is not None else {})
    folder, search = folder or free_folder(blueprint.name), settings.learning_rate == blueprints.AUTO
    if search:
        settings = replace(settings, learning_rate=blueprints.start_rate(blueprint))
    session = _assemble(
        blueprint, settings, splits, data, folder, loop.Progress(), machine or Machine(), class_weights=class_weights
    )
    session.unseen = unseen
    if origin is not None and (machine is None or machine.qat is None):
        session.notes += transfer(session.trainer, origin)
    if search:
        find_rate(session)
    return session


def resume(
    path: Path, given: dict[str, Any], source: str | None = None, machine: Machine | None = None,
    photos: PhotoOptions | None = None, **fetch: Any,
) -> Session:  # fmt: skip
    """The run of a folder (or of a checkpoint in it), to be continued with its own settings and data. The data may
    have moved: `source` is then where they are now. photos: only where they are kept counts."""
    folder = path if path.is_dir() else path.parent
    if folder.is_dir():
        lock.acquire(folder)
    if path.is_dir():  # killed after its first epoch a run may have saved the best, and not yet the last
        path = next((p for p in (folder / "last.npz", folder / "best.npz") if p.exists()), folder / "last.npz")
    saved = checkpoint.load(path)
    meta = saved.meta
    if not meta.get("progress"):
        raise UserError(f"{saved.where} holds weights only.\n  Resume from a run folder or its last.npz.")
    changed = sorted(option(k) for k, v in given.items() if v is not None and k != "epochs")
    if changed:
        raise UserError(
            f"--resume continues with the run's own settings, but {', '.join(changed)} was given anew.\n"
            "  Leave it out, or start a new run."
        )
    settings = Settings(**meta["settings"])
    if given.get("epochs") is not None:
        settings = replace(settings, epochs=blueprints.check_train("epochs", given["epochs"], option("epochs")))
    data = meta["data"] | ({"source": _lasting(source)} if source is not None else {})
    kept = PhotoOptions(**(data.get("photos") or {}))
    photos = replace(kept, cache=photos.cache or kept.cache, workers=photos.workers) if photos is not None else kept
    more: dict[str, Any] = {"photos": photos, "frame": frame_for(saved.blueprint)}
    more |= {"cache": data.get("folder")} | {k: v for k, v in fetch.items() if v}
    splits = open_source(data["source"], **more)
    if splits.train.hash() != data["hash"]:
        raise UserError(
            f"{data['source']}: the data are not those the run in {folder} was started with "
            f"(hash {splits.train.hash()}, expected {data['hash']}).\n"
            "  Bring the old data back (--data tells where they are now), or start a new run."
        )
    splits, unseen = _apart(_framed(splits, saved.blueprint), settings, saved.where)
    values = dict(meta["progress"])
    t = values.pop("t")
    progress = loop.Progress.from_dict(values)
    machine = machine or Machine()
    if "int8" in meta:
        machine = replace(machine, qat=Start(saved, meta["int8"]["quants"]))
    session = _assemble(saved.blueprint, settings, splits, data, folder, progress, machine, meta.get("machine"))
    session.unseen = unseen
    session.trainer.load_arrays(saved.arrays, saved.where)
    session.trainer.optimizer.t = t
    session.trainer.micro_step = session.progress.micro_step
    if path.name == "best.npz" and not (folder / "last.npz").exists():
        session.save("last")
    return session


def preview(
    blueprint: blueprints.Blueprint, source: str, given: dict[str, Any], path: Path,
    photos: PhotoOptions | None = None, **fetch: Any,
) -> None:  # fmt: skip
    """Write a PNG file that shows what the net would see in training (data/preview.py). Makes no run folder."""
    from .data.preview import preview as draw

    if path.suffix.lower() != ".png":
        raise UserError(f"{path}: the preview is a PNG picture.\n  Give it a name that ends in .png.")
    settings = settings_for(blueprint, given)
    photos = replace(photos or PhotoOptions(), seed=settings.seed)
    found = _framed(open_source(source, photos=photos, frame=frame_for(blueprint), **fetch), blueprint)
    train = found.train
    mean, std = _normalisation(blueprint, train)
    if settings.validation_split and found.validation is None:
        train = split(train, settings.validation_split, settings.seed)[0]
    spec = settings.make_augmentation()
    if spec is not None:
        check_pictures(spec, train.shape, blueprint.where)
    labels, bgr = blueprint.labels or train.labels, blueprint.preprocessing.get("color") == "bgr"
    data = draw(train, spec, settings.seed, settings.batch_size, labels, mean, std, bgr)
    checkpoint.write_atomically(path, lambda file: file.write(data))


def frame_for(blueprint: blueprints.Blueprint) -> Frame:
    """What photos are made into for this net."""
    return Frame(nhwc(blueprint.input_shape), blueprint.preprocessing, blueprint.labels)


def _framed(splits: Splits, blueprint: blueprints.Blueprint) -> Splits:
    """Pictures fitted to the net's input by the runtime's own preprocessing, as on the device; photos are already."""
    if splits.preflight is not None:
        return splits
    shape, wishes = nhwc(blueprint.input_shape), blueprint.preprocessing
    test = splits.test
    return Splits(to_frames(splits.train, wishes, shape), None if test is None else to_frames(test, wishes, shape))


def _apart(splits: Splits, settings: Settings, where: str) -> tuple[Splits, dict[str, Dataset] | None]:
    """Of an embedding, what is trained on, and the classes that are not."""
    if settings.embedding is None:
        return splits, None
    return embedding.set_apart(splits, settings.embedding, settings.seed, where)


def _lasting(source: Any) -> str:
    """A path that holds from any folder; a known set's name stays."""
    path = Path(source).expanduser()
    return str(path.resolve()) if str(source) not in KNOWN and path.exists() else str(source)


def _assemble(
    blueprint: blueprints.Blueprint,
    settings: Settings,
    splits: Splits,
    data: dict[str, Any],
    folder: Path,
    progress: loop.Progress,
    machine: Machine,
    saved: dict[str, Any] | None = None,
    class_weights: str | list[float] | None = None,
) -> Session:
    train, validation = splits.train, None
    if splits.validation is not None:
        validation = splits.validation
    elif settings.validation_split:
        train, validation = split(train, settings.validation_split, settings.seed)
    train = balance.share(train, settings.fraction, settings.seed)
    balance.check_sampling(settings, train, blueprint.where)
    blueprint = balance.weighted(blueprint, class_weights, train, build(blueprint).output_shape[-1])
    common: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "mean": tuple(data["mean"]) if data["mean"] else None,
        "std": tuple(data["std"]) if data["std"] else None,
        "learning_rate": settings.learning_rate,
        "classes": train.classes > 0,
        "aids": settings.aids,
    }
    base = BaseTrainer()
    base.set_up(blueprint, settings.seed, common["classes"], settings.aids)
    _check_fit(base, splits.train, data)
    if (spec := settings.make_augmentation()) is not None:
        check_pictures(spec, train.shape, blueprint.where)
        check_classes(spec, train.classes, blueprint.where)
    if settings.embedding is not None:
        embedding.check_layer(base, settings.embedding["layer"])
    sets = [s for s in (train, validation, splits.test) if s is not None]
    made = fitted(machine, blueprint, settings, sets, common, saved)
    settings = made.settings
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} could not be made: {error.strerror}.\n  Choose another folder with --out.") from None
    lock.acquire(folder)
    if splits.preflight is not None:
        parts = Splits(train, splits.test, validation)
        write_text(folder / "photos.json", json.dumps(summary(splits.preflight, parts), indent=1) + "\n")
    session = Session(
        folder, blueprint, settings, made.trainer, train, validation, splits.test, data, progress, made.remembered,
        made.notes, splits.preflight,
    )  # fmt: skip
    session.write_config()
    return session


def _check_fit(trainer: BaseTrainer, train: Dataset, data: dict[str, Any]) -> None:
    """Input and number of classes, before anything runs."""
    where, shape = trainer.blueprint.where, trainer.graph.input_shape
    if not fits(train.shape, shape):
        found = list(train.shape)
        raise UserError(
            f"{where}: input_shape is {list(trainer.blueprint.input_shape)}, {prod(shape)} values, but a sample of "
            f"{train.name} is {' x '.join(map(str, found))} = {prod(found)} values.\n"
            f"  Write \"input_shape\": {[found[-1], *found[:-1]] if len(found) == 3 else found}."
        )
    if not train.classes:
        _check_values(trainer, train)
    else:
        outputs, classes = trainer.graph.output_shape[-1], int(train.y.max()) + 1
        yes_or_no = trainer.loss.name == "bce" and outputs == 1 and classes <= 2
        if outputs < classes and not yes_or_no:
            raise UserError(
                f"{where}: the last layer has {outputs} outputs, but {train.name} has {classes} classes.\n"
                f"  Write \"out_features\": {classes} in the last layer."
            )
        given = trainer.blueprint.labels
        if given is not None and len(given) != outputs and not yes_or_no:
            raise UserError(
                f"{where}: labels has {len(given)} names, but the last layer has {outputs} outputs.\n"
                "  Give one name for each output."
            )
        if data["labels"] and len(data["labels"]) != outputs:
            data["labels"] = None if len(data["labels"]) > outputs else data["labels"] + [
                str(i) for i in range(len(data["labels"]), outputs)
            ]


def _check_values(trainer: BaseTrainer, train: Dataset) -> None:
    """Where the answers are values, the loss takes values, and the net puts out as many."""
    where, outputs, values = trainer.blueprint.where, prod(trainer.graph.output_shape), train.y[0].size
    if trainer.loss.classification:
        raise UserError(
            f"{where}: the loss is {trainer.loss.name}, but the answers of {train.name} are values, no class numbers.\n"
            '  Write "loss": "mse", or store class numbers as whole numbers.'
        )
    if outputs != values:
        raise UserError(
            f"{where}: the last layer gives {outputs} values, but an answer of {train.name} has {values}.\n"
            f'  Write "out_features": {values} in the last layer.'
        )


def _normalisation(
    blueprint: blueprints.Blueprint, train: Dataset, origin: Origin | None = None
) -> tuple[list[float] | None, list[float] | None]:
    """Per-channel mean and standard deviation in pixel units: the blueprint's, those that the weights to begin with
    were trained with, or those of the training pictures."""
    given = blueprint.preprocessing
    channels = train.x.shape[-1] if train.x.ndim == 4 else 1
    if train.x.dtype != "uint8":
        return None, None
    mean, std = ([float(round(v, 4)) for v in measured] for measured in mean_std(train))
    if origin is not None and origin.mean and origin.std and len(origin.mean) == channels:
        mean, std = origin.mean, origin.std
    out = []
    for key, found in (("mean", mean), ("std", std)):
        value = given.get(key, found)
        value = [float(v) for v in (value if isinstance(value, (list, tuple)) else [value] * channels)]
        if len(value) != channels:
            raise UserError(
                f"{blueprint.where}: preprocessing.{key} has {len(value)} numbers, but a picture of {train.name} has "
                f"{channels} channels.\n  Give one number, or {channels}."
            )
        out.append(value)
    return out[0], [v if v > 0 else 1.0 for v in out[1]]


def free_folder(name: str, root: Path = Path("runs")) -> Path:
    """runs/NAME, or runs/NAME-2 and so on when that is taken."""
    folder, n = root / name, 1
    while folder.exists():
        n += 1
        folder = root / f"{name}-{n}"
    return folder


def write_text(path: Path, text: str) -> None:
    checkpoint.write_atomically(path, lambda file: file.write(text.encode()))


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
