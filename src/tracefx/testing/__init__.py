"""Laws that check functions, primitives and handlers of your own, and Hypothesis strategies that generate arguments.

>>> import numpy as np
>>> import tracefx.numpy as fnp
>>> from tracefx.testing import check_equivalent, check_grads, vmap_is_a_loop
>>> vmap_is_a_loop(fnp.dot, np.ones((2, 3), np.float32), np.ones(3, np.float32))
>>> check_grads(fnp.tanh, np.array([0.5, -1.0]))
>>> check_equivalent(lambda x: x * x, fnp.square, np.array([0.5, -1.0]))

`check_primitive`, `check_function`, `check_grads`, `check_linear` and `check_batchable` check many laws at once;
`check_equivalent` and `assert_transforms_commute` compare functions and transformations; `check_handler` checks a
custom handler. A violated law raises `LawError`, which shows the smallest program found that violates it.

The strategies of `tracefx.testing.strategies` generate arguments, programs and stacks of transformations; they need
Hypothesis, which `pip install hypothesis` installs.
"""

from __future__ import annotations

from tracefx.testing.checks import LawReport as LawReport
from tracefx.testing.checks import check_batchable as check_batchable
from tracefx.testing.checks import check_function as check_function
from tracefx.testing.checks import check_linear as check_linear
from tracefx.testing.checks import check_primitive as check_primitive
from tracefx.testing.derivatives import check_grads as check_grads
from tracefx.testing.equivalence import BATCHED as BATCHED
from tracefx.testing.equivalence import COMPILED as COMPILED
from tracefx.testing.equivalence import FORWARD as FORWARD
from tracefx.testing.equivalence import REVERSE as REVERSE
from tracefx.testing.equivalence import TRANSFORMS as TRANSFORMS
from tracefx.testing.equivalence import assert_transforms_commute as assert_transforms_commute
from tracefx.testing.equivalence import check_equivalent as check_equivalent
from tracefx.testing.errors import Inapplicable as Inapplicable
from tracefx.testing.errors import LawError as LawError
from tracefx.testing.errors import Reproducer as Reproducer
from tracefx.testing.errors import ViolationManner as ViolationManner
from tracefx.testing.handler_laws import HANDLER_LAWS as HANDLER_LAWS
from tracefx.testing.handler_laws import FaultInjector as FaultInjector
from tracefx.testing.handler_laws import HandlerLaw as HandlerLaw
from tracefx.testing.handler_laws import check_handler as check_handler
from tracefx.testing.handler_laws import check_interpretation as check_interpretation
from tracefx.testing.law import Law as Law
from tracefx.testing.law import law as law
from tracefx.testing.law import require_close as require_close
from tracefx.testing.laws import LAWS as LAWS
from tracefx.testing.laws import IdentityHandler as IdentityHandler
from tracefx.testing.laws import abstract_eval_matches_evaluation as abstract_eval_matches_evaluation
from tracefx.testing.laws import identity_changes_nothing as identity_changes_nothing
from tracefx.testing.laws import jit_changes_nothing as jit_changes_nothing
from tracefx.testing.laws import jit_commutes_with_transforms as jit_commutes_with_transforms
from tracefx.testing.laws import jvp_is_the_derivative as jvp_is_the_derivative
from tracefx.testing.laws import linearize_is_jvp as linearize_is_jvp
from tracefx.testing.laws import no_tracer_leaks as no_tracer_leaks
from tracefx.testing.laws import passes_change_nothing as passes_change_nothing
from tracefx.testing.laws import staging_changes_nothing as staging_changes_nothing
from tracefx.testing.laws import text_round_trips as text_round_trips
from tracefx.testing.laws import transpose_is_adjoint as transpose_is_adjoint
from tracefx.testing.laws import vmap_commutes_with_jvp as vmap_commutes_with_jvp
from tracefx.testing.laws import vmap_is_a_loop as vmap_is_a_loop
from tracefx.testing.subjects import Subject as Subject
from tracefx.testing.subjects import array as array
from tracefx.testing.tolerances import Ulps as Ulps
from tracefx.testing.wrappers import CONTROL_FLOW_WRAPPERS as CONTROL_FLOW_WRAPPERS
