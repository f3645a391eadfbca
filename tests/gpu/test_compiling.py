"""The command that compiles for a GPU: its programs lower on any machine, and it reports a missing plug-in."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from typing import Final

import pytest

from tests.gpu.compiling import reason, report
from tests.gpu.offline import Compiler, NoPluginError
from tests.gpu.programs import Program, lowered, programs

STEP: Final = 83
"""The first program of each group and one in this many are lowered (not compiled) here."""


def test_lowering_for_gpus_needs_no_gpu() -> None:
    by_group: defaultdict[str, list[Program]] = defaultdict(list)
    for program in programs():
        by_group[program.group].append(program)
    groups = set()
    for program in [each for group in by_group.values() for each in group[::STEP]]:
        calls = []
        for _, make in program.calls:
            try:
                calls.append(make())
            except (TypeError, ValueError, NotImplementedError):  # a dtype that the function does not accept
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
def test_missing_plugin_error_names_the_package() -> None:
    with pytest.raises(NoPluginError, match=r"no plug-in for GPUs here: pip install 'jax\[cuda12\]'"):
        Compiler.of()


def test_report_counts_rejections_with_reasons() -> None:
    lapack = "NotImplementedError: schur calls LAPACK, which runs only on the CPU"
    assert reason(lapack) == "LAPACK has it, GPU libraries do not"
    assert reason("INTERNAL: something else") is None
    text = report(
        [
            {"group": "functions", "name": "sin", "calls": 3, "seconds": 1.0, "refused": {}},
            {"group": "functions", "name": "schur", "calls": 2, "seconds": 2.0, "refused": {"(x)": lapack}},
            {"group": "models", "name": "GPT", "calls": 1, "seconds": 0.0, "refused": {"": "INTERNAL:\nno"}},
        ]
    )
    assert "| functions | 2 | 5 | 1 | 3 |" in text
    assert "- functions: schur (x): LAPACK has it, GPU libraries do not" in text
    assert "- models: GPT: INTERNAL: no" in text
