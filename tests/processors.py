"""Runs the numeric tests with the instruction sets of other x86-64 processors, set by environment variables.

    python -m tests.processors [weakest | middle | strongest]... [-- PYTEST ARGUMENTS]

XLA, OpenBLAS (in NumPy, and in SciPy, whose LAPACK jaxlib calls) and NumPy each select code by the processor's
instruction sets. A variant restricts all of them to one processor's instruction sets, and sets the number of BLAS
threads. Variants that need instructions which this processor lacks are skipped with a message.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

from attrs import frozen

_core: Final = importlib.import_module("numpy._core._multiarray_umath")
FEATURES: Final[Mapping[str, bool]] = _core.__cpu_features__
"""The instruction sets that NumPy detects on this processor, by NumPy's names."""
TARGETS: Final[tuple[str, ...]] = tuple(_core.__cpu_dispatch__)
"""The instruction sets, weakest first, for which NumPy has code in addition to its baseline."""

FOLDERS: Final = ("tests/laws", "tests/ops", "tests/differential", "tests/numpy", "tests/scipy", "tests/random")


WITHOUT_F16C: Final = "--xla_cpu_max_isa=SSE4_2"
"""The XLA flag that disables the float16 conversions of F16C."""
NO_CONVERSION: Final = "Failed to materialize symbols"
"""XLA's error for programs with float16 conversions under that flag."""


@final
@frozen
class Variant:
    """A restriction of the libraries to instruction sets and a number of threads."""

    xla: str
    """The value of XLA's flag `xla_cpu_max_isa`."""
    openblas: str
    """The value of `OPENBLAS_CORETYPE`."""
    numpy_level: int
    """The last of the x86-64 levels (`X86_V2` to `X86_V4`) whose instructions NumPy may use."""
    threads: int
    skipped_tests: tuple[str, ...] = ()
    """Tests that fail under this restriction because of XLA."""

    def runs_here(self) -> bool:
        return FEATURES.get(f"X86_V{self.numpy_level}", False)

    def environment(self) -> Mapping[str, str]:
        """Returns the environment variables that restrict a process."""
        last = f"X86_V{self.numpy_level}"
        targets = [name for name in TARGETS if FEATURES.get(name)]
        disabled = targets[targets.index(last) + 1 :] if last in targets else targets
        return {
            "XLA_FLAGS": f"--xla_cpu_max_isa={self.xla}",
            "OPENBLAS_CORETYPE": self.openblas,
            "OPENBLAS_NUM_THREADS": str(self.threads),
            "NPY_DISABLE_CPU_FEATURES": " ".join(disabled),
        }


VARIANTS: Final[Mapping[str, Variant]] = {
    "weakest": Variant(
        "SSE4_2",
        "Nehalem",
        2,
        threads=1,
        # These tests would record XLA's float16 failure as a difference between the libraries.
        skipped_tests=(
            "tests/laws/test_types.py::test_primitive_accepts_and_refuses_the_operands_that_jax_does",
            "tests/ops/test_product_dtypes.py::test_all_dtype_pairs",
        ),
    ),
    "middle": Variant("AVX2", "Haswell", 3, threads=2),
    "strongest": Variant("AVX512", "SkylakeX", 4, threads=2),
}


def main(arguments: Sequence[str]) -> int:
    """Runs pytest for the named variants, by default all; returns the exit status."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    names, pytest_arguments = arguments[:at], arguments[at + 1 :]
    for name in names or VARIANTS:
        variant = VARIANTS[name]
        if not variant.runs_here():
            sys.stdout.write(f"{name}: left out, as this processor has no {variant.xla} instructions\n")
            continue
        environment = variant.environment()
        sys.stdout.write(f"{name}: {' '.join(f'{key}={value!r}' for key, value in environment.items())}\n")
        sys.stdout.flush()
        for test in variant.skipped_tests:
            file, _, function = test.partition("::")
            if f"def {function}(" not in Path(file).read_text(encoding="utf-8"):  # pytest ignores unknown names
                raise LookupError(f"skipped_tests of {name!r} has {test}, which does not exist: correct the name")
        skipped_tests = [f"--deselect={test}" for test in variant.skipped_tests]
        command = [sys.executable, "-m", "pytest", *skipped_tests, *(pytest_arguments or ("-q", "-n", "2", *FOLDERS))]
        done = subprocess.run(command, env={**os.environ, **environment})
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
