"""Runs the numeric tests as other x86-64 processors run them, by what can be set from outside a process.

    python -m tests.processors [weakest | middle | strongest]... [-- PYTEST ARGUMENTS]

XLA, OpenBLAS (of NumPy and of SciPy, whose LAPACK jaxlib calls) and NumPy each choose code by the processor's
instructions. A variant restricts all of them to the instructions of a processor, and says how many threads BLAS uses.
Variants that need instructions which this processor lacks are left out, which is printed.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final, final

from attrs import frozen

_core: Final = importlib.import_module("numpy._core._multiarray_umath")
FEATURES: Final[Mapping[str, bool]] = _core.__cpu_features__
"""The instructions that NumPy finds on this processor, by its names for them."""
TARGETS: Final[tuple[str, ...]] = tuple(_core.__cpu_dispatch__)
"""The sets of instructions, weakest first, for which NumPy has code beside that for the weakest processor."""

FOLDERS: Final = ("tests/laws", "tests/ops", "tests/differential", "tests/numpy", "tests/scipy", "tests/random")


WITHOUT_F16C: Final = "--xla_cpu_max_isa=SSE4_2"
"""The flag of XLA under which it has no conversions of float16, which are instructions of AVX (F16C)."""
NO_CONVERSION: Final = "Failed to materialize symbols"
"""What XLA says of a program with conversions of float16 then, JAX's or ours."""


@final
@frozen
class Variant:
    """The instructions and threads that libraries are restricted to."""

    xla: str
    """The value of XLA's flag `xla_cpu_max_isa`."""
    openblas: str
    """The value of `OPENBLAS_CORETYPE`."""
    numpy_level: int
    """The last of the x86-64 levels (`X86_V2` to `X86_V4`) whose instructions NumPy may use."""
    threads: int
    left_out: tuple[str, ...] = ()
    """Tests that fail there for a reason which is XLA's."""

    def runs_here(self) -> bool:
        return FEATURES.get(f"X86_V{self.numpy_level}", False)

    def environment(self) -> Mapping[str, str]:
        """The variables that restrict a process."""
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
        # They record that XLA fails for float16 as a difference between the libraries.
        left_out=(
            "tests/laws/test_types.py::test_operands_are_taken_and_refused_as_by_jax",
            "tests/ops/test_product_dtypes.py::test_all_pairs",
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
        left_out = [f"--deselect={test}" for test in variant.left_out]
        command = [sys.executable, "-m", "pytest", *left_out, *(pytest_arguments or ("-q", "-n", "2", *FOLDERS))]
        done = subprocess.run(command, env={**os.environ, **environment})
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
