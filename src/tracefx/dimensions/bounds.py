"""Bounds of symbolic dimensions under constraints, by elimination of terms, and `SymbolicScope`, which has constraints.

To bound an expression, its largest term is eliminated with each known inequality that has the same largest term, and
the rest, which has smaller terms only, is bounded in the same way. The inequalities are the constraints of the user,
and those that follow from the operations: a variable is at least 1, `mod(a, b)` is less than a positive `b`, and so on.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, final

from typing_extensions import override

from tracefx.bounded_cache import BoundedCache
from tracefx.dimensions.parser import parse_dimensions
from tracefx.dimensions.symbolic_dimensions import (
    ONE,
    Coefficients,
    Factor,
    Polynomial,
    Scope,
    Term,
    combine,
    is_symbolic_dim,
    multiply,
    polynomial_of,
)
from tracefx.errors import InconclusiveDimensionOperation
from tracefx.filtered_tracebacks import api_boundary

Bounds: TypeAlias = tuple[float, float]
"""The least and the largest value of an expression: integers, or infinite."""

_UNBOUNDED: Final[Bounds] = (-math.inf, math.inf)
_MAX_STEPS: Final = 20_000
"""The number of eliminations after which a comparison is inconclusive: it can grow exponentially."""
_MAX_CONSTRAINTS: Final = 1_000
"""The number of constraints from which no more are derived."""


def _floor_divide(a: float, b: int) -> float:
    return a if math.isinf(a) else a // b


class Constraint(NamedTuple):
    """The polynomial `terms` is at least 0, or equal to 0 if `is_equality`."""

    is_equality: bool
    polynomial: Polynomial


@final
class _Inequalities:
    """A set of inequalities, by their largest terms."""

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self._derived: set[Term] = set()
        """The terms whose inequalities have been added."""
        self._ranges: dict[Term, Bounds] = {}
        """The bounds of single terms."""
        self._by_term: dict[Term, list[Constraint]] = {}
        self._steps = 0
        for constraint in constraints:
            self.add_inequalities_of(constraint.polynomial)
            self.add(constraint.is_equality, dict(constraint.polynomial.terms))

    def bounds(self, p: Coefficients | Polynomial) -> Bounds:
        """Returns bounds of a polynomial whose terms have been passed to `add_inequalities_of`."""
        polynomial = p if isinstance(p, Polynomial) else Polynomial.of(p)
        constant = polynomial.constant
        if constant is not None:
            return constant, constant
        self._steps += 1
        if self._steps > _MAX_STEPS:
            return _UNBOUNDED
        (term, k), *rest = polynomial.terms
        low, high = _UNBOUNDED
        for is_equality, other in self._with_largest(term):
            eliminated = dict(other.terms)
            m = eliminated[term]
            scale, factor = abs(m), k if m > 0 else -k  # polynomial * scale == remainder + other * factor
            remainder = combine(dict(polynomial.terms), scale, eliminated, -factor)
            least, largest = self.bounds(remainder)
            if factor > 0 or is_equality:
                low = max(low, -_floor_divide(-least, scale))
            if factor < 0 or is_equality:
                high = min(high, _floor_divide(largest, scale))
        choice = term.factor
        if choice is not None and choice.name in ("max", "min") and choice.operands:
            branches = [self.bounds(combine(dict(rest), 1, dict(q.terms), k)) for q in choice.operands]
            select = max if (choice.name == "max") == (k > 0) else min
            low = max(low, select([b[0] for b in branches]))
            high = min(high, select([b[1] for b in branches]))
        return low, high

    def _with_largest(self, term: Term) -> list[Constraint]:
        low, high = self._ranges.get(term, _UNBOUNDED)
        single = []
        if low == high:
            single.append(Constraint(True, Polynomial.of({term: 1, ONE: -int(low)})))
        else:
            if low > -math.inf:
                single.append(Constraint(False, Polynomial.of({term: 1, ONE: -int(low)})))
            if high < math.inf:
                single.append(Constraint(False, Polynomial.of({term: -1, ONE: int(high)})))
        return single + self._by_term.get(term, [])

    def add(self, is_equality: bool, p: Coefficients) -> None:
        """Adds a constraint on a polynomial, and those that follow by eliminating a term with one other constraint."""
        self._require_possible(is_equality, p)
        polynomial = Polynomial.of(p)
        if polynomial.constant is not None:
            return
        self._store(Constraint(is_equality, polynomial))
        combinations: list[tuple[bool, Coefficients]] = []
        known = [c for constraints in self._by_term.values() for c in constraints]
        for term, k in polynomial.terms:
            if term == ONE or len(known) > _MAX_CONSTRAINTS:
                continue
            singles = [c for c in self._with_largest(term) if len(c.polynomial.terms) < 3]
            for other in {*singles, *known}:
                coefficients = dict(other.polynomial.terms)
                m = coefficients.get(term, 0)
                factor = -m if k > 0 else m  # of this polynomial; the other one is multiplied by abs(k)
                if m and (factor > 0 or is_equality):
                    both = is_equality and other.is_equality
                    combinations.append((both, combine(p, factor, coefficients, abs(k))))
        for both, combination in combinations:
            self._require_possible(both, combination)
            if Polynomial.of(combination).constant is None:
                self._store(Constraint(both, Polynomial.of(combination)))

    def _require_possible(self, is_equality: bool, p: Coefficients) -> None:
        constant = Polynomial.of(p).constant
        if constant is not None and (constant < 0 or (is_equality and constant)):
            raise ValueError(
                "the constraints of a symbolic shape contradict each other, or the dimension variables >= 1"
            )

    def _store(self, constraint: Constraint) -> None:
        coefficients = dict(constraint.polynomial.terms)
        constant = coefficients.pop(ONE, 0)
        if len(coefficients) > 1:
            constraints = self._by_term.setdefault(constraint.polynomial.terms[0][0], [])
            if constraint not in constraints:
                constraints.append(constraint)
            return
        ((term, k),) = coefficients.items()
        low, high = self._ranges.get(term, _UNBOUNDED)
        if k > 0 or constraint.is_equality:
            low = max(low, -(constant // k) if k > 0 else -(-constant // -k))
        if k < 0 or constraint.is_equality:
            high = min(high, constant // -k if k < 0 else -constant // k)
        if low > high:
            raise ValueError(
                f"the constraints of a symbolic shape contradict each other: {term} >= {low} and {term} <= {high}"
            )
        self._ranges[term] = low, high

    def _add_range(self, term: Term, low: float, high: float) -> None:
        if low > -math.inf:
            self.add(False, {term: 1, ONE: -int(low)})
        if high < math.inf:
            self.add(False, {term: -1, ONE: int(high)})

    # -------------------------------------------------------------- inequalities that follow from operations

    def add_inequalities_of(self, polynomial: Polynomial) -> None:
        """Adds the inequalities that hold for the operations in a polynomial."""
        for term, _ in polynomial.terms:
            if term == ONE or term in self._derived:
                continue
            self._derived.add(term)
            if term.factor is None:
                self._bound_product(term)
            else:
                self._bound_factor(term, term.factor)

    def _bound_product(self, term: Term) -> None:
        corners: list[list[float]] = []
        for factor, exponent in term.factors:
            single = Polynomial.of({Term.of({factor: 1}): 1})
            self.add_inequalities_of(single)
            low, high = self.bounds(single)
            corners.append([low**exponent, high**exponent, *[0] * (low < 0 < high)])
        products = [_multiply(values) for values in itertools.product(*corners)]
        self._add_range(term, min(products), max(products))

    def _bound_factor(self, term: Term, factor: Factor) -> None:
        if factor.is_variable:
            self._add_range(term, 1, math.inf)
            return
        left, right = factor.operands
        for operand in factor.operands:
            self.add_inequalities_of(operand)
        (low1, high1), (low2, high2) = self.bounds(left), self.bounds(right)
        a, b, itself = dict(left.terms), dict(right.terms), {term: 1}
        if factor.name == "mod":
            if low2 > 0:
                self._add_range(term, 0, high2 - 1)
                self.add(False, combine(combine(b, 1, itself, -1), 1, {ONE: 1}, -1))
            elif high2 < 0:
                self._add_range(term, low2 + 1, 0)
                self.add(False, combine(combine(itself, 1, b, -1), 1, {ONE: 1}, -1))
        elif factor.name == "floordiv":
            if low2 <= 0 <= high2:
                raise InconclusiveDimensionOperation(f"{factor} may be a division by zero")
            quotients = [_quotient(x, y) for x in (low1, high1) for y in (low2, high2)]
            self._add_range(term, min(quotients), max(quotients))
            if low2 > 0:
                rest = Term.of({Factor(1 + left.size + right.size, "mod", factor.operands): 1})
                self.add_inequalities_of(Polynomial.of({rest: 1}))
                self.add(True, combine(combine(a, 1, multiply(b, itself), -1), 1, {rest: 1}, -1))
        else:
            sign, select = (1, max) if factor.name == "max" else (-1, min)
            self._add_range(term, select(low1, low2), select(high1, high2))
            for smaller in (a, b):
                self.add(False, combine(itself, sign, smaller, -sign))


def _multiply(values: Sequence[float]) -> float:
    return 0 if 0 in values else math.prod(values)  # of 0 and infinity the product is 0


def _quotient(a: float, b: float) -> float:
    """Returns `a // b` for integers, or its limit for infinities."""
    if math.isinf(a):
        return math.inf if (a > 0) == (b > 0) else -math.inf
    if math.isinf(b):
        return -1 if a and (a > 0) != (b > 0) else 0
    return a // b


@final
class SymbolicScope(Scope):
    """Identifies the dimension variables that may be used together, and holds the constraints on them.

    Dimensions of different scopes cannot be combined, and are not equal.

    Args:
        constraints_str: Constraints of the form `e1 >= e2`, `e1 <= e2` or `e1 == e2`. The left side of an equality is
            replaced by the right side; it must be a product, with a coefficient. None by default.

    Raises:
        ValueError: If a constraint cannot be parsed or satisfied.

    >>> from tracefx import symbolic_shape
    >>> scope = SymbolicScope(("a >= 2", "mod(b, 8) == 0"))
    >>> a, b = symbolic_shape("a, b", scope=scope)
    >>> a > 1, b % 8
    (True, 0)
    """

    @api_boundary
    def __init__(self, constraints_str: Sequence[str] = ()) -> None:
        if isinstance(constraints_str, str) or not isinstance(constraints_str, Sequence):
            raise ValueError(f"SymbolicScope: the constraints must be a sequence of strings, got {constraints_str!r}")
        self.rules = {}
        self.constraints: tuple[str, ...] = tuple(constraints_str)
        """The constraints as the user wrote them."""
        self.checked: list[tuple[str, Constraint]] = []
        """The constraints that sizes must satisfy, with their texts."""
        self._bounds: BoundedCache[Polynomial, Bounds] = BoundedCache(4096)
        for text in self.constraints:
            self._add_text(text)
        self._bounds.clear()
        self._inequalities([])

    def _add_text(self, text: str) -> None:
        if not isinstance(text, str):
            raise ValueError(f"SymbolicScope: a constraint must be a string, got {text!r}")
        comparison = next((c for c in ("==", ">=", "<=") if c in text), None)
        if comparison is None:
            raise ValueError(f"SymbolicScope: the constraint {text!r} has none of ==, >= and <=")
        sides = [parse_dimensions(side, self) for side in text.split(comparison, 1)]
        if any(len(side) != 1 for side in sides):
            raise ValueError(f"SymbolicScope: the constraint {text!r} must compare two expressions")
        (left,), (right,) = sides
        if comparison == "<=":
            left, right = right, left
        self._add(text, comparison == "==", polynomial_of(left), polynomial_of(right))

    def _add(self, text: str, is_equality: bool, left: Polynomial, right: Polynomial) -> None:
        difference = combine(dict(left.terms), 1, dict(right.terms), -1)
        constraint = Constraint(is_equality, Polynomial.of(difference))
        constant = constraint.polynomial.constant
        if constant is not None:
            if constant < 0 or (is_equality and constant):
                raise ValueError(f"SymbolicScope: the constraint {text!r} cannot be satisfied")
            return
        if is_equality:
            if len(left.terms) != 1 or left.constant is not None:
                raise ValueError(
                    f"SymbolicScope: the left side of the equality {text!r} must be a product, such as 2*a*b: it is "
                    "replaced by the right side"
                )
            ((term, k),) = left.terms
            if term in self.rules:
                raise NotImplementedError(f"SymbolicScope: {term} is the left side of two equality constraints")
            self.rules[term] = dict(right.terms), k
        self.checked.append((text, constraint))
        factor = left.terms[0][0].factor if is_equality else None
        if is_equality and left.terms[0][1] == 1 and right.constant == 0 and factor and factor.name == "mod":
            dividend, divisor = factor.operands
            if divisor.constant is not None:  # then divisor * floordiv(dividend, divisor) == dividend
                quotient = Term.of({Factor(factor.size, "floordiv", factor.operands): 1})
                multiple = Polynomial.of({quotient: divisor.constant})
                self._add(f"{multiple} == {dividend}", True, multiple, dividend)

    def _inequalities(self, polynomials: Sequence[Polynomial]) -> _Inequalities:
        inequalities = _Inequalities([constraint for _, constraint in self.checked])
        for polynomial in polynomials:
            inequalities.add_inequalities_of(polynomial)
        return inequalities

    def bounds(self, coefficients: Coefficients) -> Bounds:
        """Returns the least and the largest value of a polynomial that are known; they may be infinite.

        Args:
            coefficients: The coefficients of the polynomial, by term.
        """
        polynomial = Polynomial.of(coefficients)
        if polynomial.constant is not None:
            return polynomial.constant, polynomial.constant
        known = self._bounds.get(polynomial, None)
        return known or self._bounds.insert(polynomial, self._inequalities([polynomial]).bounds(polynomial))

    @override
    def at_least(self, coefficients: Coefficients) -> bool | None:
        low, high = self.bounds(coefficients)
        return True if low >= 0 else False if high < 0 else None

    @override
    def describe_constraints(self) -> str:
        return f" under the constraints {', '.join(self.constraints)}" if self.constraints else ""

    @override
    def __repr__(self) -> str:
        return f"SymbolicScope({list(self.constraints)!r})"


def symbolic_dim_bounds(dimension: int) -> tuple[float, float]:
    """Returns the least and the largest value that an axis size is known to have.

    Args:
        dimension: The axis size, which may be symbolic.

    Returns:
        A pair of integers, or of infinities where no bound is known. There may be better bounds.

    Raises:
        InconclusiveDimensionOperation: If the expression may divide by zero.

    >>> from tracefx import symbolic_shape
    >>> b, = symbolic_shape("b", constraints=("b <= 8",))
    >>> symbolic_dim_bounds(2 * b + 1)
    (3, 17)
    """
    if is_symbolic_dim(dimension) and isinstance(dimension.scope, SymbolicScope):
        return dimension.scope.bounds(dict(dimension.polynomial.terms))
    return operator.index(dimension), operator.index(dimension)
