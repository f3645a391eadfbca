"""Import rule for `call_hi_primitive`, which applies a `HiPrim`: an object with an expansion and rules of its own.

With some settings JAX represents `custom_jvp`, `custom_vjp`, checkpoints and checkpoint names as such objects; these
become the corresponding tracefx primitives. Other objects keep their JAX rules, like primitives of other libraries,
unless the rules agree with those of the expansion: then the expansion is inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import jax
from jax.experimental import hijax

from tracefx.control.checkpoint import CheckpointName
from tracefx.core import Value
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.interop.jax.foreign_primitives import ForeignPrimitive, ParameterizedPrimitive
from tracefx.interop.jax.importing_control import bind_checkpoint
from tracefx.interop.jax.importing_custom_rules import CustomRule, bind_custom_jvp, bind_custom_vjp
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, ImportRule, JaxEquation, result_types
from tracefx.transforms.arguments import fun_name

_HiRule: TypeAlias = Callable[[Importer, JaxEquation, Sequence[Value], Any], Sequence[Value]]
_HI_PRIM: Final[Any] = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive
"""The base class of these objects, named VJPHiPrimitive before JAX 0.11."""


def _call_hi_primitive(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    prim = eqn.params["_prim"]
    prim_class = type(prim)
    rule = _HI_RULES.get(f"{prim_class.__module__}.{prim_class.__qualname__}")
    if rule is not None:
        return rule(importer, eqn, args, prim)
    if eqn.effects:
        raise importer.missing_rule_error(f"{eqn.primitive.name}: {prim_class.__name__}")
    if prim_class.jvp is _HI_PRIM.jvp and prim_class.vjp_fwd is not _HI_PRIM.vjp_fwd:
        return _reverse_mode(importer, eqn, args, prim)
    foreign = ParameterizedPrimitive(importer, eqn.primitive, eqn.params, _expansion_function(eqn))
    return bind(ForeignPrimitive(prim_class.__name__, foreign, tuple(result_types(eqn))), *args)


def _expansion_function(eqn: JaxEquation) -> Callable[..., Any]:
    """Returns the expansion as a function of flat operands and of the parameters."""
    primitive: Any = eqn.primitive  # its methods are untyped
    expanded: Callable[..., Any] = primitive.to_lojax
    return expanded


def _expansion_program(importer: Importer, eqn: JaxEquation, args: Sequence[Value]) -> ImportedProgram:
    """Imports the expansion as a jaxpr."""
    expanded = _expansion_function(eqn)
    avals = [x.aval for x in args]
    traced = importer.trace_like(lambda *xs: expanded(*xs, **eqn.params), avals, [v.aval for v in eqn.invars])
    return importer.program(traced, avals)


def _inline_expansion(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    program = _expansion_program(importer, eqn, args)
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])


# ------------------------------------------------------------------ user-defined derivatives


def _num_consts(prim: Any, has_consts: bool) -> int:
    """Returns the number of closed-over values, which are the leaves of the first argument if there are any."""
    return len(jax.tree_util.tree_leaves(prim.in_avals[0])) if has_consts else 0


def _custom_jvp(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Imports a `custom_jvp`. Since JAX 0.12 the rule is `jvp_rule`, and closed-over values are operands."""
    params = prim.params
    num_consts = _num_consts(prim, "jvp_rule" in params)
    jvp = params["jvp_rule"] if "jvp_rule" in params else params["jvp_fun"]
    custom = CustomRule(prim.traced.fun_name, _expansion_program(importer, eqn, args), num_consts, prim.symbolic_zeros)
    return bind_custom_jvp(importer, eqn, args, custom, fun_name(jvp))


def _custom_vjp(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Imports a `custom_vjp`. Since JAX 0.11 closed-over values are operands."""
    num_consts = _num_consts(prim, hasattr(type(prim), "drop_fwd_consts"))
    custom = CustomRule(prim.traced.fun_name, _expansion_program(importer, eqn, args), num_consts, prim.symbolic_zeros)
    return bind_custom_vjp(importer, eqn, args, custom, fun_name(prim.fwd), fun_name(prim.bwd))


def _reverse_mode(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Imports an object with reverse-mode derivatives only."""
    prim_class = type(prim)
    custom = CustomRule(prim_class.__name__, _expansion_program(importer, eqn, args), 0, False)
    return bind_custom_vjp(
        importer, eqn, args, custom, fun_name(prim_class.vjp_fwd), fun_name(prim_class.vjp_bwd_retval)
    )


# ------------------------------------------------------------------ checkpoints


def _checkpoint(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return bind_checkpoint(importer, prim.params, args)


def _name(importer: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return bind(CheckpointName(prim.name), *args)


_HI_RULES: Final[Mapping[str, _HiRule]] = MappingProxyType(
    {
        "jax._src.ad_checkpoint.CheckpointName": _name,
        "jax._src.ad_checkpoint.RematTraced": _checkpoint,
        "jax._src.hijax.CustomJVPTraced": _custom_jvp,
        "jax._src.hijax.CustomVJPTraced": _custom_vjp,
        "jax._src.numpy.hijax.Einsum": _inline_expansion,
        "jax._src.numpy.hijax.Nonzero": _inline_expansion,
        "jax._src.numpy.hijax.SearchSorted": _inline_expansion,
    }
)
"""Import rules by class of the object. An object is inlined where its rules agree with its expansion's."""

RULES: Final[Mapping[str, ImportRule]] = MappingProxyType({"call_hi_primitive": _call_hi_primitive})
"""Import rules by name of JAX's primitive."""
