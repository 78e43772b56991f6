"""Tables and JSON on a terminal."""

import json
import math
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["plain_table", "print_json", "print_table", "say", "warn_unconverged"]


def plain_table(*columns: str) -> Table:
    """A table without lines; a column whose name starts with > is aligned right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table, or its rows as a list if the terminal is too narrow for it.

    The last column may wrap down to 24 characters if it is aligned left; names never wrap.
    """

    def width(cell: Any) -> int:
        return Measurement.get(console, console.options, cell).maximum

    headers = [column.header if table.show_header else "" for column in table.columns]
    rows = [*zip(*(column.cells for column in table.columns), strict=True)]
    widths = [max(map(width, cells)) for cells in zip(headers, *rows, strict=True)]
    if table.columns[-1].justify == "left":
        widths[-1] = min(widths[-1], 24)
    if sum(widths) + 2 * (len(widths) - 1) <= console.width:  # two spaces between columns
        console.print(table)
        return
    for name, *cells in rows:
        console.print(name, style="bold")
        pairs = [(c.header, cell) for c, cell in zip(table.columns[1:], cells, strict=True)]
        right = [column.justify == "right" for column in table.columns[1:]]
        numbers = [pair for pair, is_number in zip(pairs, right, strict=True) if is_number]
        texts = [cell for (_, cell), number in zip(pairs, right, strict=True) if not number]
        for text in [*_packed(numbers, console.width - 2), *texts]:
            if str(text):
                console.print(Padding(text, (0, 0, 0, 2)))


def _packed(numbers: list[tuple[Any, Any]], room: int) -> list[str]:
    """Numbers with their names, as many per line as fit; numbers are never broken."""
    lines: list[str] = []
    for header, cell in numbers:
        if not str(cell):
            continue
        item = f"{header} {cell}"
        if len(item) >= room:
            item = f"{cell} ({header})"  # breaks the name, not the number
        if lines and len(lines[-1]) + len(item) + 2 <= room:
            lines[-1] += f", {item}"
        else:
            lines[-1:] = [*(f"{line}," for line in lines[-1:]), item]
    return lines


def print_json(value: Any) -> None:
    """Print strict JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(sentence: str, style: str = "red") -> None:
    """Print a sentence for the user on the error stream."""
    Console(stderr=True).print(Text(sentence, style=style), soft_wrap=True)


def warn_unconverged(console: Console, unconverged: int, residual: float | None) -> None:
    """Warn loudly if projections of a sweep did not converge."""
    if unconverged:
        worst = "" if residual is None else f" (largest residual {residual:.2g})"
        console.print(
            Text(
                f"{unconverged:,} projections did not converge{worst}: do not trust the lanes "
                "where `unconverged` is not 0.",
                style="bold red",
            ),
            soft_wrap=True,
        )
