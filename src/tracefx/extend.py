"""The interface for user-defined primitives and handlers.

A primitive is a frozen class that inherits from `Primitive`, and from one capability per rule beyond `impl` and
`abstract_eval`: `Differentiable`, `Transposable`, `Batchable`, `Lowerable`; or from `Expandable`, which replaces all of
them. A handler inherits from `Interpreter` and has a method for each primitive that it handles, decorated with `rule`;
or it inherits from `Handler` and interprets all primitives in its method `bind`. Families of primitives, `Elementwise`,
`LinearOperation`, `Reduction`, ..., are base classes of the built-in primitives and of yours: they provide the rules
that their members share, and a handler can have one rule for all of them.

>>> class Cube(Primitive):
...     name = "cube"
...     def impl(self, *args):
...         return [args[0] ** 3]
>>> bind1(Cube(), 2.0)
Array(8., dtype=float32)
"""

from __future__ import annotations

from tracefx.control.call import CallPrimitive as CallPrimitive
from tracefx.core.array import Array as Array
from tracefx.core.array import ArrayLike as ArrayLike
from tracefx.core.avals import ShapedArray as ShapedArray
from tracefx.core.body_transform import BodyInterpreter as BodyInterpreter
from tracefx.core.body_transform import BodyKind as BodyKind
from tracefx.core.body_transform import BodyName as BodyName
from tracefx.core.body_transform import BodyTransformable as BodyTransformable
from tracefx.core.body_transform import CollectedSpec as CollectedSpec
from tracefx.core.body_transform import TransformedBody as TransformedBody
from tracefx.core.body_transform import ValueSpec as ValueSpec
from tracefx.core.callables import BatchRunner as BatchRunner
from tracefx.core.callables import HasCallables as HasCallables
from tracefx.core.dtypes import NDArray as NDArray
from tracefx.core.effects import NO_EFFECTS as NO_EFFECTS
from tracefx.core.effects import Effect as Effect
from tracefx.core.effects import Effects as Effects
from tracefx.core.evaluation import eval_jaxpr as eval_jaxpr
from tracefx.core.handler import Eval as Eval
from tracefx.core.handler import Handler as Handler
from tracefx.core.handler import Tracer as Tracer
from tracefx.core.handler import as_array as as_array
from tracefx.core.handler import bind as bind
from tracefx.core.handler import bind1 as bind1
from tracefx.core.handler import bind_expansion as bind_expansion
from tracefx.core.handler import current as current
from tracefx.core.handler import escaped_tracer_error as escaped_tracer_error
from tracefx.core.handler import handling as handling
from tracefx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from tracefx.core.jaxpr import Eqn as Eqn
from tracefx.core.jaxpr import HasSubjaxprs as HasSubjaxprs
from tracefx.core.jaxpr import Jaxpr as Jaxpr
from tracefx.core.jaxpr import Var as Var
from tracefx.core.literal import Literal as Literal
from tracefx.core.primitive import Batchable as Batchable
from tracefx.core.primitive import Differentiable as Differentiable
from tracefx.core.primitive import Expandable as Expandable
from tracefx.core.primitive import ExtractsWindow as ExtractsWindow
from tracefx.core.primitive import MappedAxis as MappedAxis
from tracefx.core.primitive import Primitive as Primitive
from tracefx.core.primitive import Recorder as Recorder
from tracefx.core.primitive import Tangent as Tangent
from tracefx.core.primitive import Transposable as Transposable
from tracefx.core.primitive import UndefinedPrimal as UndefinedPrimal
from tracefx.core.primitive import Zero as Zero
from tracefx.core.source_location import SourceLocation as SourceLocation
from tracefx.core.source_location import here as here
from tracefx.core.values import Value as Value
from tracefx.core.values import as_value as as_value
from tracefx.core.values import get_aval as get_aval
from tracefx.core.values import to_numpy as to_numpy
from tracefx.core.varying import HasTypedBodies as HasTypedBodies
from tracefx.core.varying import HasVmaRule as HasVmaRule
from tracefx.errors import EscapedTracerError as EscapedTracerError
from tracefx.errors import HandlerStateError as HandlerStateError
from tracefx.errors import JaxprTypeError as JaxprTypeError
from tracefx.errors import MissingRuleError as MissingRuleError
from tracefx.interpreters.interpreter import Interpreter as Interpreter
from tracefx.interpreters.rule_methods import rule as rule
from tracefx.interpreters.rules import HandlerRule as HandlerRule
from tracefx.interpreters.rules import Rules as Rules
from tracefx.lowering import Attr as Attr
from tracefx.lowering import Builder as Builder
from tracefx.lowering import DenseI64Array as DenseI64Array
from tracefx.lowering import IrValue as IrValue
from tracefx.lowering import Lowerable as Lowerable
from tracefx.lowering import MlirText as MlirText
from tracefx.lowering import Region as Region
from tracefx.ops.elementwise.comparison import Comparison as Comparison
from tracefx.ops.elementwise.elementwise import Elementwise as Elementwise
from tracefx.ops.elementwise.elementwise import NonDifferentiable as NonDifferentiable
from tracefx.ops.elementwise.elementwise import Smooth as Smooth
from tracefx.ops.elementwise.elementwise import add_tangents as add_tangents
from tracefx.ops.operation import DataMovement as DataMovement
from tracefx.ops.operation import Domain as Domain
from tracefx.ops.operation import LinearOperation as LinearOperation
from tracefx.ops.operation import Operation as Operation
from tracefx.ops.operation import UnaryOperation as UnaryOperation
from tracefx.ops.reductions.reduction import Reduction as Reduction
from tracefx.ops.structural import batch_first as batch_first
from tracefx.ops.structural import instantiate as instantiate
from tracefx.ops.structural import match_aval as match_aval
from tracefx.passes.check import check_jaxpr as check_jaxpr
from tracefx.text.printer import HasJaxParams as HasJaxParams
