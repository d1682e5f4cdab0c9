"""Data sets with a name: where they are, how they are checked, and who may use them for what.

A set is looked for in the cache and in the folders the caller gives; only then it is fetched, file by file,
checked against size and SHA-256, and put in the cache. What is read is compared with the known hash of its
contents, so a set put there by hand, unpacked or in another of its forms, is held to the same standard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from . import cifar, idx
from .dataset import Splits
from .digits import read_digits
from .fetch import File, Progress, fetch_file
from .mapped import open_mapped, write_mapped

DIGITS = tuple("0123456789")
MAPPED = "arrays"  # the folder beside a set's files that has it unpacked


@dataclass(frozen=True)
class Known:
    """One set. `locate` tells what in a folder `read` can open, None if nothing; hashes are of (train,
    test)."""

    name: str
    about: str
    licence: str
    labels: tuple[str, ...]
    read: Callable[[Path], Splits]
    locate: Callable[[Path], Path | None]
    files: tuple[File, ...] = ()
    mirrors: tuple[str, ...] = ()  # addresses that end in /; a file's name follows
    hashes: tuple[str, str] | None = None
    mapped: bool = False  # whether it is worth unpacking once, into files that are mapped


def default_cache() -> Path:
    """Where programs of this system keep what they can fetch again."""
    if sys.platform == "win32":
        return Path.home() / "AppData" / "Local" / "litenet" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "litenet"
    return Path.home() / ".cache" / "litenet"


def _idx_folder(folder: Path) -> Path | None:
    return folder if folder.is_dir() and idx.present(folder) else None


def _mnist_like(name: str, labels: tuple[str, ...]) -> Callable[[Path], Splits]:
    return lambda path: idx.read_folder(path, name, labels)


FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

KNOWN: dict[str, Known] = {
    known.name: known
    for known in (
        Known(
            "digits",
            "1,797 handwritten digits, 8 x 8 grey; comes with LiteNet",
            "CC BY 4.0; E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998",
            DIGITS,
            lambda path: read_digits(DIGITS),
            lambda folder: folder,
            hashes=("2bb9a4fd05cbfd14", "1c4b192ed63d287b"),
        ),
        Known(
            "mnist",
            "70,000 handwritten digits, 28 x 28 grey",
            "CC BY-SA 3.0; Y. LeCun and C. Cortes; cite LeCun, Bottou, Bengio, Haffner 1998",
            DIGITS,
            _mnist_like("mnist", DIGITS),
            _idx_folder,
            (
                File(
                    "train-images-idx3-ubyte.gz",
                    9912422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                File(
                    "train-labels-idx1-ubyte.gz",
                    28881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                File(
                    "t10k-images-idx3-ubyte.gz",
                    1648877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                File(
                    "t10k-labels-idx1-ubyte.gz",
                    4542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
            (
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
            ),
            ("a1f0a2443e69fa83", "cc0022c577e80220"),
        ),
        Known(
            "fashion-mnist",
            "70,000 pieces of clothing, 28 x 28 grey",
            "MIT; Zalando SE, 2017",
            FASHION,
            _mnist_like("fashion-mnist", FASHION),
            _idx_folder,
            (
                File(
                    "train-images-idx3-ubyte.gz",
                    26421880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                ),
                File(
                    "train-labels-idx1-ubyte.gz",
                    29515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                ),
                File(
                    "t10k-images-idx3-ubyte.gz",
                    4422102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                ),
                File(
                    "t10k-labels-idx1-ubyte.gz",
                    5148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
            ),
            (
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ),
            ("c37ecad049845835", "f5f86e11a94973eb"),
        ),
        Known(
            "cifar10",
            "60,000 photos of animals and vehicles, 32 x 32 in colour",
            "no licence is stated; cite A. Krizhevsky, Learning Multiple Layers of Features from Tiny "
            "Images, 2009",
            cifar.LABELS,
            cifar.read_cifar,
            cifar.locate,
            (
                File(
                    "cifar-10-binary.tar.gz",
                    170052171,
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
            ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
            ("7fa2f6368d11e5af", "d0c8db2cca675c87"),
            mapped=True,
        ),
    )
}


def read_known(
    name: str,
    cache: Path | None = None,
    fetch: bool = True,
    folders: Sequence[Path] = (),
    progress: Progress | None = None,
    table: Mapping[str, Known] = KNOWN,
    timeout: float = 30,
) -> Splits:
    """The set of this name. Looks in cache/name, then for each folder in folder/name and folder itself.

    `progress(file, bytes so far, bytes in all)` is called while fetching; fetch=False stays off the network.
    """
    known = table[name]
    home = Path(cache or default_cache()) / name
    if known.mapped:
        found_mapped = open_mapped(home / MAPPED, lambda splits: _hashes(splits) == known.hashes, known.labels, name)
        if found_mapped is not None:
            return found_mapped
    places = [home, *(place for folder in folders for place in (Path(folder) / name, Path(folder)))]
    for place in places:
        found = known.locate(place)
        if found is not None:
            return _kept(known, _read(known, found), home)
    tried = []
    if fetch:
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise UserError(
                f"{home}: this cache folder cannot be made ({fault.strerror}); choose another"
            ) from fault
        for file in known.files:
            if not (home / file.name).is_file():
                tried = fetch_file(file, known.mirrors, home, progress, timeout)
                if tried:
                    break
        else:
            return _kept(known, _read(known, known.locate(home) or home), home)
    wanted = ", ".join(f"{file.name} ({file.size} bytes)" for file in known.files)
    raise UserError(
        f"{name}: not on this machine (looked in {', '.join(str(place) for place in places)}) and "
        + (f"not fetched ({'; '.join(tried)})" if tried else "fetching is off")
        + f"; put {wanted} from {known.mirrors[0]} into {home}"
    )


def _hashes(splits: Splits) -> tuple[str, str]:
    return splits.train.hash(), splits.test.hash() if splits.test else ""


def _kept(known: Known, splits: Splits, home: Path) -> Splits:
    """The set, from now on mapped, if it is one that should be and the cache can be written."""
    if not known.mapped:
        return splits
    with suppress(UserError):
        write_mapped(home / MAPPED, splits)
        return open_mapped(home / MAPPED, lambda _: True, known.labels, known.name) or splits
    return splits


def _read(known: Known, path: Path) -> Splits:
    splits = known.read(path)
    found = _hashes(splits)
    if known.hashes is not None and found != known.hashes:
        raise UserError(
            f"{path}: this is not {known.name}: the hashes of its contents are {' and '.join(found)}, "
            f"expected {' and '.join(known.hashes)}; move it away, or open it by its path"
        )
    return splits
