"""Syntax highlighting of Python, StableHLO and HLO: lines as HTML, with an element for each kind of token."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Sequence
from html import escape
from typing import Final, final

_TOKENIZE_ERRORS: Final = (tokenize.TokenError, SyntaxError)


def highlight_python(lines: Sequence[str]) -> list[str]:
    """Marks up keywords with `<b>`, strings with `<q>`, comments with `<em>` and numbers with `<i>`.

    >>> highlight_python(["def f(x):  # <sine>", "    return sin(x) * 2"])
    ['<b>def</b> f(x):  <em># &lt;sine&gt;</em>', '    <b>return</b> sin(x) * <i>2</i>']
    """
    marks: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    readline = io.StringIO("\n".join(lines) + "\n").readline
    try:
        for token in tokenize.generate_tokens(readline):
            element = _element(token)
            if element:
                (first, start), (last, end) = token.start, token.end
                for n in range(first, min(last, len(lines)) + 1):
                    a, b = start if n == first else 0, end if n == last else len(lines[n - 1])
                    marks[n - 1].append((a, b, element))
    except _TOKENIZE_ERRORS:  # excerpts may be incomplete; the tokens before the error are highlighted
        pass
    return [_marked(line, mark) for line, mark in zip(lines, marks, strict=True)]


_STRING_TOKENS: Final = frozenset(
    {"STRING", *[f"{kind}STRING_{part}" for kind in "FT" for part in ("START", "MIDDLE", "END")]}
)
"""Token names of strings: f-strings are several tokens since Python 3.12, t-strings since 3.14."""


def _element(token: tokenize.TokenInfo) -> str:
    kind = tokenize.tok_name[token.type]
    if kind in _STRING_TOKENS:
        return "q"
    if kind == "NAME" and keyword.iskeyword(token.string):
        return "b"
    return {"COMMENT": "em", "NUMBER": "i"}.get(kind, "")


def _joined(marks: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Merges adjacent marks of the same element, such as the tokens of an f-string."""
    joined: list[tuple[int, int, str]] = []
    for start, end, element in marks:
        if joined and joined[-1][1:] == (start, element):
            start = joined.pop()[0]
        joined.append((start, end, element))
    return joined


def _marked(line: str, marks: Sequence[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, element in _joined(marks):
        parts += [escape(line[at:start], quote=False), f"<{element}>{escape(line[start:end], quote=False)}</{element}>"]
        at = end
    return "".join([*parts, escape(line[at:], quote=False)])


_COMPILER_TOKENS: Final = re.compile(
    r"(?P<name>[%@][\w.\-]+(?:[#:]\d+)?)|(?P<type>tensor<[^>]*>|\b(?:f|bf|s|u|c|i)\d+\w*\[[\d,]*\](?:\{[\d,]*\})?|\bpred\[[\d,]*\](?:\{[\d,]*\})?)"
    r"|(?P<op>\b(?:stablehlo|chlo|func|sdy)\.\w+)|(?P<called>(?<= )[a-z][a-z\-]+(?=\())"
)
_FUNCTION_START: Final = re.compile(r"^\s*func\.func\b|^(?:ENTRY )?%?[\w.\-]+ .*\{$")


@final
class CompilerTextHighlighter:
    """Highlights lines of StableHLO or HLO in order; names are scoped to their function."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._function = 0

    def line(self, text: str) -> str:
        """Marks up names with `<b>`, types with `<i>` and operations with `<u>` in one line.

        >>> CompilerTextHighlighter("2").line("%0 = stablehlo.sine %arg0 : tensor<f32>")
        '<b data-v="2.0.0">%0</b> = <u>stablehlo.sine</u> <b data-v="2.0.arg0">%arg0</b> : <i>tensor&lt;f32&gt;</i>'
        """
        if _FUNCTION_START.match(text):
            self._function += 1
        parts, at = [], 0
        for match in _COMPILER_TOKENS.finditer(text):
            parts += [escape(text[at : match.start()], quote=False), self._word(match)]
            at = match.end()
        return "".join([*parts, escape(text[at:], quote=False)])

    def _word(self, match: re.Match[str]) -> str:
        word = escape(match.group(), quote=False)
        if match["type"]:
            return f"<i>{word}</i>"
        if match["name"] is None or word.startswith("@"):
            return f"<u>{word}</u>"
        name = re.split("[#:]", match["name"][1:])[0]
        return f'<b data-v="{self._prefix}.{self._function}.{escape(name)}">{word}</b>'
