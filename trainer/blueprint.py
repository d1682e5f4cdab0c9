"""Blueprints: a network and how to train it, read from JSON or YAML and checked word by word.

    blueprint = load("mnist_cnn.json")
    blueprint.layers[0].type, blueprint.layers[0].fields, blueprint.loss, blueprint.train

A mistake is a UserError with file, layer and line, what was found, what is expected, and what to do. A key
whose value is null counts as not written. Shapes are the graph's business: nothing here knows what one layer
gives the next.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import blueprint_words as words
from . import losses, optimizers, schedules
from .blueprint_layers import Layer, check_name, read_layers
from .blueprint_text import Node, fail, read
from .data.augment import Augmentation, check_mixing, check_pictures, read_augmentation
from .fields import Field, Options, check, check_all, entries_of, read_options, show, unknown

__all__ = ["Blueprint", "Layer", "Options", "check_train", "load", "parse", "start_rate", "train_settings"]

MAX_BYTES = 1 << 18
MAX_VALUES = 1 << 28  # of one input: 1 GiB as float32

AUTO = "auto"
TRAIN = (
    Field("epochs", "whole", 1, 1_000_000, default=10, doc="how often every sample is seen"),
    Field("batch_size", "whole", 1, 1 << 20, default=64, doc="samples of one forward and backward pass"),
    Field("learning_rate", "number", 1e-12, 1e3, words=(AUTO,),
          doc="how far one update goes; auto: found by short tests"),
    Field("warmup", "number", 0, 1e6, default=0.0, doc=f"how long the rate rises, {schedules.AMOUNT}"),
    Field("clip_norm", "number", 1e-12, 1e12, doc="largest norm of all gradients together"),
    Field("clip_value", "number", 1e-12, 1e12, doc="largest size of any one gradient value"),
    Field("accumulation", "whole", 1, 65536, default=1, doc="batches whose gradients make one update"),
    Field("validation_split", "number", 0, 0.9, default=0.1, doc="share of the samples held out"),
    Field("seed", "whole", 0, 2**64 - 1, default=0, doc="what all random numbers follow from"),
    Field("ema", "number", 0, 0.999999, doc="decay of a moving average of the weights, which is then what counts"),
    Field("sampling", "choice", default="each", words=("each", "balanced"),
          doc="whether an epoch has every sample once, or draws all classes equally often"),
    Field("fraction", "number", 1e-6, 1, default=1.0, doc="share of the training samples that is used"),
    Field("time_limit", "number", 1, 1e9, doc="seconds that training may take; the schedule is scaled to them"),
    Field("unknown", "number", 0, 0.5, default=0.02,
          doc="share of the right answers on held-out samples that the net may call unknown; 0: it always answers"),
    Field("layer_statistics", "flag", default=False, doc="whether each layer is measured at the end of each epoch"),
)  # fmt: skip
EARLY_STOPPING = (
    Field("patience", "whole", 1, 1_000_000, default=5, doc="epochs without improvement before training stops"),
    Field("min_delta", "number", 0, 1e6, default=0.0, doc="the least change that is an improvement"),
    Field("monitor", "choice", default="loss", words=("loss", "accuracy"), doc="what is watched, in validation"),
)
EMBEDDING = (
    Field("layer", "text", required=True, doc="the layernorm whose output is what the .bin puts out, of length one"),
    Field("test_classes", "number", 0.01, 0.9, default=0.25, doc="share of the classes that only measure it"),
    Field("threshold_classes", "number", 0.01, 0.9, default=0.15, doc="share that fixes what counts as the same"),
)
PREPROCESSING = (
    Field("resize", "choice", words=("nearest", "bilinear", "area"), doc="how pixels are resampled"),
    Field("fit", "choice", words=("stretch", "crop", "letterbox"), doc="how a picture fits the input"),
    Field("color", "choice", words=("none", "gray", "rgb", "bgr"), foreign=words.COLOR, doc="channel order"),
    Field("invert", "choice", words=("never", "always", "auto"), doc="whether dark and bright change places"),
    Field("mean", "numbers", 0, 255, counts=(1, 2, 3), doc="subtracted from pixels, which run from 0 to 255"),
    Field("std", "numbers", 1, 65535, counts=(1, 2, 3), doc="what pixels less the mean are divided by"),
    Field("pad", "whole", 0, 255, doc="grey value of the bars of a letterbox"),
)
BESIDE_OPTIMIZER = ("momentum", "weight_decay")  # settings of the optimizer that may stand at the top as well
KEYS = (
    *("name", "description", "input_shape", "preprocessing", "labels", "layers", "loss", "optimizer"),
    *BESIDE_OPTIMIZER,
    *("schedule", "early_stopping", "augmentation", "freeze", "rates", "embedding"),
    *(f.name for f in TRAIN),
)


@dataclass(frozen=True)
class Blueprint:
    """A checked blueprint. Two are equal when they say the same, wherever they stand.

    `train` holds those keys of TRAIN that were written, schedule as Options, early_stopping as a dict with all of its
    keys, and augmentation as one with those that were written. momentum and weight_decay are in `optimizer`.
    parse(json.dumps(resolved)) is equal.
    """

    name: str
    input_shape: tuple[int, ...]  # as written: (C, H, W), (T, D) or (n,)
    layers: tuple[Layer, ...]
    loss: Options
    optimizer: Options
    train: dict[str, Any]
    preprocessing: dict[str, Any]
    labels: tuple[str, ...] | None
    where: str = field(compare=False)  # the file's name
    resolved: dict[str, Any]  # JSON-able, every value in its kind


def load(path: str | Path) -> Blueprint:
    """The blueprint in a file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        fail(str(path), "there is no such file", _nearby(path))
    except IsADirectoryError:
        fail(str(path), "this is a folder", "Name the blueprint in it.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fail(str(path), f"the file cannot be read ({reason})", "Check the path and its permissions.")
    return parse(_decode(data, path.name), path.name, path.stem)


def _nearby(path: Path) -> str:
    """A remedy for a missing file: the blueprint beside it whose name is most like it."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".json", ".yaml", ".yml")]
    except OSError:
        return f"There is no folder {path.parent} either."
    near = difflib.get_close_matches(path.name, names, 1, 0.5)
    return f"Did you mean {path.parent / near[0]}?" if near else "Check the path."


def _decode(data: bytes, where: str) -> str:
    """The text of a file; a file of another kind is named."""
    remedy = "A blueprint is a short text, JSON or YAML."
    kinds = {b"LNET": "a LiteNet model", b"PK\x03\x04": "an archive, such as .npz", b"\x89PNG": "a picture"}
    for start, kind in kinds.items():
        if data.startswith(start):
            fail(where, f"this is {kind}, not a blueprint", remedy)
    if len(data) > MAX_BYTES:
        fail(where, f"the file is larger than {MAX_BYTES >> 10} KiB", remedy)
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(f"{where}, line {line}", "the text is not UTF-8", f"Save it as UTF-8. {remedy}")
    if "\0" in text:
        fail(where, "the file holds zero bytes, so it is no text", remedy)
    return text


def parse(text: str, where: str = "blueprint", default_name: str = "model") -> Blueprint:
    """The blueprint in a text. Messages call it `where`; default_name is its name where it gives none."""
    top = read(text, where)
    if top.value is None:
        fail(where, "the blueprint is empty", "It needs at least input_shape and layers.")
    entries = entries_of(top, "the blueprint", where)
    for key, item in entries.items():
        if key not in KEYS:
            unknown(_at(item, where), "the key", key, KEYS, words.BLUEPRINT_KEY, "A blueprint takes")
    for key, example in (("input_shape", "[1, 28, 28]"), ("layers", '["flatten", ...]')):
        if key not in entries:
            fail(where, f"{key} is missing", f'Add "{key}": {example}, for example.')

    name = "".join(c if c.isalnum() or c in "_-." else "_" for c in default_name)[:64] or "model"
    if "name" in entries:
        name = check_name(entries["name"], _at(entries["name"], where), "_-.")
    shape = _input_shape(entries["input_shape"], where)
    preprocessing = _preprocessing(entries.get("preprocessing"), shape, where)
    labels = _labels(entries.get("labels"), where)
    layers = read_layers(entries["layers"], where, "layers", {})
    loss = _loss(entries.get("loss"), where)
    optimizer, rate = _optimizer(entries, where)
    train = _train(entries | rate, shape, where)
    check_mixing(Augmentation(**train.get("augmentation") or {}), loss.type, where)

    resolved: dict[str, Any] = {"name": name}
    if "description" in entries:
        at = _at(entries["description"], where)
        resolved["description"] = check(Field("description", "text"), entries["description"], at)
    resolved["input_shape"] = list(shape)
    if preprocessing:
        resolved["preprocessing"] = preprocessing
    if labels is not None:
        resolved["labels"] = list(labels)
    resolved["layers"] = [layer.plain() for layer in layers]
    resolved |= {"loss": loss.plain(), "optimizer": optimizer.plain()}
    resolved |= {key: value.plain() if isinstance(value, Options) else value for key, value in train.items()}
    return Blueprint(name, shape, layers, loss, optimizer, train, preprocessing, labels, where, resolved)


def _at(node: Node, where: str) -> str:
    return f"{where}, line {node.line}"


def _input_shape(node: Node, where: str) -> tuple[int, ...]:
    doc = "[channels, height, width], [steps, values] or [values], without the batch"
    shape = check(Field("input_shape", "wholes", 1, 1 << 24, counts=(1, 2, 3), doc=doc), node, _at(node, where))
    shape = tuple(shape) if isinstance(shape, list) else (shape,)
    if math.prod(shape) > MAX_VALUES:
        sentence = f"input_shape {list(shape)} makes {math.prod(shape)} values, but {MAX_VALUES} is the limit"
        fail(_at(node, where), sentence, "Make the input smaller.")
    return shape


def _preprocessing(node: Node | None, shape: tuple[int, ...], where: str) -> dict[str, Any]:
    """Checked against the channels of the input."""
    if node is None:
        return {}
    at = f"{_at(node, where)} (preprocessing)"
    entries = entries_of(node, "preprocessing", at)
    if "std" in entries:
        std = entries["std"].plain()
        numbers = std if isinstance(std, list) else [std]
        small = [number for number in numbers if isinstance(number, float) and 0 < number < 1]
        if small:
            remedy = f"Multiply mean and std by 255: {small[0]} becomes {small[0] * 255:.5g}."
            fail(at, f"std is {show(std)}, but pixels run from 0 to 255, not from 0 to 1", remedy)
    if "invert" in entries and isinstance(entries["invert"].value, bool):
        entries["invert"] = Node("always" if entries["invert"].value else "never", node.line)
    found = check_all(PREPROCESSING, entries, at, "preprocessing", words.OPTION)
    channels = shape[0] if len(shape) == 3 else None
    wanted = {"gray": 1, "rgb": 3, "bgr": 3}.get(found.get("color", "none"))
    if wanted is not None and channels != wanted:
        sentence = f"color is {found['color']}, but input_shape is {list(shape)}"
        fail(at, sentence, f"Pictures in {found['color']} have the shape [{wanted}, height, width].")
    for key in ("mean", "std"):
        count = len(found[key]) if isinstance(found.get(key), list) else 1
        if count > 1 and channels not in (None, count):
            sentence = f"{key} has {count} numbers, but input_shape {list(shape)} has {channels} channels"
            fail(at, sentence, "Give one number, or one for each channel.")
    return found


def _labels(node: Node | None, where: str) -> tuple[str, ...] | None:
    if node is None:
        return None
    at = _at(node, where)
    if not isinstance(node.value, list) or not node.value:
        sentence = f"labels is {show(node.plain())}, but a list of names is expected"
        fail(at, sentence, 'Write ["cat", "dog"], for example.')
    found: dict[str, None] = {}  # in order, and quick to look up
    for item in node.value:
        label = check(Field("a label", "text"), item, _at(item, where))
        if not label.isprintable() or len(label) > 200:
            sentence = f"the label {show(label)} is too long or cannot be printed"
            fail(_at(item, where), sentence, "Use at most 200 printable characters.")
        if label in found:
            fail(_at(item, where), f"the label {show(label)} stands twice", "Give each class its own label.")
        found[label] = None
    return tuple(found)


def _loss(node: Node | None, where: str) -> Options:
    if node is None:
        return Options("cross_entropy")
    options = read_options(node, losses.FIELDS, "loss", _at(node, where), words.LOSS)
    losses.make_loss(options, _at(node, where))
    return options


def _optimizer(entries: Mapping[str, Node], where: str) -> tuple[Options, dict[str, Node]]:
    """The optimizer, with settings that stand beside it; and the learning rate, if it stands inside."""
    node = entries.get("optimizer", Node("sgd", 1))
    at = _at(node, where)
    options = read_options(node, optimizers.FIELDS, "optimizer", at, words.OPTIMIZER, also=("learning_rate",))
    inside = entries_of(node, "optimizer", at) if isinstance(node.value, dict) else {}
    known = {f.name: f for f in optimizers.FIELDS[options.type]}
    settings = dict(options.fields)
    for key in (*BESIDE_OPTIMIZER, "learning_rate"):
        if key not in entries:
            continue
        here = _at(entries[key], where)
        if key in inside:
            fail(here, f"{key} is also given in the optimizer, line {inside[key].line}", "Keep one of the two.")
        if key in known:
            settings[key] = check(known[key], entries[key], here)
        elif key in BESIDE_OPTIMIZER:
            fail(
                here,
                f"{key} is given, but the optimizer is {options.type}",
                f"{options.type} takes {', '.join(known)}.",
            )
    options = Options(options.type, {key: settings[key] for key in known if key in settings})
    rate = {key: item for key, item in inside.items() if key == "learning_rate"}
    optimizers.make_optimizer(options, where=at)
    return options, rate


def _train(entries: Mapping[str, Node], shape: tuple[int, ...], where: str) -> dict[str, Any]:
    written = [(f, entries[f.name]) for f in TRAIN if f.name in entries]
    found = {f.name: check(f, node, _at(node, where)) for f, node in written}
    if "schedule" in entries:
        at = _at(entries["schedule"], where)
        options = read_options(entries["schedule"], schedules.FIELDS, "schedule", at, words.SCHEDULE)
        schedules.make_schedule(options, 1.0, 1, where=at)
        found["schedule"] = options
    if "early_stopping" in entries and entries["early_stopping"].value is not False:
        found["early_stopping"] = _early_stopping(entries["early_stopping"], where)
    if "augmentation" in entries and entries["augmentation"].value is not False:
        found["augmentation"] = _augmentation(entries["augmentation"], shape, where)
    for key in ("freeze", "rates"):
        if key in entries:
            found[key] = check_layers(key, entries[key], _at(entries[key], where))
    if "embedding" in entries:
        found["embedding"] = _embedding(entries["embedding"], where)
    return found


def _embedding(node: Node, where: str) -> dict[str, Any]:
    """A mapping, or the layer's name alone."""
    if not isinstance(node.value, dict):
        node = Node({"layer": node}, node.line)
    at = f"{_at(node, where)} (embedding)"
    written = check_all(EMBEDDING, entries_of(node, "", at), at, "embedding", words.OPTION)
    return {f.name: f.default for f in EMBEDDING} | written


def check_layers(key: str, given: Any, where: str) -> Any:
    """The value of "freeze" (a pattern of names of layers or a list of them) or of "rates" (pattern to factor)."""
    value = given.plain() if isinstance(given, Node) else given
    if key == "freeze":
        doc = "names of layers whose weights stay as they are, with * and ? as in file names"
        items = value if isinstance(value, list) else [value]
        return [check(Field(key, "text", doc=doc), item, where) for item in items]
    if not isinstance(value, dict):
        fail(where, f"rates is {show(value)}, but a mapping is expected", 'Write {"layer_0": 0.1}, for example.')
    doc = "what the learning rate of these layers is multiplied by"
    return {name: check(Field(name, "number", 1e-6, 1e6, doc=doc), item, where) for name, item in value.items()}


def _early_stopping(node: Node, where: str) -> dict[str, Any]:
    """A mapping, a patience alone, or true for the usual one."""
    if node.value is True:
        node = Node({}, node.line)
    elif not isinstance(node.value, dict):
        node = Node({"patience": node}, node.line)
    at = f"{_at(node, where)} (early_stopping)"
    written = check_all(EARLY_STOPPING, entries_of(node, "", at), at, "early_stopping", words.OPTION)
    return {f.name: f.default for f in EARLY_STOPPING} | written


def _augmentation(node: Node, shape: tuple[int, ...], where: str) -> dict[str, Any]:
    """Checked against the size of the input, if that is a picture; a flat input may be fed with any."""
    at = f"{_at(node, where)} (augmentation)"
    found = read_augmentation(entries_of(node, "augmentation", at), at)
    if len(shape) == 3:
        check_pictures(Augmentation(**found), (*shape[1:], shape[0]), at)
    return found


def start_rate(blueprint: Blueprint) -> float:
    """The learning rate; where it is still to be found, the optimizer's usual one."""
    rate = train_settings(blueprint)["learning_rate"]
    return optimizers.default_learning_rate(blueprint.optimizer.type) if rate == AUTO else rate


def check_train(name: str, value: Any, where: str) -> Any:
    """A value for a key of TRAIN that comes from elsewhere, such as the command line."""
    return check(next(f for f in TRAIN if f.name == name), value, where)


def train_settings(blueprint: Blueprint, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every training setting: overrides before the blueprint before the defaults. None means not given in
    overrides, and not wanted in the result: schedule, early_stopping, augmentation, clipping, ema, time_limit, freeze,
    rates and embedding have no default."""
    settings = {f.name: f.default for f in TRAIN}
    settings |= dict.fromkeys(("schedule", "early_stopping", "augmentation", "freeze", "rates", "embedding"))
    settings |= blueprint.train
    settings |= {key: value for key, value in (overrides or {}).items() if value is not None}
    if settings["learning_rate"] is None:
        settings["learning_rate"] = optimizers.default_learning_rate(blueprint.optimizer.type)
    return settings
