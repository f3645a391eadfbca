"""Ready interpretations of programs: each does one job, and composes with `jit`, `grad`, `vmap` and loops."""

from __future__ import annotations

from tracefx.handlers.counting.cost import Cost as Cost
from tracefx.handlers.counting.cost import Work as Work
from tracefx.handlers.counting.functions import count as count
from tracefx.handlers.counting.functions import count_jaxpr as count_jaxpr
from tracefx.handlers.counting.memory import Held as Held
from tracefx.handlers.counting.memory import Peak as Peak
from tracefx.handlers.counting.rules import RULES as RULES
from tracefx.handlers.counting.rules import Costed as Costed
from tracefx.handlers.counting.rules import CostRules as CostRules
from tracefx.handlers.counting.rules import OperationCost as OperationCost
