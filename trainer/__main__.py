"""python -m litenet.trainer is edge-train."""

from .cli import main

raise SystemExit(main())
