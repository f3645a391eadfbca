"""A plug-in that fails where its libraries are missing, as plug-ins for GPUs do."""

from __future__ import annotations


def initialize() -> None:
    raise RuntimeError("Unable to load CUDA. Is it installed?")
