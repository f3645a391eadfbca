"""The command `python -m tracefx.as_jax`, which runs a Python program that uses JAX on tracefx."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracefx.interop.as_jax import install as install

_USAGE: Final = "usage: python -m tracefx.as_jax (program.py | -m module) [arguments ...]"


def main(argv: Sequence[str]) -> int:
    """Runs a program in which `import jax` gives tracefx.

    Args:
        argv: The path of the program, or `-m` and the name of a module; then its arguments.

    Returns:
        The exit status: 2 if no program is given, otherwise 0; a program may exit with another.
    """
    if not argv or argv[0] in ("-h", "--help") or (argv[0] == "-m" and len(argv) < 2):
        sys.stderr.write(_USAGE + "\n")
        return 2
    install()
    if argv[0] == "-m":
        sys.argv = [*argv[1:]]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [*argv]
        sys.path[0] = str(Path(argv[0]).absolute().parent)
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
