"""Axes: names for the sizes of captured calls, so that rows read well and can be resized.

The first activation gives the names: its last axis is D, its tokens' axis S, others B and H. A size of another tensor takes
the name of the axis that it equals in every row. Sizes that several other tensors share get names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Place = tuple[str, int]
Names = dict[Place, str]

TOKENS = "S"
WIDTH = "D"
LEADING = ("B", "H", "G", "A")
FURTHER = ("F", "K", "M", "N", "P", "Q", "R", "T", "U", "V", "W")


def name_axes(rows: Sequence[Shapes], main: str) -> Names:
    """Names by tensor and place, for rows whose tensors have the same numbers of axes. Sizes of 1 broadcast: no names."""
    columns = {
        (tensor, place): tuple(row[tensor][place] for row in rows)
        for tensor, shape in rows[0].items()
        for place in range(len(shape))
    }
    names = _of_main(rows, main)
    known = {name: columns[place] for place, name in names.items()}
    for place, column in columns.items():
        if place not in names and (name := _equal(place, column, known, rows[0], names, main)):
            names[place] = name
    for name, places in zip(FURTHER, _shared(columns, names), strict=False):
        names |= dict.fromkeys(places, name)
    return names


def _of_main(rows: Sequence[Shapes], main: str) -> Names:
    count = len(rows[0][main])
    columns = [[row[main][place] for row in rows] for place in range(count)]
    named = [place for place in range(count) if max(columns[place]) > 1]
    if not named:
        return {}
    names: Names = {}
    if named[-1] == count - 1 and count > 1:
        names[main, named.pop()] = WIDTH
    if named:
        # Prompts and resolutions differ from call to call, heads do not; where nothing differs, tokens are most.
        tokens = max(named, key=lambda place: (len(set(columns[place])), max(columns[place]), place))
        names[main, tokens] = TOKENS
        names |= {(main, p): n for p, n in zip([p for p in named if p != tokens], LEADING, strict=False)}
    return names


def _equal(
    place: Place, column: Shape, known: Mapping[str, Shape], first: Shapes, names: Names, main: str
) -> str | None:
    """The axis of the same sizes; of several, the one that broadcasting would put it under."""
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
