"""Every applicable law holds for every primitive at its samples."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from tests.compiling import default_compile_options
from tests.laws.examples import is_long_profile, sampled
from tests.laws.samples import SAMPLES, Operands, Sample
from tracefx.core import Value, as_value, from_numpy
from tracefx.core.primitive import Differentiable, Expandable, Primitive
from tracefx.ops.vocabulary import OPERATIONS
from tracefx.testing import (
    LAWS,
    Law,
    check_function,
    check_primitive,
    jit_changes_nothing,
    jit_commutes_with_transforms,
)

OF_COMPILING: Final = (jit_changes_nothing, jit_commutes_with_transforms)
OF_DERIVATIVES: Final = {"jvp_is_the_derivative", "linearize_is_jvp", "transpose_is_adjoint", "vmap_commutes_with_jvp"}


def values(operands: Operands) -> list[Value]:
    """Arrays keep their dtype; Python numbers become weakly typed."""
    return [from_numpy(x, x.dtype) if isinstance(x, np.ndarray) else as_value(x) for x in operands]


def test_every_operation_has_samples() -> None:
    assert set(SAMPLES) == {operation.name for operation in OPERATIONS}


def is_differentiable(sample: Sample) -> bool:
    """Whether an operand has a differentiable dtype."""
    return any(np.asarray(x).dtype.kind in "fc" for x in sample.operands[0])


def has_derivative(sample: Sample) -> bool:
    return isinstance(sample.prim, Differentiable | Expandable) or sample.within is not None


def is_first_with_its_bases(prim: Primitive) -> bool:
    """Whether no earlier primitive has the same base classes, which define most of its rules."""
    kinds = [type(samples[0].prim) for samples in SAMPLES.values()]
    return next(kind for kind in kinds if kind.__bases__ == type(prim).__bases__) is type(prim)


@pytest.mark.parametrize("name", SAMPLES)
def test_laws_hold_at_the_samples(name: str) -> None:
    for sample in SAMPLES[name]:
        first, *others = [values(each) for each in sample.operands]
        laws = [law for law in LAWS if law not in (*sample.but, *OF_COMPILING)]
        if sample.within is None:
            report = check_primitive(sample.prim, first, laws=laws)
            if others:
                check_primitive(sample.prim, *others, laws=laws)
        else:
            report = check_function(sample.within, *first, laws=laws)
        assert set(report.skipped) == (
            set() if is_differentiable(sample) and has_derivative(sample) else OF_DERIVATIVES
        )


@pytest.mark.parametrize("name", SAMPLES)
def test_compiled_results_hold_at_the_samples(name: str) -> None:
    with default_compile_options():
        for sample in SAMPLES[name]:
            for operands in sampled(sample.operands, len(sample.operands)):
                check_compiling(sample, operands, jit_changes_nothing)


def commutes_with_compiling(sample: Sample) -> bool:
    """Whether the law applies, which refers to derivatives and compiles five programs."""
    chosen = is_long_profile() or is_first_with_its_bases(sample.prim)
    skipped = is_differentiable(sample) and not has_derivative(sample)
    return chosen and not skipped and jit_commutes_with_transforms not in sample.but


@pytest.mark.parametrize("name", [name for name, each in SAMPLES.items() if any(map(commutes_with_compiling, each))])
def test_compilation_commutes_with_transforms_at_the_samples(name: str) -> None:
    for sample in filter(commutes_with_compiling, SAMPLES[name]):
        check_compiling(sample, sample.operands[0], jit_commutes_with_transforms)


def check_compiling(sample: Sample, operands: Operands, law: Law) -> None:
    """Checks a law of compilation at operands of a sample, unless the sample breaks it on purpose."""
    laws = [] if law in sample.but else [law]
    if sample.within is None:
        report = check_primitive(sample.prim, values(operands), laws=laws)
    else:
        report = check_function(sample.within, *values(operands), laws=laws)
    assert not report.skipped
