"""python -m litenet.exporter is edge-export."""

from .cli import main

raise SystemExit(main())
