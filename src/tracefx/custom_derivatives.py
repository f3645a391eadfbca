"""Functions with user-defined derivatives, and the types that their rules use."""

from __future__ import annotations

from tracefx.errors import ClosedOverTracerError as ClosedOverTracerError
from tracefx.errors import NotLinearError as NotLinearError
from tracefx.transforms.closure_conversion import closure_convert as closure_convert
from tracefx.transforms.custom_derivatives import CustomVJPPrimal as CustomVJPPrimal
from tracefx.transforms.custom_derivatives import SymbolicZero as SymbolicZero
from tracefx.transforms.custom_derivatives import custom_jvp as custom_jvp
from tracefx.transforms.custom_derivatives import custom_vjp as custom_vjp
from tracefx.transforms.custom_derivatives import (
    custom_vjp_primal_tree_values as custom_vjp_primal_tree_values,
)
from tracefx.transforms.custom_derivatives import zero_from_primal as zero_from_primal
from tracefx.transforms.custom_gradients import custom_gradient as custom_gradient
from tracefx.transforms.linear_calls import linear_call as linear_call
