"""SciPy takes arrays of ours; where not, docs/interchange.md says why."""

from __future__ import annotations

from pathlib import Path

from tests.interchange.outcomes import outcomes_elsewhere
from tests.interchange.scipy_calls import CALLS

PAGE = Path(__file__).parents[2] / "docs" / "interchange.md"


def test_outcomes() -> None:
    assert outcomes_elsewhere("tests.interchange.scipy_calls") == {name: wanted for name, (_, wanted) in CALLS.items()}


def test_the_page_names_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in CALLS if f"`{name}`" not in page] == []
