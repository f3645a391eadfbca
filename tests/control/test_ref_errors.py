"""Errors of mutable references: each names the reference, the line that made it, and what to do instead."""

# Lambdas write to references in expressions.
# mypy: disable-error-code="func-returns-value, redundant-expr"

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import untyped
from tracefx.errors import EscapedTracerError, RefError

X: Final = np.arange(3, dtype=np.float32)


def scalar() -> fx.Ref:
    return fx.new_ref(1.0)


def vector() -> fx.Ref:
    return fx.new_ref(fnp.zeros(3))


def after_freeze() -> Any:
    ref = scalar()
    fx.freeze(ref)
    return ref[...]


def freeze_twice() -> Any:
    ref = scalar()
    fx.freeze(ref)
    return fx.freeze(ref)


def freeze_closed_over() -> Any:
    ref = scalar()
    return fx.jit(lambda: fx.freeze(ref))()


def freeze_in_loop() -> Any:
    ref = scalar()
    return fx.jit(lambda: fx.lax.fori_loop(0, 2, lambda i, x: x + fx.freeze(ref), 0.0))()


def passed_and_closed_over() -> Any:
    ref = scalar()
    return fx.jit(lambda r: r[...] + ref[...])(ref)


def passed_and_closed_over_again() -> Any:
    ref = scalar()
    f = fx.jit(lambda r: r[...] + ref[...])
    f(scalar())
    return f(ref)


def passed_and_closed_over_under_grad() -> Any:
    ref = scalar()
    return fx.grad(lambda x: fx.jit(lambda r: x * r[...] + ref[...])(ref))(1.0)


def passed_twice() -> Any:
    ref = scalar()
    return fx.jit(lambda a, b: a[...] + b[...])(ref, ref)


def passed_twice_to_vmap() -> Any:
    ref = vector()
    return fx.vmap(lambda a, b: a[...] + b[...])(ref, ref)


def closed_over_and_passed_to_vmap() -> Any:
    ref = vector()
    return fx.vmap(lambda a: a[...] + ref[0])(ref)


def closed_over_and_passed_to_checkpoint() -> Any:
    ref = scalar()
    return fx.checkpoint(lambda a: a[...] + ref[...])(ref)


def batched_write() -> Any:
    ref = scalar()
    return fx.vmap(lambda x: ref.set(x))(X)


def batched_write_in_loop() -> Any:
    ref = scalar()

    def f(x: Any) -> Any:
        return fx.lax.fori_loop(0, 2, lambda i, y: ref.addupdate(x) or y, x)

    return fx.vmap(f)(X)


def batched_write_in_jit() -> Any:
    ref = scalar()
    return fx.vmap(fx.jit(lambda x: ref.addupdate(x)))(X)


def differentiated_write() -> Any:
    ref = scalar()
    return fx.grad(lambda x: ref.set(x) or x * x)(1.0)


def differentiated_write_of_an_argument() -> Any:
    return fx.grad(lambda x, r: r.set(x) or x * x)(1.0, scalar())


def returned_from_jit() -> Any:
    return fx.jit(lambda r: {"a": [r]})(scalar())


def returned_new_reference() -> Any:
    return fx.vmap(lambda x: fx.new_ref(x))(X)


def returned_from_scan() -> Any:
    ref = scalar()
    return fx.lax.scan(lambda c, x: (c, ref), 0.0, X)


def closed_over_and_sliced() -> Any:
    ref = vector()
    return fx.lax.scan(lambda c, x: (c + x[...] + ref[0], None), 0.0, ref)


def carried() -> Any:
    return fx.lax.fori_loop(0, 2, lambda i, r: r, scalar())


def gradient_of_a_reference() -> Any:
    return fx.grad(lambda r: r[...] ** 2)(scalar())


def leaked_from_jit() -> Any:
    stored: list[fx.Ref] = []
    fx.jit(lambda x: stored.append(fx.new_ref(x)))(1.0)
    return stored[0][...]


def leaked_into_another_trace() -> Any:
    stored: list[fx.Ref] = []
    fx.jit(lambda x: stored.append(fx.new_ref(x)))(1.0)
    return fx.jit(lambda: stored[0].set(2.0))()


