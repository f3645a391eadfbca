"""`custom_linear_solve` as a primitive: the solution of a linear equation, differentiated implicitly.

The tangent `dx` of the solution of `A x = b` solves `A dx = db - dA x`, and the cotangent of `b` solves the transposed
equation with the cotangent of `x` on its right-hand side. The solver itself is never differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize_on_object
from tracefx.control.call import Call
from tracefx.control.control_flow import ControlFlowPrimitive, unify_consts
from tracefx.core import ShapedArray, Value, accepts, show_avals
from tracefx.core.avals import join_vma
from tracefx.core.backend import BACKEND
from tracefx.core.handler import bind
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.primitive import BatchDims, MappedAxis, Tangent, UndefinedPrimal, Zero
from tracefx.interpreters.body_transform import BodyInterpreter, BodyName, TransformedBody, unpack_results
from tracefx.interpreters.jaxpr_transforms import Consts, batch_jaxpr, jvp_jaxpr
from tracefx.interpreters.masks import Mask, drop_zeros, insert_zeros, known_values, linear_mask, nonzero_mask
from tracefx.lowering import Builder, IrValue
from tracefx.ops.collectives.collective import from_unreduced, to_unreduced
from tracefx.ops.elementwise.arithmetic import neg
from tracefx.ops.elementwise.elementwise import add_tangents
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.structural import batch_first, instantiate, match_aval
from tracefx.passes.dce import dce
from tracefx.passes.varying import Retype

_HIDDEN: Final = {"hide_default": True, "erased": True, "jax": False}


@final
@frozen(eq=False)
class LinearSolve(ControlFlowPrimitive):
    """The primitive of `custom_linear_solve`: the `x` for which `matvec(consts, x)` is `b`.

    The operands are the constants, which all jaxprs take, and `b`.

    Args:
        num_consts: The number of constants.
        matvec: The linear map.
        solve: Maps the constants and `b` to `x`, and possibly to auxiliary outputs after it.
        vecmat: The transpose of the linear map; `None` for no reverse mode.
        transpose_solve: Solves the transposed equation; `None` for no reverse mode.
        axes: The checked mesh axes, with their sizes. None by default.
    """

    name = "custom_linear_solve"
    num_consts: int
    matvec: Jaxpr
    solve: Jaxpr
    vecmat: Jaxpr | None
    transpose_solve: Jaxpr | None
    axes: tuple[tuple[str, int], ...] = field(default=(), metadata=_HIDDEN)

    @override
    def jaxprs(self) -> tuple[Jaxpr, ...]:
        return tuple([j for j in (self.matvec, self.solve, self.vecmat, self.transpose_solve) if j is not None])

    @override
    def with_jaxprs(self, *jaxprs: Jaxpr) -> LinearSolve:
        matvec, solve, *rest = jaxprs
        vecmat, transpose_solve = rest or (None, None)
        return LinearSolve(self.num_consts, matvec, solve, vecmat, transpose_solve, self.axes)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        if not accepts(self.solve.in_avals, avals):
            raise TypeError(f"{self.name} takes ({show_avals(self.solve.in_avals)}), got ({show_avals(avals)})")
        return self.solve.out_avals

    @override
    def with_operand_types(self, avals: Sequence[ShapedArray], retype: Retype) -> LinearSolve:
        consts, b = avals[: self.num_consts], avals[self.num_consts :]
        while True:  # fixed point: the right-hand side varies over the same mesh axes as the solution
            typed = ControlFlowPrimitive.with_operand_types(self, [*consts, *b], retype)
            wider = [
                a.with_vma(join_vma((a, product, x)))
                for a, product, x in zip(b, typed.matvec.out_avals, typed.solve.out_avals, strict=False)
            ]
            if wider == list(b):
                return typed
            b = wider

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        return BACKEND.value.run(self.solve, args, self.name)

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        return builder.call(self.name, self.solve, operands)

    @override
    def prune(self, used_outs: tuple[bool, ...]) -> tuple[LinearSolve, tuple[bool, ...], tuple[bool, ...]]:
        """Keeps all outputs: the solution is computed as a whole."""
        return self, (True,) * len(self.solve.invars), (True,) * len(used_outs)

    # -------------------------------------------------------------- interpreting the jaxprs

    @override
    def transform_bodies(self, interpreter: BodyInterpreter, args: Sequence[Value]) -> Sequence[Value]:
        """Keeps the equation, unless the handler has own values, which the solver would have to handle.

        State and collected values come from a separate run of the solver, which has no derivatives.
        """
        specs = [interpreter.spec(x) for x in args]
        if any(spec.tree is not None for spec in specs):
            return interpreter.interpret(self.solve, args)
        bodies = [interpreter.transform_body(body, specs, BodyName(self.name)) for body in self.jaxprs()]
        if any(o.tree is not None for body in bodies for o in body.outs):
            return interpreter.interpret(self.solve, args)
        solve_body, has_extra = bodies[1], any(b.state is not None or b.collected for b in bodies)
        if has_extra and any(body.jaxpr.effects for body in bodies):  # effects must not run twice
            return interpreter.interpret(self.solve, args)
        jaxprs, consts = unify_consts([_drop_collected(interpreter, body) for body in bodies])
        op = evolve(self.with_jaxprs(*jaxprs), num_consts=self.num_consts + len(consts))
        outs = bind(op, *consts, *args)
        if solve_body.state is not None or solve_body.collected:
            stopped = [stop_gradient(x) for x in args]
            state = interpreter.state(solve_body.input_state)
            results = bind(Call(self.name, solve_body.jaxpr), *solve_body.consts, *state, *stopped)
            unpack_results(interpreter, solve_body, results)
        return outs

    # -------------------------------------------------------------- differentiation

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        n = self.num_consts
        outs = bind(self, *primals)
        consts, size = primals[:n], len(primals) - n
        rhs: list[Tangent] = list(tangents[n:])
        nonzero = (*nonzero_mask(tangents[:n]), *(False,) * size)
        if any(nonzero):
            derived = jvp_jaxpr(self.matvec, nonzero)
            op = Call("matvec", derived.jaxpr)
            moved = bind(op, *derived.consts, *consts, *outs[:size], *drop_zeros(tangents[:n]))[size:]
            changes = insert_zeros(moved, derived.out_nonzero, self.matvec.out_avals)
            rhs = [_sub_tangents(db, change) for db, change in zip(rhs, changes, strict=True)]
        if all(isinstance(t, Zero) for t in rhs):
            return outs, [Zero(o.aval.tangent()) for o in outs]
        operands = [match_aval(instantiate(t), p.aval) for t, p in zip(rhs, primals[n:], strict=True)]
        solved = bind(self, *consts, *operands)
        return outs, [*solved[:size], *[Zero(o.aval.tangent()) for o in outs[size:]]]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        n = self.num_consts
        if any(linear_mask(args[:n])):
            raise TypeError("custom_linear_solve is linear only in its right-hand side, not in what matvec depends on")
        if self.vecmat is None or self.transpose_solve is None:
            raise TypeError(
                "reverse-mode differentiation of custom_linear_solve needs transpose_solve, to solve the transposed "
                "equation; or pass symmetric=True if matvec is its own transpose"
            )
        op = LinearSolve(n, self.vecmat, self.transpose_solve, self.matvec, self.solve, self.axes)
        # The transposed equation holds for reduced cotangents: an iterative solver needs these to test convergence.
        vma = [aval.vma for aval in self.solve.in_avals[n:]]
        rhs = [from_unreduced(instantiate(ct), known, self.axes) for ct, known in zip(cts, vma, strict=False)]
        outs = bind(op, *known_values(args[:n]), *rhs)
        unreduced = [to_unreduced(out, known, self.axes) for out, known in zip(outs, vma, strict=False)]
        pulled = zip(unreduced, args[n:], strict=True)
        return [*(None,) * n, *[ct if isinstance(a, UndefinedPrimal) else None for ct, a in pulled]]

    # -------------------------------------------------------------- batching

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        n = self.num_consts
        op, extra, batched, out_dims = self._batch(axis, tuple(dims))
        sides = zip(args[n:], dims[n:], batched, strict=True)
        operands = [batch_first(x, d, axis) if b else x for x, d, b in sides]
        return bind(op, *extra, *args[:n], *operands), out_dims

    @memoize_on_object
    def _batch(
        self, axis: MappedAxis, dims: tuple[int | None, ...]
    ) -> tuple[LinearSolve, Consts, Mask, tuple[int | None, ...]]:
        n = self.num_consts
        consts, batched = dims[:n], tuple([d is not None for d in dims[n:]])
        size = len(batched)
        while True:  # fixed point: a part of b is batched if the same part of x is, and vice versa
            positions = (*consts, *[0 if b else None for b in batched])
            bodies = [
                batch_jaxpr(body, axis, positions, batched + (False,) * (len(body.outs) - size))
                for body in self.jaxprs()
            ]
            outs = [tuple([d is not None for d in body.out_dims[:size]]) for body in bodies]
            more = tuple(map(any, zip(batched, *outs, strict=True)))
            if more == batched:
                break
            batched = more
        jaxprs, extra = unify_consts([(body.jaxpr, body.consts) for body in bodies])
        op = evolve(self.with_jaxprs(*jaxprs), num_consts=n + len(extra))
        return op, extra, batched, bodies[1].out_dims


def _sub_tangents(x: Tangent, y: Tangent) -> Tangent:
    return x if isinstance(y, Zero) else add_tangents(x, neg(y))


def _drop_collected(interpreter: BodyInterpreter, body: TransformedBody) -> tuple[Jaxpr, Consts]:
    """Returns the jaxpr without state and collected outputs, and its constants, which include the current state."""
    num_state = 0 if body.state is None else len(body.state.avals)
    used = [num_state <= i < num_state + len(body.outs) for i in range(len(body.jaxpr.outs))]
    return dce(body.jaxpr, used), (*body.consts, *interpreter.state(body.input_state))
