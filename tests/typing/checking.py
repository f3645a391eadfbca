"""Static types of checked, narrowed and reported functions."""

from __future__ import annotations

from typing import assert_type

import tracefx as fx
import tracefx.numpy as fnp
from tracefx import Array
from tracefx.handlers import (
    DynamicLossScale,
    Error,
    Policy,
    Report,
    all_checks,
    all_finite,
    autocast,
    check,
    checkify,
    nan_checks,
    progress,
    select_tree,
    user_checks,
)


def loss(w: Array, x: Array) -> Array:
    check(fnp.all(x > 0), "{} {name}", x, name="x")
    return fnp.sum(x @ w)


def checks(w: Array, x: Array) -> None:
    error, out = checkify(loss)(w, x)
    assert_type(error, Error)
    assert_type(out, Array)
    assert_type(error.get(), str | None)
    assert_type(fx.jit(checkify(loss, errors=user_checks | nan_checks))(w, x=x), tuple[Error, Array])
    checkify(loss, all_checks)(w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    checkify(loss, "nan")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def casts(w: Array, x: Array) -> None:
    assert_type(autocast(loss)(w, x), Array)
    assert_type(fx.grad(autocast(loss, Policy("float16", promote="narrowest")))(w, x), Array)
    autocast(loss, "float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Policy("float16", promote="up")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    scale = DynamicLossScale(2.0**15)
    assert_type(scale.scale(loss(w, x)), Array)
    finite = all_finite({"w": w})
    assert_type(scale.adjust(finite), DynamicLossScale)
    assert_type(select_tree(finite, {"w": w}, {"w": w}), dict[str, Array])


def shows(w: Array, x: Array) -> None:
    assert_type(progress(loss, every=3)(w, x), Array)
    with progress(show=report_attributes) as bars:
        assert_type(bars(loss)(w, x), Array)
    progress(loss, show=print)(w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def report_attributes(report: Report) -> None:
    assert_type(report.total, int | None)
