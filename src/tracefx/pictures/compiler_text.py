"""StableHLO and HLO texts as lines with source locations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final

from attrs import frozen

from tracefx.source_location import SourceLocation


@final
@frozen
class TextLine:
    """A line of StableHLO or HLO, with the location in the user's code that it comes from."""

    text: str
    location: SourceLocation | None


_DEFINED: Final = re.compile(r"^(#loc\d*) = loc\((?:\"(?P<file>[^\"]+)\":(?P<line>\d+):\d+|.*\((?P<inner>#loc\d*)\))\)")
_AT_END: Final = re.compile(r" loc\((#loc\d*)\)$")
_INLINE: Final = re.compile(r" loc\((?:unknown|#loc\d*)\)")


def stablehlo_lines(text: str) -> tuple[TextLine, ...]:
    """Splits a StableHLO module, printed with locations, into lines; the locations are removed from the text.

    >>> text = '%0 = stablehlo.sine %a : tensor<f32> loc(#loc2)' + chr(10) + '#loc1 = loc("f.py":3:0)'
    >>> stablehlo_lines(text + chr(10) + '#loc2 = loc("sin"(#loc1))')
    (TextLine(text='%0 = ...', location=SourceLocation(file='f.py', line=3, function='', scope=())),)
    """
    locations: dict[str, SourceLocation] = {}
    aliases: dict[str, str] = {}
    program_lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("#loc"):
            match = _DEFINED.match(line)
            if match is not None and match["file"]:
                locations[match[1]] = SourceLocation(match["file"], int(match["line"]), "")
            elif match is not None and match["inner"]:
                aliases[match[1]] = match["inner"]
        else:
            program_lines.append(line)
    result = []
    for line in program_lines:
        at_end = _AT_END.search(line)
        name = "" if at_end is None else at_end[1]
        while name in aliases:
            name = aliases[name]
        result.append(TextLine(_INLINE.sub("", line), locations.get(name)))
    return tuple(result)


_METADATA: Final = re.compile(r", metadata=\{[^}]*\}")
_FRAME: Final = re.compile(r"stack_frame_id=(\d+)")
_ROW: Final = re.compile(r"^(\d+) (?:\"(.*)\"|\{(.*)\})$")
_TABLES: Final = frozenset({"FileNames", "FunctionNames", "FileLocations", "StackFrames"})


def hlo_lines(text: str) -> tuple[TextLine, ...]:
    """Splits a compiled module, as XLA prints it, into lines without its location tables and metadata."""
    tables: dict[str, dict[str, str]] = {name: {} for name in _TABLES}
    program_lines: list[str] = []
    table = ""
    for line in text.splitlines():
        if line in _TABLES:
            table = line
        elif table and line:
            row = _ROW.match(line)
            if row is not None:
                tables[table][row[1]] = row[2] or row[3] or ""
                continue
            table = ""
        if not table and (line or (program_lines and program_lines[-1])):
            program_lines.append(line)
    return tuple([_hlo_line(line, tables) for line in program_lines])


def _hlo_line(line: str, tables: dict[str, dict[str, str]]) -> TextLine:
    match = _FRAME.search(line)
    frame = _fields(tables["StackFrames"].get(match[1], "")) if match is not None else {}
    location = _fields(tables["FileLocations"].get(frame.get("file_location_id", ""), ""))
    file = tables["FileNames"].get(location.get("file_name_id", ""), "")
    source = SourceLocation(file, int(location["line"]), "") if file and "line" in location else None
    return TextLine(_METADATA.sub("", line), source)


def _fields(row: str) -> dict[str, str]:
    return dict([part.split("=", 1) for part in row.split() if "=" in part])


def operations(lines: Sequence[TextLine]) -> int:
    """Returns the number of lines that are operations."""
    return sum([1 for line in lines if " = " in line.text])
