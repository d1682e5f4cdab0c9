"""python -m litenet.pyruntime: the command edge-infer."""

import sys

from .cli import main

sys.exit(main())
