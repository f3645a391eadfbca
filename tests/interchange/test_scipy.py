"""SciPy functions accept tracefx arrays; docs/interchange.md documents the exceptions."""

from __future__ import annotations

from pathlib import Path

from tests.interchange.outcomes import outcomes_in_subprocess
from tests.interchange.scipy_calls import CALLS

PAGE = Path(__file__).parents[2] / "docs" / "interchange.md"


def test_outcomes() -> None:
    assert outcomes_in_subprocess("tests.interchange.scipy_calls") == {
        name: wanted for name, (_, wanted) in CALLS.items()
    }


def test_documentation_lists_all_functions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in CALLS if f"`{name}`" not in page] == []
