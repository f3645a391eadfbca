"""Error messages of public functions for invalid arguments, raised before any work is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from attrs import frozen

import tracefx
import tracefx.numpy as fnp
from tests.comparison import Case
from tracefx.core.handler import ROOT, current

fx: Any = tracefx  # untyped, because most calls below are type errors on purpose
X: Final = np.array([0.5, -1.5, 2.0], np.float32)
M: Final = np.arange(6, dtype=np.float32).reshape(2, 3)
I: Final = np.array([3, 1, 2], np.int32)  # noqa: E741
C: Final = np.array([1 + 1j, 2.0], np.complex64)
NO_ARRAY: Final = object()


@frozen(eq=False)
class Bad:
    """A call that must fail. `call(f)` must not call `f`, unless `after` is set."""

    call: Callable[[Any], object]
    error: type[Exception] | tuple[type[Exception], ...]
    says: str
    after: bool = False


NOT_FUNCTIONS: Final[dict[str, Callable[[Any], object]]] = {
    "grad": lambda x: fx.grad(x),
    "value_and_grad": lambda x: fx.value_and_grad(x),
    "jit": lambda x: fx.jit(x),
    "vmap": lambda x: fx.vmap(x),
    "jacfwd": lambda x: fx.jacfwd(x),
    "jacrev": lambda x: fx.jacrev(x),
    "hessian": lambda x: fx.hessian(x),
    "jvp": lambda x: fx.jvp(x, (1.0,), (1.0,)),
    "vjp": lambda x: fx.vjp(x, 1.0),
    "linearize": lambda x: fx.linearize(x, 1.0),
    "linear_transpose": lambda x: fx.linear_transpose(x, 1.0),
    "make_jaxpr": lambda x: fx.make_jaxpr(x),
    "eval_shape": lambda x: fx.eval_shape(x, 1.0),
    "named_call": lambda x: fx.named_call(x),
}


@pytest.mark.parametrize("name", NOT_FUNCTIONS)
@pytest.mark.parametrize("value", [3.0, [fnp.sin], X], ids=["number", "list", "array"])
def test_transforms_reject_non_callables(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"^{name} takes a function, got "):
        NOT_FUNCTIONS[name](value)


TABLE: Final[dict[str, Bad]] = {
    # ------------------------------------------------------------------ grad, value_and_grad
    "grad: argnums beyond": Bad(
        lambda f: fx.grad(f, 2)(X, X), ValueError, "argnums 2 names argument 2, but .* 2 positional"
    ),
    "grad: argnums below": Bad(
        lambda f: fx.grad(f, -2)(1.0), ValueError, "argnums -2 names argument -2, but .* 1 positional"
    ),
    "grad: argnums in a tuple": Bad(
        lambda f: fx.grad(f, (0, 3))(X, X), ValueError, r"argnums \(0, 3\) names argument 3"
    ),
    "grad: argnums twice": Bad(lambda f: fx.grad(f, (0, -2))(X, X), ValueError, "names an argument twice"),
    "grad: argnums a string": Bad(
        lambda f: fx.grad(f, "x"), TypeError, "argnums must be an integer or a tuple of integers"
    ),
    "grad: argnums a float": Bad(
        lambda f: fx.grad(f, 1.0), TypeError, "argnums must be an integer or a tuple of integers, got 1.0"
    ),
    "grad: argnums a bool": Bad(lambda f: fx.grad(f, True), TypeError, "argnums must be an integer"),
    "grad: argnums of floats": Bad(lambda f: fx.grad(f, (0, 1.0)), TypeError, "argnums must be an integer"),
    "grad: no positional": Bad(lambda f: fx.grad(f)(x=1.0), ValueError, "argnums 0 .* 0 positional arguments"),
    "grad: an int": Bad(
        lambda f: fx.grad(f)(3), TypeError, "differentiated arguments must be floats, got i32.*allow_int"
    ),
    "grad: ints": Bad(
        lambda f: fx.grad(f)(I), TypeError, "differentiated arguments must be floats, got i32.*allow_int"
    ),
    "grad: an int among floats": Bad(
        lambda f: fx.grad(f, (0, 2))(X, I, {"n": I}),
        TypeError,
        r"got i32 for the argument `args\[2\]\['n'\]` of f; conv",
    ),
    "grad: a bool": Bad(lambda f: fx.grad(f)(True), TypeError, "must be floats, got bool"),
    "grad: complex": Bad(
        lambda f: fx.grad(lambda z: fnp.sum(z * z))(C), TypeError, "must be a float, got c64.*holomorphic=True.*vjp"
    ),
    "grad: real and holomorphic": Bad(
        lambda f: fx.grad(f, holomorphic=True)(X), TypeError, "holomorphic=True arguments must be complex, got f32"
    ),
    "grad: an object": Bad(
        lambda f: fx.grad(f)({"a": [NO_ARRAY]}),
        TypeError,
        r"grad of .* the argument `args\[0\]\['a'\]\[0\]` of f must be an array or a number, got an object of type obj",
    ),
    "grad: a string": Bad(
        lambda f: fx.grad(f)("word"), TypeError, "must be an array or a number, got 'word' of type str"
    ),
    "grad: a NumPy array of strings": Bad(lambda f: fx.grad(f)(np.array(["a"])), TypeError, "dtype"),
    "grad: a vector out": Bad(lambda f: fx.grad(f)(X), TypeError, r"must return a scalar, got f32\[3\]", after=True),
    "grad: a tree out": Bad(lambda f: fx.grad(lambda x: [f(x)])(1.0), TypeError, "must return one scalar", after=True),
    "grad: an int out": Bad(
        lambda f: fx.grad(lambda x: f(x).astype(np.int32))(1.0),
        TypeError,
        "output must be a float, got i32",
        after=True,
    ),
    "grad: complex out": Bad(
        lambda f: fx.grad(lambda x: f(x) * 1j)(1.0), TypeError, "output must be a float, got c64", after=True
    ),
    "grad: None out": Bad(
        lambda f: fx.grad(lambda x: [f(x), None][1])(1.0), TypeError, "must return one scalar", after=True
    ),
    "grad: an object out": Bad(
        lambda f: fx.grad(lambda x: [f(x), NO_ARRAY][1])(1.0),
        TypeError,
        "<lambda> at .*: the output must be an array",
        after=True,
    ),
    "grad: aux without a pair": Bad(
        lambda f: fx.grad(f, has_aux=True)(1.0), TypeError, r"pair \(output, aux\)", after=True
    ),
    "grad: aux of three": Bad(
        lambda f: fx.grad(lambda x: (f(x), 1, 2), has_aux=True)(1.0), TypeError, r"pair \(output, aux\)", after=True
    ),
    "value_and_grad: an int": Bad(lambda f: fx.value_and_grad(f)(3), TypeError, "grad of .* must be floats, got i32"),
    "value_and_grad: argnums": Bad(
        lambda f: fx.value_and_grad(f, 1)(1.0), ValueError, "grad of .* argnums 1 names argument 1"
    ),
    # ------------------------------------------------------------------ jvp
    "jvp: primals no tuple": Bad(lambda f: fx.jvp(f, X, X), TypeError, "jvp: primals must be a tuple or list"),
    "jvp: tangents no tuple": Bad(lambda f: fx.jvp(f, (X,), X), TypeError, "jvp: tangents must be a tuple or list"),
    "jvp: another number": Bad(
        lambda f: fx.jvp(f, (X,), (X, X)), TypeError, "jvp: tangents must have the structure of primals"
    ),
    "jvp: another tree": Bad(
        lambda f: fx.jvp(f, ([X],), ((X,),)), TypeError, "jvp: tangents must have the structure of primals"
    ),
    "jvp: another shape": Bad(
        lambda f: fx.jvp(f, (X,), (M,)), TypeError, r"tangents\[0\] must .* f32\[3\], .* f32\[2,3\]"
    ),
    "jvp: another dtype": Bad(
        lambda f: fx.jvp(f, (X,), (I,)), TypeError, r"tangents\[0\] must .* f32\[3\], .* i32\[3\]"
    ),
    "jvp: an int for a float": Bad(
        lambda f: fx.jvp(f, (1.0,), (1,)), TypeError, r"must be of type f32\[\], .* is of type i32\[\]"
    ),
    "jvp: a bool for a float": Bad(
        lambda f: fx.jvp(f, (1.0,), (True,)), TypeError, r"must be of type f32\[\], .* is of type bool\[\]"
    ),
    "jvp: a float for an int": Bad(
        lambda f: fx.jvp(f, (I,), (X,)), TypeError, r"float0\[3\], since primals\[0\] is an integer .* f32\[3\]"
    ),
    "jvp: an int for an int": Bad(
        lambda f: fx.jvp(f, (I,), (I,)), TypeError, r"float0\[3\], since primals\[0\] is an integer .* i32\[3\]"
    ),
    "jvp: a weak int for an int": Bad(
        lambda f: fx.jvp(f, (3,), (1,)), TypeError, r"float0\[\], since primals\[0\] is an integer .* i32\[\]"
    ),
    "jvp: a weak complex for a float": Bad(
        lambda f: fx.jvp(f, (1.0,), (1j,)), TypeError, r"must be of type f32\[\], .* is of type c64\[\]"
    ),
    "jvp: an object": Bad(lambda f: fx.jvp(f, (NO_ARRAY,), (1.0,)), TypeError, r"jvp: primals\[0\] must be an array"),
    "jvp: an object as tangent": Bad(
        lambda f: fx.jvp(f, (1.0,), (NO_ARRAY,)), TypeError, r"jvp: tangents\[0\] must be an array"
    ),
    # ------------------------------------------------------------------ vjp, linearize, linear_transpose
    "vjp: an object": Bad(lambda f: fx.vjp(f, NO_ARRAY), TypeError, r"vjp of .*: primals\[0\] must be an array"),
    "vjp: cotangent of another shape": Bad(
        lambda f: fx.vjp(f, X)[1](M), TypeError, r"the cotangent must .* f32\[3\], .* f32\[2,3\]", after=True
    ),
    "vjp: cotangent of another tree": Bad(
        lambda f: fx.vjp(f, X)[1]([X]),
        TypeError,
        "vjp: the cotangent must have the structure of",
        after=True,
    ),
    "vjp: an int as cotangent": Bad(
        lambda f: fx.vjp(f, 1.0)[1](1), ValueError, r"must be of type f32\[\], .* is of type i32\[\]", after=True
    ),
    "vjp: two cotangents": Bad(lambda f: fx.vjp(f, X)[1](X, X), TypeError, "positional argument", after=True),
    "linearize: an object": Bad(
        lambda f: fx.linearize(f, [NO_ARRAY]), TypeError, r"linearize of .*: primals\[0\]\[0\] must be an array"
    ),
    "linearize: tangent of another shape": Bad(
        lambda f: fx.linearize(f, X)[1](M), TypeError, r"tangents\[0\] must be of type f32\[3\]", after=True
    ),
    "linearize: an int as tangent": Bad(
        lambda f: fx.linearize(f, 1.0)[1](1), ValueError, r"must be of type f32\[\], .* is of type i32\[\]", after=True
    ),
    "linearize: another number": Bad(
        lambda f: fx.linearize(f, X)[1](X, X),
        TypeError,
        "linearize: tangents must have the structure",
        after=True,
    ),
    "linear_transpose: ints": Bad(
        lambda f: fx.linear_transpose(lambda x: f(x.astype("float32")), I),
        TypeError,
        r"linear_transpose: .*: this function takes \(i32\[3\]\) and returns \(f32\[",
        after=True,
    ),
    "linear_transpose: an object": Bad(
        lambda f: fx.linear_transpose(f, NO_ARRAY), TypeError, r"linear_transpose: primals\[0\] must be an array"
    ),
    "linear_transpose: not linear": Bad(
        lambda f: fx.linear_transpose(lambda x: fnp.sin(f(x)), X)(X),
        NotImplementedError,
        "a transposed function must be linear, but sin at .* has no transpose rule. The rule of a custom_jvp, too",
        after=True,
    ),
    "linear_transpose: a product": Bad(
        lambda f: fx.linear_transpose(lambda x: f(x) * x, X)(X),
        TypeError,
        r"is not linear in its inputs: mul at .*test_bad_input.py:\d+ .* is not linear in all of the operands",
        after=True,
    ),
    "linear_transpose: a quotient": Bad(
        lambda f: fx.linear_transpose(lambda x: 1.0 / f(x), X)(X),
        TypeError,
        r"is not linear in its inputs: div at .*test_bad_input.py:\d+ .* is not linear in all of the operands",
        after=True,
    ),
    "linear_transpose: a contraction": Bad(
        lambda f: fx.linear_transpose(lambda x: f(x) @ x, X)(1.0),
        TypeError,
        "is not linear in its inputs: dot_general",
        after=True,
    ),
    "linear_transpose: another shape": Bad(
        lambda f: fx.linear_transpose(f, X)(M), TypeError, r"cotangent must be of type f32\[3\]", after=True
    ),
    # ------------------------------------------------------------------ jacobians
    "jacfwd: argnums": Bad(lambda f: fx.jacfwd(f, 1)(X), ValueError, "jacfwd of .* argnums 1 names argument 1"),
    "jacrev: argnums": Bad(lambda f: fx.jacrev(f, (0, 0))(X), ValueError, "jacrev of .* names an argument twice"),
    "hessian: argnums": Bad(lambda f: fx.hessian(f, "a"), TypeError, "argnums must be an integer"),
    "jacfwd: ints": Bad(lambda f: fx.jacfwd(f)(I), TypeError, "jacfwd of .* must be floats, got i32.*convert it$"),
    "jacrev: ints": Bad(lambda f: fx.jacrev(f)(I), TypeError, "jacrev of .* must be floats, got i32"),
    "hessian: ints": Bad(lambda f: fx.hessian(f)(I), TypeError, "must be floats, got i32"),
    "jacfwd: complex": Bad(lambda f: fx.jacfwd(f)(C), TypeError, "complex arguments need holomorphic"),
    "jacrev: real and holomorphic": Bad(lambda f: fx.jacrev(f, holomorphic=True)(X), TypeError, "must be complex"),
    "jacrev: an int out": Bad(
        lambda f: fx.jacrev(lambda x: f(x).astype(np.int32))(X),
        TypeError,
        "output must be a float, got i32",
        after=True,
    ),
    "jacfwd: an object": Bad(lambda f: fx.jacfwd(f)(NO_ARRAY), TypeError, "jacfwd of .* must be an array"),
    # ------------------------------------------------------------------ vmap
    "vmap: in_axes beyond": Bad(
        lambda f: fx.vmap(f, in_axes=2)(M),
        ValueError,
        r"the argument `args\[0\]` of .*, f32\[2,3\], has no axis 2 to map over\. For an argument",
    ),
    "vmap: in_axes below": Bad(
        lambda f: fx.vmap(f, in_axes=-3)(M),
        ValueError,
        r"the argument `args\[0\]` of .*, f32\[2,3\], has no axis -3 to map over\. For an argument",
    ),
    "vmap: a scalar": Bad(lambda f: fx.vmap(f)(3.0), ValueError, r"f32\[\], has no axis 0 .* None"),
    "vmap: in_axes of another length": Bad(
        lambda f: fx.vmap(f, in_axes=(0,))(M, M), ValueError, "in_axes .* 1 entries, but there are 2 positional"
    ),
    "vmap: in_axes of another structure": Bad(
        lambda f: fx.vmap(f, in_axes=({"a": 0},))({"b": M}),
        ValueError,
        "in_axes must have the structure of the arguments",
    ),
    "vmap: in_axes a float": Bad(
        lambda f: fx.vmap(f, in_axes=1.0), TypeError, "in_axes must consist of integers and None, got 1.0"
    ),
    "vmap: in_axes a string": Bad(
        lambda f: fx.vmap(f, in_axes="a"), TypeError, "in_axes must consist of integers and None, got 'a'"
    ),
    "vmap: in_axes a bool": Bad(
        lambda f: fx.vmap(f, in_axes=(True,)), TypeError, "in_axes must consist of integers and None"
    ),
    "vmap: in_axes a dict": Bad(lambda f: fx.vmap(f, in_axes={"a": 0})({"a": M}), (TypeError, ValueError), "in_axes"),
    "vmap: out_axes a float": Bad(
        lambda f: fx.vmap(f, out_axes=(0.0,)), TypeError, "out_axes must consist of integers and None, got 0.0"
    ),
    "vmap: out_axes beyond": Bad(
        lambda f: fx.vmap(f, out_axes=2)(M), ValueError, "out_axes names axis 2 of an output with 2 axes", after=True
    ),
    "vmap: out_axes None": Bad(
        lambda f: fx.vmap(f, out_axes=None)(M), ValueError, "out_axes is None for an output that differs", after=True
    ),
    "vmap: out_axes of another structure": Bad(
        lambda f: fx.vmap(f, out_axes=(0, 1))(M),
        ValueError,
        "out_axes must have the structure of the output",
        after=True,
    ),
    "vmap: sizes differ": Bad(
        lambda f: fx.vmap(f)(M, X),
        ValueError,
        r"(?s)axis 0 of the argument .* size 2\n.* size 3",
    ),
    "vmap: axis_size differs": Bad(lambda f: fx.vmap(f, axis_size=3)(M), ValueError, "has size 2\n  axis_size is 3"),
    "vmap: nothing mapped": Bad(
        lambda f: fx.vmap(f, in_axes=None)(M), ValueError, "the size of the batch is unknown; pass axis_size"
    ),
    "vmap: no arguments": Bad(lambda f: fx.vmap(f)(), ValueError, "the size of the batch is unknown; pass axis_size"),
    "vmap: axis_size negative": Bad(
        lambda f: fx.vmap(f, in_axes=None, axis_size=-1)(M), (TypeError, ValueError), "axis_size .*-1"
    ),
    "vmap: axis_size a float": Bad(lambda f: fx.vmap(f, axis_size=2.0)(M), TypeError, "axis_size"),
    "vmap: axis_name not hashable": Bad(lambda f: fx.vmap(f, axis_name=[1])(M), TypeError, "axis_name"),
    "vmap: an object": Bad(
        lambda f: fx.vmap(f)([NO_ARRAY]), TypeError, r"vmap of .* `args\[0\]\[0\]` of f must be an array"
    ),
    "vmap: an object out": Bad(
        lambda f: fx.vmap(lambda x: [f(x), NO_ARRAY])(X),
        TypeError,
        r"<lambda> at .*: output\[1\] must be an array",
        after=True,
    ),
    # ------------------------------------------------------------------ jit
    "jit: an object": Bad(
        lambda f: fx.jit(f)([NO_ARRAY]),
        TypeError,
        r"jit: the argument `args\[0\]\[0\]` of .* must be an array or a number",
    ),
    "jit: a string": Bad(
        lambda f: fx.jit(f)(X, name="word"),
        TypeError,
        r"jit: the argument `name` of .* got 'word' of type str; if the program may depend on its value",
    ),
    "jit: static_argnums beyond": Bad(
        lambda f: fx.jit(lambda x: f(x), static_argnums=1),
        ValueError,
        "static_argnums names argument 1, but the function takes 1",
    ),
    "jit: static_argnums a string": Bad(
        lambda f: fx.jit(f, static_argnums="x"), TypeError, "static_argnums must be an integer"
    ),
    "jit: static_argnums a float": Bad(
        lambda f: fx.jit(f, static_argnums=(0.5,)), TypeError, "static_argnums must be an integer"
    ),
    "jit: static_argnames unknown": Bad(
        lambda f: fx.jit(lambda x: f(x), static_argnames="y"),
        ValueError,
        "static_argnames names 'y', which the function does not take by keyword; it takes x",
    ),
    "jit: static_argnames a number": Bad(
        lambda f: fx.jit(f, static_argnames=3), TypeError, "static_argnames|names of arguments"
    ),
    "jit: static_argnames of numbers": Bad(
        lambda f: fx.jit(f, static_argnames=(3,)), TypeError, "static_argnames must be a string"
    ),
    "jit: donate_argnums beyond": Bad(
        lambda f: fx.jit(lambda x: f(x), donate_argnums=2), ValueError, "donate_argnums names argument 2"
    ),
    "jit: donate_argnames unknown": Bad(
        lambda f: fx.jit(lambda x: f(x), donate_argnames="z"), ValueError, "donate_argnames names 'z'"
    ),
    "jit: static and donated": Bad(
        lambda f: fx.jit(lambda x, y: f(x), static_argnums=0, donate_argnames="x"),
        ValueError,
        "both static and donated",
    ),
    "jit: keep_unused no bool": Bad(lambda f: fx.jit(f, keep_unused="yes"), TypeError, "keep_unused"),
    "jit: an unhashable static": Bad(
        lambda f: fx.jit(lambda x, n: f(x), static_argnums=1)(X, [1]), ValueError, "static argument 1 must be hashable"
    ),
    "jit: a traced static": Bad(
        lambda f: fx.jit(lambda x: fx.jit(lambda y, n: f(y), static_argnums=1)(x, x))(X),
        ValueError,
        "static argument 1 must be hashable",
    ),
    "jit: too few arguments": Bad(
        lambda f: fx.jit(lambda x, y: f(x))(X), TypeError, "missing 1 required positional argument: 'y'"
    ),
    "jit: too many arguments": Bad(
        lambda f: fx.jit(lambda x: f(x))(X, X), TypeError, "takes 1 positional argument but 2 were given"
    ),
    "jit: an object out": Bad(
        lambda f: fx.jit(lambda x: {"a": f(x), "b": NO_ARRAY})(X),
        TypeError,
        r"output\['b'\] must be an array",
        after=True,
    ),
    "jit: unsortable keys": Bad(lambda f: fx.jit(f)({1: X, "a": X}), ValueError, "keys"),
    "lower: an object": Bad(lambda f: fx.jit(f).lower(NO_ARRAY), TypeError, "must be an array"),
    "lower: unknown option": Bad(
        lambda f: fx.jit(lambda x: x * 2).lower(X).compile({"no_such_option": True}), Exception, "no_such_option"
    ),
    # ------------------------------------------------------------------ other functions
    "make_jaxpr: static_argnums": Bad(
        lambda f: fx.make_jaxpr(lambda x: f(x), static_argnums=1), ValueError, "static_argnums names argument 1"
    ),
    "make_jaxpr: static_argnums a string": Bad(
        lambda f: fx.make_jaxpr(f, static_argnums="x"), TypeError, "static_argnums must be an integer"
    ),
    "make_jaxpr: an object": Bad(lambda f: fx.make_jaxpr(f)(NO_ARRAY), TypeError, "make_jaxpr of .* must be an array"),
    "make_jaxpr: unhashable": Bad(
        lambda f: fx.make_jaxpr(lambda x, n: f(x), static_argnums=1)(X, []),
        ValueError,
        "make_jaxpr of .* must be hashable",
    ),
    "eval_shape: an object": Bad(lambda f: fx.eval_shape(f, NO_ARRAY), TypeError, "eval_shape of .* must be an array"),
    "jaxpr_as_fun: a function": Bad(lambda f: fx.jaxpr_as_fun(f), TypeError, "jaxpr_as_fun takes a ClosedJaxpr"),
    "jaxpr_as_fun: another number": Bad(
        lambda f: fx.jaxpr_as_fun(fx.make_jaxpr(fnp.sin)(X))(X, X), TypeError, "1 inputs?|was given 2 arguments"
    ),
    "ShapeDtypeStruct: a negative size": Bad(lambda f: fx.ShapeDtypeStruct((-1,), np.float32), ValueError, "negative"),
    "ShapeDtypeStruct: a float": Bad(
        lambda f: fx.ShapeDtypeStruct((1.5,), np.float32), TypeError, "shape must consist of integers"
    ),
    "ShapeDtypeStruct: no dtype": Bad(lambda f: fx.ShapeDtypeStruct((1,), "float33"), TypeError, "float33"),
    "named_scope: a number": Bad(lambda f: fx.named_scope(3), TypeError, "named_scope needs a string, got 3"),
    "named_call: a number": Bad(lambda f: fx.named_call(f, name=3)(X), TypeError, "string or None, got 3"),
    "disable_jit: a number": Bad(lambda f: fx.disable_jit(1), TypeError, "disable_jit takes True or False, got 1"),
    "enable_x64: a string": Bad(lambda f: fx.enable_x64("yes"), TypeError, "enable_x64 takes True or False, got 'yes'"),
    "device_put: an object": Bad(
        lambda f: fx.device_put([NO_ARRAY]), TypeError, r"device_put: x\[0\] must be an array"
    ),
    "device_put: no device": Bad(lambda f: fx.device_put(X, "cpu"), TypeError, "device"),
    "devices: a number": Bad(lambda f: fx.devices(3), TypeError, "a platform must be a string such as 'cpu', got 3"),
}


@pytest.mark.parametrize("name", TABLE)
def test_invalid_arguments_raise(name: str) -> None:
    bad = TABLE[name]
    calls: list[object] = []

    def f(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return args[0]

    with pytest.raises(bad.error, match=bad.says):
        bad.call(f)
    assert bool(calls) == bad.after, "the function was called" if calls else "the function was not called"
    assert current() is ROOT


def test_error_messages_contain_the_function_name() -> None:
    def loss(x: Any) -> Any:
        return x

    calls: list[Case] = [
        lambda F, N: F.grad(loss)(I),
        lambda F, N: F.grad(loss, 1)(X),
        lambda F, N: F.vmap(loss, in_axes=3)(X),
        lambda F, N: F.jacrev(loss)(I),
        lambda F, N: F.jit(loss)("word"),
        lambda F, N: F.vjp(loss, "word"),
        lambda F, N: F.make_jaxpr(loss)("word"),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError), match="of loss"):
            call(fx, fnp)


def test_partial_function_has_the_name_of_its_function() -> None:
    def power(x: Any, n: int) -> Any:
        return x**n

    assert "@jit_power" in fx.jit(functools.partial(power, n=2)).lower(1.0).as_text()
    with pytest.raises(TypeError, match="of power"):
        fx.grad(functools.partial(power, n=2))(1)


def test_message_names_few_of_many_arguments() -> None:
    with pytest.raises(TypeError, match=r"depends on the argument `p\['a'\]` of .* and 3 more\."):
        fx.jit(lambda p: float(sum(p.values())))(dict.fromkeys("abcdef", 1.0))
