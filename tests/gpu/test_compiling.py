"""The command that compiles for a GPU: what it compiles can be built anywhere, and it says why it can't go on."""

from __future__ import annotations

import importlib.util
from typing import Final

import pytest

from tests.gpu.compiling import reason, report
from tests.gpu.offline import Compiler, NoPluginError
from tests.gpu.programs import lowered, programs

STEP: Final = 83
"""Of how many programs one is built here, and not compiled: all groups have some."""


def test_programs_for_gpus_are_built_without_one() -> None:
    groups = set()
    for program in list(programs())[::STEP]:
        calls = []
        for _, make in program.calls:
            try:
                calls.append(make())
            except (TypeError, ValueError, NotImplementedError):  # a call in a dtype that the function doesn't take
                continue
        if calls:
            text = str(lowered(calls, program.over_devices).module)
            assert "func.func public @main" in text
            assert "lapack_" not in text
            groups.add(program.group)
    assert groups >= {"functions", "dtypes", "gradients", "decompositions", "several devices"}


@pytest.mark.skipif(
    importlib.util.find_spec("jax_plugins") is not None, reason="there is a plug-in, with which the command compiles"
)
def test_without_a_plugin_it_says_what_to_install() -> None:
    with pytest.raises(NoPluginError, match=r"no plug-in for GPUs here: pip install 'jax\[cuda12\]'"):
        Compiler.of()


def test_the_report_counts_what_is_refused_and_says_why() -> None:
    lapack = "NotImplementedError: schur calls LAPACK, which runs only on the CPU"
    assert reason(lapack) == "LAPACK has it, and no library of GPUs"
    assert reason("INTERNAL: something else") is None
    text = report(
        [
            {"group": "functions", "name": "sin", "calls": 3, "seconds": 1.0, "refused": {}},
            {"group": "functions", "name": "schur", "calls": 2, "seconds": 2.0, "refused": {"(x)": lapack}},
            {"group": "models", "name": "GPT", "calls": 1, "seconds": 0.0, "refused": {"": "INTERNAL:\nno"}},
        ]
    )
    assert "| functions | 2 | 5 | 1 | 3 |" in text
    assert "- functions: schur (x): LAPACK has it, and no library of GPUs" in text
    assert "- models: GPT: INTERNAL: no" in text