def leaked_from_vmap() -> Any:
    stored: list[fx.Ref] = []
    fx.vmap(lambda x: stored.append(fx.new_ref(x)))(X)
    return stored[0][...]


def leaked_from_grad() -> Any:
    stored: list[fx.Ref] = []
    fx.grad(lambda x: stored.append(fx.new_ref(x)) or x)(1.0)
    return stored[0][...] + 1.0


def condition_that_writes() -> Any:
    ref = scalar()
    return fx.lax.while_loop(lambda i: (ref.addupdate(1.0), i < 3)[1], lambda i: i + 1, 0)


def custom_rule() -> Any:
    ref = scalar()
    f = fx.custom_jvp(lambda x: x * ref[...])
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    return fx.jit(f)(1.0)


def shard_map() -> Any:
    ref = scalar()
    mesh = fx.make_mesh((1,), ("x",))
    return fx.shard_map(lambda x: ref.set(2.0) or x, mesh=mesh, in_specs=fx.P("x"), out_specs=fx.P("x"))(X)


def reducer() -> Any:
    ref = scalar()
    return fx.lax.reduce(X, np.float32(0), lambda a, b: ref.addupdate(1.0) or a + b, (0,))


def exported() -> Any:
    ref = scalar()
    return fx.export(fx.jit(lambda x: x * ref[...]))(1.0)


def exported_argument() -> Any:
    return fx.export(fx.jit(lambda r: r[...]))(scalar())


REF_ERRORS: Final[dict[Callable[[], Any], str]] = {
    after_freeze: r"the reference Ref\{f32\[\]\} made at .*test_ref_errors.py:\d+ \(scalar\) is used after freeze",
    freeze_twice: "is used after freeze: use the array that freeze returned",
    freeze_closed_over: "is frozen in a function that did not make it: freeze it where it was made",
    freeze_in_loop: "is frozen in a function that did not make it",
    passed_and_closed_over: r"jit of <lambda>: arguments: .* is also closed over by the function: use the argument",
    passed_and_closed_over_again: "is also closed over by the function",
    passed_and_closed_over_under_grad: "is also closed over by the function",
    passed_twice: r"jit of <lambda>: arguments: the reference .* is passed twice: .* pass it once",
    passed_twice_to_vmap: "is passed twice",
    closed_over_and_passed_to_vmap: "is closed over by a function that also takes it as an argument, in vmap of",
    closed_over_and_passed_to_checkpoint: "is also closed over by the function",
    batched_write: r"a batched value of type f32\[\] is written to .* pass it to the function as a batched argument",
    batched_write_in_loop: "a batched value of type",
    batched_write_in_jit: "a batched value of type",
    differentiated_write: r"a differentiated value of type f32\[\] is written to .* or write tracefx.lax.stop_gradient",
    differentiated_write_of_an_argument: "a differentiated value of type",
    returned_from_jit: r"output\['a'\]\[0\] must be an array or a number, got a reference to an array",
    returned_new_reference: "the output must be an array or a number, got a reference to an array: use its contents",
    returned_from_scan: r"output\[1\] must be an array or a number, got a reference to an array",
    closed_over_and_sliced: "is closed over by a function that also takes it as an argument, in scan of <lambda>",
    carried: "got a reference to an array: use its contents, ref",
    gradient_of_a_reference: "the argument `r` of <lambda> must be an array or a number, got a reference to an array",
    condition_that_writes: "while_loop of <lambda> .* cond_fun writes the reference .* only body_fun may write",
    custom_rule: "is used in a function that is traced for jit by itself, as those with custom rules are",
    shard_map: "is written in <lambda>, which shard_map traces: functions under shard_map may only read references",
    reducer: "is written in <lambda>, which reduce of <lambda> .* traces: .* Return the new contents",
    exported: "export of <lambda>: it uses references, but an exported program is a function of arrays",
    exported_argument: "export of <lambda>: it uses references",
}


