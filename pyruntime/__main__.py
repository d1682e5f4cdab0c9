"""python -m litenet.pyruntime: the command edge-infer."""

from .cli import entry

entry()
