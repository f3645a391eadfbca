"""The page `docs/errors.md` has the messages of tracefx and of JAX, whose errors are of the same built-in class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import jax
import pytest

from tests.comparison import builtin_error_class
from tests.mistakes import JAX_VERSION, PAGE, Mistake, block, message, mistakes, rewritten, shortened
from tracefx.core.handler import ROOT, current

TEXT: Final = PAGE.read_text()
MISTAKES: Final = mistakes(TEXT)
RECORDED: Final = JAX_VERSION.findall(TEXT)
CONSTRAINTS: Final = Path(__file__).parent.parent / "constraints.txt"
by_title: Final = pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])


@by_title
def test_message(mistake: Mistake) -> None:
    error = mistake.error()
    assert error is not None
    assert block(message(error)) == mistake.ours, "write it anew: python -m tests.mistakes"
    assert current() is ROOT


@pytest.mark.skipif([jax.__version__] != RECORDED, reason="the page has the messages of another release of JAX")
@by_title
def test_message_of_jax(mistake: Mistake) -> None:
    theirs = mistake.jax_error()
    assert block(shortened(message(theirs))) == mistake.jax, "write it anew: python -m tests.mistakes"
    if theirs is not None:
        assert isinstance(mistake.error(), builtin_error_class(theirs))


def test_page_has_the_messages_of_the_pinned_release_of_jax() -> None:
    assert re.findall(r"^jax==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE) == RECORDED


def test_titles_are_distinct() -> None:
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) == TEXT.count("\n### ")
    assert len({mistake.program for mistake in MISTAKES}) == len(MISTAKES) >= 100


def test_messages_are_rewritten() -> None:
    page = "# Errors with JAX 0.0.0\n\n## Some\n\n### A sum\n\n```py\nfnp.sin([1.0])\n```\n\nold\n\n## Others\n"
    new = rewritten(page)
    assert new.startswith(
        f"# Errors with JAX {jax.__version__}\n\n## Some\n\n### A sum\n\n```py\nfnp.sin([1.0])\n```\n"
    )
    assert new.endswith("\n## Others\n")
    (mistake,) = mistakes(new)
    assert mistake.ours.startswith("```text\nTypeError: sin: x must be an array or a number, got [1.0]")
    assert "sin requires ndarray" in mistake.jax
    assert rewritten(new) == new


def test_program_that_raises_nothing() -> None:
    assert Mistake("", "fnp.sin(1.0)\n", "", "").error() is None