@pytest.mark.parametrize("case", REF_ERRORS, ids=lambda f: f.__name__)
def test_invalid_uses(case: Callable[[], Any]) -> None:
    with pytest.raises(RefError, match=REF_ERRORS[case]):
        case()


ESCAPED: Final[dict[Callable[[], Any], str]] = {
    leaked_from_jit: r"in jit is used after the traced function returned.* Make the reference outside, or return ref",
    leaked_into_another_trace: "is used after the traced function returned",
    leaked_from_vmap: "was made by vmap at .* but used as the contents of a reference",
    leaked_from_grad: "was made by differentiation at .* but used as the contents of a reference",
}


@pytest.mark.parametrize("case", ESCAPED, ids=lambda f: f.__name__)
def test_leaks(case: Callable[[], Any]) -> None:
    with pytest.raises(EscapedTracerError, match=ESCAPED[case]):
        case()


def test_after_an_error_the_reference_is_unchanged() -> None:
    ref, other = vector(), vector()

    def fails(r: Any) -> None:
        r[...] = fnp.ones(r.shape)
        other[...] = fnp.ones(3)
        raise ValueError("in the function")

    for transformed in (fx.jit(fails), fx.checkpoint(fails)):
        with pytest.raises(ValueError, match="in the function"):
            transformed(ref)
    with pytest.raises(ValueError, match="in the function"):
        fx.vmap(fails)(ref)
    assert ref[...].tolist() == [0.0, 0.0, 0.0]
    ref[0] = 2.0  # it is not lent any more
    assert ref[...].tolist() == [2.0, 0.0, 0.0]


TYPE_ERRORS: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "another dtype": (
        lambda: vector().set(np.ones(3, np.int32)),
        r"a value of type i32\[3\] is written to a reference of dtype float32: convert it with value.astype",
    ),
    "a float into integers": (lambda: fx.new_ref(3).set(1.5), r"a value of type f32\[\] is written to .* dtype int32"),
    "a number into keys": (
        lambda: fx.new_ref(fx.random.key(0)).set(1),
        r"a value of type i32\[\] is written to a reference of dtype key<fry>; the dtype of a reference",
    ),
    "added in another dtype": (lambda: fx.new_ref(3).addupdate(1.5), "is written to a reference of dtype int32"),
    "no array": (
        lambda: untyped(scalar().set)("a"),
        "the value that is written to a reference must be an array or a number",
    ),
    "a string": (lambda: untyped(fx.new_ref)("a"), "new_ref: init_val must be an array or a number, got 'a'"),
    "a list": (lambda: untyped(fx.new_ref)([1.0]), "convert it with tracefx.numpy.asarray"),
    "of a reference": (lambda: untyped(fx.new_ref)(scalar()), "got a reference: pass its contents"),
    "freeze of an array": (
        lambda: untyped(fx.freeze)(fnp.ones(2)),
        "freeze takes a Ref, as new_ref makes it, got an object",
    ),
    "arithmetic": (lambda: scalar() + 1.0, "unsupported operand"),  # type: ignore[operator]  # the error is tested
    "array function": (lambda: untyped(fnp.sin)(vector()), "sin: x must be an array or a number, got Ref"),
    "a view as an argument": (lambda: fx.jit(lambda v: v[...])(vector().at[0]), "got a view of a reference"),
    "pickled": (lambda: pickle.dumps(scalar()), "can't be pickled or copied"),
    "copied": (lambda: copy.deepcopy(scalar()), "can't be pickled or copied"),
    "an index of another type": (lambda: vector()["a"], "an index must consist of integers"),  # type: ignore[index]  # the error is tested
    "length of a scalar": (lambda: len(scalar()), "without axes"),
}


@pytest.mark.parametrize("name", TYPE_ERRORS)
def test_wrong_types(name: str) -> None:
    call, message = TYPE_ERRORS[name]
    with pytest.raises(TypeError, match=message):
        call()


def test_values_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"values of shape \(2,\) cannot be broadcast"):
        vector()[...] = np.ones(2, np.float32)
    with pytest.raises(ValueError, match="cannot be broadcast"):
        vector()[:2] = np.ones(3, np.float32)
