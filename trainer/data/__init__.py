"""Data sets: read from disk or fetched by name, checked once, and dealt out in batches.

`open_source("digits")` or `open_source("folder/of/files")` gives a Splits(train, test) of Datasets.
"""

from .batches import epoch_order, iterate, steps_per_epoch, to_input
from .dataset import Dataset, Splits, mean_std, split
from .known import KNOWN, default_cache
from .load import open_source
from .loader import Batch, CompressedDataLoader

__all__ = [
    "KNOWN",
    "Batch",
    "CompressedDataLoader",
    "Dataset",
    "Splits",
    "default_cache",
    "epoch_order",
    "iterate",
    "mean_std",
    "open_source",
    "split",
    "steps_per_epoch",
    "to_input",
]
