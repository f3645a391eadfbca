"""Ready interpretations of programs: each does one job, and composes with `jit`, `grad`, `vmap` and loops."""

from __future__ import annotations

from tracefx.handlers.checking.errors import Error as Error
from tracefx.handlers.checking.errors import check_error as check_error
from tracefx.handlers.checking.functions import all_checks as all_checks
from tracefx.handlers.checking.functions import automatic_checks as automatic_checks
from tracefx.handlers.checking.functions import check as check
from tracefx.handlers.checking.functions import checkify as checkify
from tracefx.handlers.checking.functions import debug_check as debug_check
from tracefx.handlers.checking.functions import div_checks as div_checks
from tracefx.handlers.checking.functions import float_checks as float_checks
from tracefx.handlers.checking.functions import index_checks as index_checks
from tracefx.handlers.checking.functions import nan_checks as nan_checks
from tracefx.handlers.checking.functions import user_checks as user_checks
from tracefx.handlers.checking.sites import CheckError as CheckError
from tracefx.handlers.checking.sites import ErrorKind as ErrorKind
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
from tracefx.handlers.sowing import perturb as perturb
from tracefx.handlers.sowing import plant as plant
from tracefx.handlers.sowing import reap as reap
from tracefx.handlers.sowing import sow as sow
from tracefx.handlers.taylor.functions import derivatives as derivatives
from tracefx.handlers.taylor.functions import jet as jet
from tracefx.handlers.taylor.handler import Taylor as Taylor
from tracefx.handlers.taylor.series import Series as Series
