"""`explain`: an account of every operation that a function ran, grouped by source line."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Hashable, Iterator
from typing import Any, ClassVar, Final, Generic, ParamSpec, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import Array, DType, NDArray, ShapedArray, show_avals
from tracefx.core.jaxpr import Jaxpr
from tracefx.extend import SourceLocation
from tracefx.handlers.array_summary import MAX_PRINTED_ELEMENTS, Summary, format_array
from tracefx.handlers.instrumentation import Instrument, OperationInfo, Position, RuntimeCallback, relative_path
from tracefx.interpreters.body_transform import BodyName
from tracefx.transforms.arguments import require_callable
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.transform import SameArguments, TransformOf
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
MAX_STORED_ELEMENTS: Final = 100
"""The default of `keep`: the largest number of elements for which a result is stored in full."""


def explain(fun: Callable[P, R], *, keep: int = MAX_STORED_ELEMENTS) -> WrappedFunction[P, Explanation[R]]:
    """Returns a function that calls `fun` once and reports which operations each source line ran.

    The report covers every operation, including those in the bodies of compiled functions, loops and branches: the
    shapes and dtypes of its operands and results, how often it ran, and a `Summary` of each result over all runs.
    Printing it (`str`) lists the operations under their source lines.

    Under `jit` the report has shapes and dtypes only, because there are no values while the function is traced.

    Args:
        fun: the function to explain.
        keep: the largest number of elements for which a result of the last run is stored in full.

    Returns:
        A function with the parameters of `fun` that returns an `Explanation`: `.out` is the result of `fun`,
        `.operations` has all operations in program order, `.lines` groups them by source line, and
        `.first(condition)` and `.where(condition)` search them.

    Raises:
        TypeError: if `fun` is not callable or `keep` is not an integer.
        ValueError: if `keep` is negative.

    >>> import tracefx.numpy as fnp
    >>> report = explain(lambda x: fnp.log(x - 1))(fnp.array([1.0, 0.5]))
    >>> [(op.name, op.nans, op.infs) for op in report.operations]
    [('sub', 0, 0), ('log', 1, 1)]
    >>> report.first(lambda op: op.has_nan).name
    'log'
    """
    if type(keep) is not int:
        raise TypeError(f"explain: keep must be a number of elements, got {keep!r} of type {type(keep).__name__}")
    if keep < 0:
        raise ValueError(f"explain: keep must be a number of elements, got {keep}")
    return Explain(keep)(fun)


@final
@frozen(eq=False, repr=False)
class Explain(TransformOf[SameArguments]):
    """The transformation that `explain` applies, with its option as a field."""

    title: ClassVar[str] = "explain"
    keep: int = MAX_STORED_ELEMENTS

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def explained(*args: Any, **kwargs: Any) -> Explanation[Any]:
            record = _ExplainHooks(self.keep)
            with Instrument(self.title, record).running():
                out = fun(*args, **kwargs)
            return Explanation(out, tuple([each.operation() for each in record.records.values()]))

        return explained


# ------------------------------------------------------------------ the report


@final
@frozen(eq=False)
class ExplainedOperation:
    """One operation of the program and its results.

    Attributes:
        applied: the operation as it was traced.
        name: its name, and that of the function it calls: `sin`, `jit(layer)`.
        count: how often it ran; 0 in a branch that was not taken.
        summaries: one `Summary` for each result, over all runs.
        values: the results of the last run; None for those with more than `keep` elements.
        time: how many operations had run before the last run; -1 if it did not run.
        history: the operation as it was after its first run and after the first runs with a NaN and an infinity.

    >>> import tracefx.numpy as fnp
    >>> report = explain(lambda x: fnp.log(x - 1.0))(fnp.array([1.0, 2.0]))
    >>> log = report.operations[1]
    >>> log.name, log.count, log.summaries[0].infs
    ('log', 1, 1)
    """

    applied: OperationInfo = field(repr=False)
    name: str = field(init=False)
    count: int
    summaries: tuple[Summary, ...]
    values: tuple[NDArray | None, ...] = field(repr=False)
    time: int = field(default=-1, repr=False)
    history: tuple[ExplainedOperation, ...] = field(default=(), repr=False)

    @name.default
    def _name(self) -> str:
        return self.applied.name

    @property
    def operands(self) -> tuple[ShapedArray, ...]:
        """The shapes and dtypes of the operands."""
        return self.applied.operands

    @property
    def results(self) -> tuple[ShapedArray, ...]:
        """The shapes and dtypes of the results."""
        return self.applied.results

    @property
    def location(self) -> SourceLocation:
        """The line of user code that it comes from."""
        return self.applied.location

    @property
    def enclosing_bodies(self) -> tuple[str, ...]:
        """The bodies that contain it, outermost first, e.g. `("jit(f)", "a step of scan")`."""
        return self.applied.enclosing_bodies

    @property
    def has_bodies(self) -> bool:
        """Whether it has sub-jaxprs (a call, a loop, a branch, ...), whose operations are listed as well."""
        return self.applied.has_bodies

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the results."""
        return tuple([a.dtype for a in self.results])

    @property
    def nans(self) -> int:
        """The number of NaN elements in the results, over all runs."""
        return sum([s.nans for s in self.summaries])

    @property
    def infs(self) -> int:
        """The number of infinite elements in the results, over all runs."""
        return sum([s.infs for s in self.summaries])

    @property
    def has_nan(self) -> bool:
        """Whether any result had a NaN."""
        return self.nans > 0

    @property
    def has_inf(self) -> bool:
        """Whether any result had an infinite element."""
        return self.infs > 0

    @property
    def first_nan_run(self) -> int | None:
        """The number of the first run with a NaN, counted from 0 (in a loop: of the step); None if there is none."""
        return next((past.count - 1 for past in self.history if past.has_nan), None)

    @property
    def first_inf_run(self) -> int | None:
        """The number of the first run with an infinity, counted from 0; None if there is none."""
        return next((past.count - 1 for past in self.history if past.has_inf), None)

    @property
    def broadcasts(self) -> bool:
        """Whether a result has more elements than every operand."""
        largest = max([a.size for a in self.operands], default=0)
        return bool(self.operands) and any(a.size > largest for a in self.results)

    @override
    def __str__(self) -> str:
        types = f"{self.name} {show_avals(self.operands)} -> {show_avals(self.results)}"
        return f"{types}  {self._result_text()}".rstrip()

    def _result_text(self) -> str:
        if not self.count:
            return "not run"
        times = f"{self.count} times " if self.count > 1 else ""
        texts = [
            s.text() if x is None or self.count > 1 or x.size > MAX_PRINTED_ELEMENTS else format_array(x)
            for s, x in zip(self.summaries, self.values, strict=True)
        ]
        return f"{times}{', '.join(texts)}".rstrip()


