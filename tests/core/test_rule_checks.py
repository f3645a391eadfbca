"""User-defined primitives: their rules, parameters and classes are checked."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import error_message, untyped
from tests.primitives import SameTypes
from tracefx import lax, ops
from tracefx.extend import (
    Batchable,
    Differentiable,
    Expandable,
    Interpreter,
    Lowerable,
    Primitive,
    ShapedArray,
    Transposable,
    Value,
    as_array,
    bind,
    bind1,
    rule,
)
from tracefx.ops.operation import Operation


@frozen(eq=False)
class Same(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """The identity, except that the rule `wrong` returns `result(*operands)`."""

    name = "same"
    wrong: str = ""
    result: Callable[..., Any] = tuple

    def _rule(self, name: str, right: Any, *operands: Any) -> Any:
        return self.result(*operands) if self.wrong == name else right

    @override
    def impl(self, *args: Any) -> Any:
        return self._rule("impl", args, *args)

    @override
    def abstract_eval(self, *avals: Any) -> Any:
        return self._rule("abstract_eval", avals, *avals)

    @override
    def jvp(self, primals: Any, tangents: Any) -> Any:
        return self._rule("jvp", ([bind1(self, *primals)], [bind1(self, *tangents)]), *primals, *tangents)

    @override
    def transpose(self, cts: Any, *args: Any) -> Any:
        return self._rule("transpose", cts, *cts)

    @override
    def batch(self, axis: Any, args: Any, dims: Any) -> Any:
        return self._rule("batch", ([bind1(self, *args)], dims), *args, *dims)

    @override
    def lower(self, builder: Any, *operands: Any) -> Any:
        return self._rule("lower", operands, *operands)


def grad_of_sum(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return fx.grad(lambda x: f(x).sum())


X = np.ones((3, 1), np.float32)

WRONG: dict[str, tuple[str, Callable[[Any], Any], Callable[..., Any], str]] = {
    "impl returns an array": ("impl", lambda f: f, lambda x: x, "a NumPy array float32[3, 1], expected the list"),
    "impl returns two": ("impl", lambda f: f, lambda x: [x, x], "[a NumPy array float32[3, 1], a NumPy"),
    "impl returns another dtype": ("impl", lambda f: f, lambda x: [x.astype(int)], "[a NumPy array int64[3, 1]]"),
    "abstract_eval returns an aval": ("abstract_eval", fx.jit, lambda x: x, "f32[3,1], expected a list of ShapedArray"),
    "jvp returns arrays": ("jvp", grad_of_sum, lambda x, t: (x, t), "(f32[3,1], f32[3,1]), expected the results and"),
    "jvp returns another shape": ("jvp", grad_of_sum, lambda x, t: ([x], [t[0]]), "([f32[3,1]], [f32[1]])"),
    "jvp returns a number": ("jvp", grad_of_sum, lambda x, t: ([x], [1.0]), "([f32[3,1]], [1.0 of type float])"),
    "jvp returns no tangents": ("jvp", grad_of_sum, lambda x, t: [x], "[f32[3,1]], expected"),
    "transpose returns an array": ("transpose", grad_of_sum, lambda ct: ct, "f32[3,1], expected the list [f32[3,1]]"),
    "transpose returns None": ("transpose", grad_of_sum, lambda ct: [None], "[None], expected the list [f32[3,1]]"),
    "transpose returns another shape": ("transpose", grad_of_sum, lambda ct: [ct[0]], "[f32[1]], expected the list"),
    "batch returns an array": ("batch", fx.vmap, lambda x, d: (x, d), "(f32[3,1], 0), expected the results, [f32[1]]"),
    "batch returns another axis": ("batch", fx.vmap, lambda x, d: ([x], [1]), "([f32[3,1]], [1]), expected"),
    "batch returns too many axes": ("batch", fx.vmap, lambda x, d: ([x], [d, d]), "([f32[3,1]], [0, 0]), expected"),
    "lower returns a value": ("lower", fx.jit, lambda x: x, "f32[3,1], expected the list [f32[3,1]]"),
    "lower returns nothing": ("lower", fx.jit, lambda x: [], "[], expected the list [f32[3,1]]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_results_of_rules_are_errors(case: str) -> None:
    rule, transform, result, returned = WRONG[case]

    def program(x: Any) -> Any:
        return bind1(Same(rule, result), x)

    message = error_message(lambda: transform(program)(X), TypeError)
    line = program.__code__.co_firstlineno + 1
    assert message.startswith(f"the rule Same.{rule} ({__file__}:")
    assert f" for same at {__file__}:{line} (" in message
    assert f" returned {returned}" in message
    assert np.asarray(transform(lambda x: bind1(Same(), x))(X)).shape == X.shape, "the right rules are accepted"


def test_wrong_expansions_are_errors() -> None:
    class OnlyExpanded(SameTypes, Expandable):
        name = "only_expanded"

        @override
        def expand(self, *args: Any) -> Any:
            return as_array(args[0]) + 1  # an array of one element, where a list is expected

    for transform in (fx.jit, grad_of_sum, fx.vmap):
        with pytest.raises(
            TypeError, match=r"OnlyExpanded\.expand .* returned f32\[1\], expected the list \[f32\[1\]\]"
        ):
            transform(lambda x: bind1(OnlyExpanded(), x))(X if transform is fx.vmap else X[0])


def test_overriding_rules_may_call_the_inherited_ones() -> None:
    """The inherited rule is not checked alone; `super()` works in copies that attrs makes of classes with slots."""

    @frozen(eq=False)
    class Twice(Same):
        name = "twice"

        @override
        def abstract_eval(self, *avals: Any) -> Any:
            (aval,) = super().abstract_eval(*avals)
            return [aval.with_axis(2, 0)]

        @override
        def impl(self, *args: Any) -> Any:
            return [np.stack([*super().impl(*args)] * 2)]

        @override
        def batch(self, axis: Any, args: Any, dims: Any) -> Any:
            outs, dims = super().batch(axis, args, dims)
            return outs, [dim + 1 for dim in dims]

    assert bind1(Twice(), X).shape == (2, 3, 1)
    assert fx.vmap(lambda x: bind1(Twice(), x))(X).shape == (3, 2, 1)


def test_results_of_kernels_are_checked() -> None:
    class Summed(Operation):
        __slots__ = ()
        name = "summed"

        @override
        def out_aval(self, *avals: ShapedArray) -> ShapedArray:
            return avals[0]

        @override
        def kernel(self, *args: Any) -> Any:
            return args[0].sum()

    with pytest.raises(TypeError, match=r"Summed\.kernel .* returned a NumPy array float32\[\], expected .* \(3, 1\)"):
        bind1(Summed(), X)  # type: ignore[abstract]  # the other rules are not needed here


# ------------------------------------------------------------------ parameters and classes


@frozen(eq=False)
class Scale(SameTypes):
    name = "scale"
    factor: object

    @override
    def impl(self, *args: Any) -> Any:
        return list(args)


@pytest.mark.parametrize(
    ("factor", "remedy"),
    [
        ([1, 2], "list is not: use a tuple"),
        ({"a": 1}, "dict is not: use a tuple"),
        ((1, [2]), "list is not: use a tuple"),
        (np.ones(2), "ndarray is not: pass arrays as operands"),
        (fnp.ones(2), "ConcreteArray is not: pass arrays as operands"),
    ],
    ids=["list", "dict", "nested list", "ndarray", "array"],
)
def test_parameters_must_be_hashable(factor: object, remedy: str) -> None:
    message = error_message(lambda: Scale(factor), TypeError)
    assert message.startswith(f"the field 'factor' of the primitive 'scale' is {factor!r} at {__file__}:")
    assert message.endswith(remedy + (", bind(prim, x, array)" if "operands" in remedy else ""))


@pytest.mark.parametrize("transform", [fx.jit, fx.grad], ids=["jit", "grad"])
def test_parameters_must_not_be_traced(transform: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"the field 'factor' of the primitive 'scale' is \w+Tracer.*pass arrays as op"):
        transform(lambda x: bind1(Scale(x), 2.0))(3.0)


def test_checked_primitives_can_be_copied_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(Scale(2))) == copy.copy(Scale(2)) == Scale(2) != Scale(2.0)


def test_primitives_need_a_name() -> None:
    class LogCosh(Primitive):
        pass

    with pytest.raises(TypeError, match=re.escape("class LogCosh has no name: write `name = 'log_cosh'` in the class")):
        LogCosh()


def test_parameters_need_the_decorator() -> None:
    class Power(Primitive):
        name = "power"
        exponent: int

    with pytest.raises(TypeError, match=r"class Power has no parameters: .* decorate it with attrs.frozen\(eq=False\)"):
        untyped(Power)(2)


def test_objects_that_are_not_primitives_cannot_be_bound() -> None:
    message = "bind takes an instance of a primitive class, got "
    scale, sin = cast(Primitive, Scale), cast(Primitive, "sin")
    for apply in (bind, bind1):
        assert error_message(partial(apply, scale, 1.0)) == f"{message}the class Scale: write Scale()"
        assert error_message(partial(apply, sin, 1.0)) == f"{message}'sin'"


def test_bind1_of_several_results() -> None:
    (eqn,) = fx.make_jaxpr(lambda x: lax.top_k(x, 1))(fnp.ones(3)).eqns
    call = partial(bind1, eqn.prim, fnp.ones(3))
    for f in (call, fx.jit(call)):
        assert error_message(f) == "bind1 is for primitives with one result, but top_k has 2: write bind"


def test_classes_with_rules_that_are_not_primitives() -> None:
    class Twice(Expandable):
        name = "twice"

        def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
            return avals

        @override
        def expand(self, *args: Any) -> Sequence[Any]:
            return [2.0 * args[0]]

    twice = cast(Primitive, Twice())
    for apply in (bind, bind1):
        call = partial(apply, twice)
        for f in (call, fx.jit(call), fx.vmap(call), fx.grad(call)):
            message = error_message(partial(f, fnp.ones(3)))
            assert message.endswith(
                "the class Twice has to inherit from Primitive, besides the base classes for its rules"
            )


def test_dataclasses_are_not_primitives() -> None:
    @dataclasses.dataclass(frozen=True)
    class Power(Scale):
        exponent: int = 2

    with pytest.raises(TypeError, match=r"Power is a dataclass, .* decorate it with attrs\.frozen\(eq=False\)"):
        Power(1)


PARAMETERS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "jvp with too few": (lambda self, primals: 0, "(self, primals)", "jvp(self, primals, tangents)"),
    "jvp with too many": (lambda self, p, t, axis: 0, "(self, p, t, axis)", "jvp(self, primals, tangents)"),
    "batch": (lambda self, args, dims: 0, "(self, args, dims)", "batch(self, axis, args, dims)"),
    "transpose": (lambda self: 0, "(self)", "transpose(self, cts, *args)"),
    "lower": (lambda self: 0, "(self)", "lower(self, builder, *operands)"),
    "impl": (lambda: 0, "()", "impl(self, *args)"),
    "expand": (lambda: 0, "()", "expand(self, *args)"),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters_of_rules_are_checked_when_the_class_is_defined(case: str) -> None:
    rule, given, expected = PARAMETERS[case]
    name = rule.__name__ = case.partition(" ")[0]
    rule.__qualname__ = f"Wrong.{name}"
    message = error_message(lambda: type("Wrong", (Primitive,), {"name": "wrong", name: rule}), TypeError)
    where = f"{__file__}:{rule.__code__.co_firstlineno}"
    assert message == f"the rule Wrong.{name} ({where}) for wrong has the parameters {given}, expected {expected}"


def of_two(name: str) -> Primitive:
    """Returns a primitive whose rule with this name takes two operands, its other rules any number."""
    rules: dict[str, Callable[..., Any]] = {
        "impl": lambda self, x, y: [x],
        "abstract_eval": lambda self, x, y: [x],
        "transpose": lambda self, cts, x, y: cts,
        "lower": lambda self, builder, x, y: [x],
    }
    rule = rules[name]
    rule.__name__, rule.__qualname__ = name, f"OfTwo.{name}"
    return cast(Primitive, type("OfTwo", (Same,), {"name": "of_two", name: rule})())


@pytest.mark.parametrize(
    ("name", "transform"),
    [("impl", lambda f: f), ("abstract_eval", fx.jit), ("transpose", grad_of_sum), ("lower", fx.jit)],
)
def test_number_of_operands_of_rules(name: str, transform: Callable[[Any], Any]) -> None:
    prim = of_two(name)

    def program(x: Any) -> Any:
        return bind1(prim, x)

    message = error_message(lambda: transform(program)(X), TypeError)
    assert message.startswith(f"the rule OfTwo.{name} ({__file__}:")
    assert f" for of_two at {__file__}:{program.__code__.co_firstlineno + 1} (" in message
    assert message.endswith(", for 1 operand")


def test_errors_in_rules_are_not_errors_of_their_parameters() -> None:
    def fail(*args: Any) -> Any:
        raise TypeError("a message")

    assert error_message(lambda: bind1(Same("impl", fail), X), TypeError) == "a message"
    assert error_message(lambda: fx.jit(lambda x: bind1(Same("lower", fail), x))(X), TypeError) == "a message"


def test_parameters_of_rules_of_handlers() -> None:
    def without_op() -> object:
        class WithoutOp(Interpreter):
            @untyped(rule(ops.Exp, ops.Log))
            def wrong(self) -> Any:
                return 0.0

        return WithoutOp

    start = "the rule test_parameters_of_rules_of_handlers.<locals>."
    message = error_message(without_op, TypeError)
    assert message.startswith(f"{start}without_op.<locals>.WithoutOp.wrong ({__file__}:")
    assert message.endswith("for Exp, Log has the parameters (self), expected wrong(self, op, *operands)")

    class OfOne(Interpreter):
        @rule(ops.Exp, ops.Add)
        def one(self, op: ops.Exp | ops.Add, x: Value) -> Value:
            return bind1(op, x)

    message = error_message(lambda: fx.handle(lambda x: fnp.exp(x) + x, OfOne())(1.0), TypeError)
    assert message.startswith(f"{start}OfOne.one ({__file__}:")
    assert f" for add at {__file__}:" in message
    assert message.endswith("has the parameters (self, op, x), expected one(self, op, *operands), for 2 operands")


def test_wrong_attributes_are_errors() -> None:
    def emit(builder: Any, x: Any) -> Any:
        return builder.emit("stablehlo.reverse", [x], [x.aval], {"dimensions": [0]})

    prim = type("Wrong", (Same,), {"lower": lambda self, builder, x: emit(builder, x)})()
    with pytest.raises(TypeError, match=r"an attribute is a bool, an int, .* or an MlirText, got \[0\]"):
        fx.jit(lambda x: bind1(prim, x))(X)
