"""Axes: names for the sizes of captured calls, so that rows read well and can be resized.

The first activation gives the names: its last axis is D, its tokens' axis S, others B and H. A size of another tensor
takes the name of the axis that it equals in every row. Sizes that several other tensors share get names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Place = tuple[str, int]
Names = dict[Place, str]

TOKENS = "S"
WIDTH = "D"
BATCH = "B"
HEADS = ("H", "G", "A", "C", "E")
FURTHER = ("F", "K", "M", "N", "P", "Q", "R", "T", "U", "V", "W")


def token_place(shapes: Sequence[Shape]) -> int:
    """Return the place of the token axis of an activation, given all captured shapes. All have the same number of axes.

    If there is a choice, the first axis is the batch and does not count. The number of tokens differs between calls,
    since prompts and resolutions do, while the number of heads does not. If no size differs, the largest axis has the
    tokens.
    """
    leading = range(max(1, len(shapes[0]) - 1))
    columns = [{shape[place] for shape in shapes if shape} for place in leading]
    inner = [place for place in leading[1:] if max(columns[place]) > 1]
    return max(inner or leading, key=lambda place: (len(columns[place]), max(columns[place], default=0), place))


def name_axes(rows: Sequence[Shapes], main: str, tokens: int) -> Names:
    """Return the names of axes by tensor and place. All rows have the same axes, and the same axes of size 1.

    An axis of size 1 broadcasts and has no name.
    """
    columns = {
        (tensor, place): tuple(row[tensor][place] for row in rows)
        for tensor, shape in rows[0].items()
        for place in range(len(shape))
    }
    names = _of_main(rows[0][main], main, tokens)
    known = {name: columns[place] for place, name in names.items()}
    for place, column in columns.items():
        if place not in names and (name := _equal(place, column, known, rows[0], names, main)):
            names[place] = name
    for name, places in zip(FURTHER, _shared(columns, names), strict=False):
        names |= dict.fromkeys(places, name)
    return names


def _of_main(shape: Shape, main: str, tokens: int) -> Names:
    named = [place for place, size in enumerate(shape) if size > 1]
    names: Names = {(main, tokens): TOKENS} if tokens in named else {}
    if len(shape) > 1 and len(shape) - 1 in named:
        names[main, len(shape) - 1] = WIDTH
    if 0 in named and (main, 0) not in names:
        names[main, 0] = BATCH
    others = [place for place in named if (main, place) not in names]
    return names | {(main, place): name for place, name in zip(others, HEADS, strict=False)}


def _equal(
    place: Place, column: Shape, known: Mapping[str, Shape], first: Shapes, names: Names, main: str
) -> str | None:
    """Return the axis of equal size; of several, the one that broadcasting aligns it with."""
    if max(column) == 1:
        return None
    fitting = [name for name, sizes in known.items() if sizes == column]
    under = names.get((main, place[1] - len(first[place[0]]) + len(first[main])))
    return under if under in fitting else next(iter(fitting), None)


def _shared(columns: Mapping[Place, Shape], names: Names) -> Iterator[list[Place]]:
    groups: dict[Shape, list[Place]] = {}
    for place, column in columns.items():
        if place not in names and max(column) > 1:
            groups.setdefault(column, []).append(place)
    return (places for places in groups.values() if len({tensor for tensor, _ in places}) > 1)