@final
@frozen(eq=False)
class ExplainedLine:
    """A line of user code and the operations that it ran.

    Attributes:
        file: the source file; empty if the line is unknown.
        line: the line number.
        function: the function that contained the line when its first operation ran.
        operations: the operations in program order.

    >>> import tracefx.numpy as fnp
    >>> report = explain(lambda x: fnp.exp(x) + 1.0)(0.0)
    >>> [(line.function, [operation.name for operation in line.operations]) for line in report.lines]
    [('<lambda>', ['exp', 'add'])]
    """

    file: str
    line: int
    function: str
    operations: tuple[ExplainedOperation, ...]

    @property
    def text(self) -> str:
        """The source text of the line; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @override
    def __str__(self) -> str:
        outermost = min([len(op.enclosing_bodies) for op in self.operations], default=0)
        rows = [
            f"{relative_path(self.file)}:{self.line}  {self.text}".rstrip()
            if self.file
            else "from no line that is known"
        ]
        rows += [f"{'  ' * (2 + len(op.enclosing_bodies) - outermost)}{op}" for op in self.operations]
        return "\n".join(rows)


@final
@frozen(eq=False, repr=False)
class Explanation(Generic[R_co]):
    """The result of an explained call and all of its operations; displayed as the operations of each source line.

    Attributes:
        out: the result of the function.
        operations: the operations in program order.

    >>> import tracefx.numpy as fnp
    >>> report = explain(lambda x: fnp.exp(x) + 1.0)(0.0)
    >>> float(report.out), [operation.name for operation in report.operations]
    (2.0, ['exp', 'add'])
    """

    out: R_co
    operations: tuple[ExplainedOperation, ...]

    @property
    def lines(self) -> tuple[ExplainedLine, ...]:
        """The source lines, in the order of their first operations."""
        by_line: dict[tuple[str, int], list[ExplainedOperation]] = {}
        for op in self.operations:
            by_line.setdefault((op.applied.file, op.applied.line), []).append(op)
        return tuple([ExplainedLine(*key, _function_name(ops[0]), tuple(ops)) for key, ops in by_line.items()])

    def first(self, condition: Callable[[ExplainedOperation], object]) -> ExplainedOperation | None:
        """Returns the operation for which `condition` was true first while the program ran, or None.

        In loops, the condition is evaluated with the operation's state after its first run, after its first runs with
        a NaN and an infinity, and after its last run. So the first operation with a NaN is the one that produced it,
        and `first_nan_run` is the step. Operations that did not run come last.

        An operation without sub-jaxprs is preferred: a call or loop is returned only if nothing inside it matches.

        Args:
            condition: A function of an `ExplainedOperation`.

        Returns:
            The operation, or None.

        >>> import tracefx as fx
        >>> import tracefx.numpy as fnp
        >>> total = lambda xs: fx.lax.scan(lambda c, x: (c * 2.0 + fnp.sqrt(x), None), 0.0, xs)[0]
        >>> found = explain(total)(fnp.array([1.0, -1.0, 4.0])).first(lambda op: op.has_nan)
        >>> found.name, found.first_nan_run
        ('sqrt', 1)
        """
        require_callable("Explanation.first", condition)
        matches = [
            (op.has_bodies, past.time < 0, past.time, index)
            for index, op in enumerate(self.operations)
            for past in (*op.history, op)
            if condition(past)
        ]
        return self.operations[min(matches)[-1]] if matches else None

    def where(self, condition: Callable[[ExplainedOperation], object]) -> tuple[ExplainedOperation, ...]:
        """Returns all operations for which `condition` is true.

        Args:
            condition: A function of an `ExplainedOperation`.

        Returns:
            The operations, in program order.
        """
        require_callable("Explanation.where", condition)
        return tuple([op for op in self.operations if condition(op)])

    @override
    def __repr__(self) -> str:
        rows: list[str] = []
        function = None
        for line in self.lines:
            if line.function != function:
                function = line.function
                rows.append(f"{function}:" if function else "elsewhere:")
            rows += [f"  {row}" for row in str(line).splitlines()]
        return "\n".join(rows) or "no operations"


def _function_name(op: ExplainedOperation) -> str:
    return op.location.function


# ------------------------------------------------------------------ recording


@final
class _OperationRecord:
    """The run count and the results of one operation so far; called with its results each time it runs."""

    __slots__ = ("applied", "clock", "history", "keep", "last")

    def __init__(self, applied: OperationInfo, keep: int, clock: Iterator[int]) -> None:
        self.applied = applied
        self.keep = keep
        self.clock = clock
        self.last = ExplainedOperation(applied, 0, (), ())
        self.history: tuple[ExplainedOperation, ...] = ()

    def __call__(self, *results: Array) -> None:
        arrays = [np.asarray(x) for x in results]
        new = [Summary.of(a) for a in arrays]
        last = self.last
        summaries = tuple([a | b for a, b in zip(last.summaries, new, strict=True)] if last.count else new)
        values = tuple([a if a.size <= self.keep else None for a in arrays])
        self.last = op = ExplainedOperation(self.applied, last.count + 1, summaries, values, next(self.clock))
        if not last.count or op.has_nan > last.has_nan or op.has_inf > last.has_inf:
            self.history = (*self.history, op)

    def operation(self) -> ExplainedOperation:
        return evolve(self.last, history=self.history)


@final
@frozen(eq=False)
class _ExplainHooks:
    """Records all operations by position; a body that is traced again replaces its records."""

    keep: int
    records: dict[Position, _OperationRecord] = field(factory=dict)
    clock: Iterator[int] = field(factory=itertools.count)
    cache_key: Hashable = None
    counts_steps: bool = False

    def before(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        self.records[position] = _OperationRecord(op, self.keep, self.clock)  # placed before the records of its body
        return None

    def enter_body(self, body: BodyName, jaxpr: Jaxpr, depth: int) -> RuntimeCallback | None:
        return None

    def after(self, position: Position, op: OperationInfo, depth: int) -> RuntimeCallback | None:
        self.records[position] = _OperationRecord(op, self.keep, self.clock)
        return self.records[position]
