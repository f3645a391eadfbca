"""Runs the command `tracefx` as `python -m tracefx`."""

from __future__ import annotations

import sys

from tracefx.command import main

if __name__ == "__main__":
    sys.exit(main())
