"""Describe the values of a call: shapes, dtypes, strides and plain scalars, never the values of a tensor.

A value becomes a small hashable tuple, which is a part of the signature of the call; `as_json` converts it to JSON.
Only metadata of tensors is read, so that nothing waits for a device.
"""

from __future__ import annotations

import sys
from typing import Any

Described = tuple[Any, ...]

LONGEST_TEXT = 100  # a longer string is content (a prompt, a document), not a setting
LONGEST_LIST = 64
LONGEST_INNER_DICT = 16  # items of a dict inside another value
DEEPEST_LIST = 3  # levels of nested lists and dicts
LARGEST_INT = 2**63  # a larger number is content, not a setting
ALIGNED = 256  # bytes; addresses with the same remainder are equally aligned for vectors and cache lines
CONSTANTS = ("dtype", "layout", "memory_format")  # constants of torch, which are settings like numbers


class Traced(Exception):
    """A compiler traces the call. Sizes of its tensors may be symbols, and reading one would specialize the graph."""


def describe(value: Any, depth: int = 0) -> Described:
    kind = type(value)
    if value is None:
        return ("scalar", "none", None)
    if kind is bool:
        return ("scalar", "bool", value)
    if kind is int:
        return _describe_int(value)
    if kind is float:
        return ("scalar", "float", value.hex())  # in contrast to floats, NaN equals NaN and -0.0 differs from 0.0
    if isinstance(value, str):
        text = str.__str__(value)
        return ("scalar", "str", text) if len(text) <= LONGEST_TEXT else ("other", "long str")
    if _is_tensor(value):
        return _describe_tensor(value)
    if isinstance(value, int):
        return _describe_int(int(value))
    if isinstance(value, float):
        return ("scalar", "float", float(value).hex())
    if isinstance(value, (list, tuple)):
        if len(value) > LONGEST_LIST or depth >= DEEPEST_LIST:
            return ("other", f"long {kind.__name__}")
        return ("list", tuple(describe(item, depth + 1) for item in value))
    if depth == 0 and _is_module(value):
        return ("module", f"{kind.__module__}.{kind.__qualname__}", _attributes(value, depth))
    if issubclass(kind, dict) and (items := _items(value, depth)) is not None:
        return ("dict", tuple((name, describe(item, depth + 1)) for name, item in items))
    if kind.__module__ == "torch" and kind.__name__ in CONSTANTS:
        return ("scalar", kind.__name__, str(value).replace("torch.", "", 1))
    if kind.__module__ == "torch" and kind.__name__ in ("SymInt", "SymFloat", "SymBool"):
        raise Traced
    return ("other", f"{kind.__module__}.{kind.__qualname__}")


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)  # None while torch is being imported
    return module is not None and isinstance(value, module)


def _attributes(module: Any, depth: int) -> tuple[tuple[str, Described], ...]:
    """Describe the parameters, buffers, numbers and strings of a torch module, by sorted name.

    Submodules are left out. The instance's own dicts are read, because `getattr` could run code of the program.
    """
    own = vars(module)
    tensors = {**own.get("_parameters", {}), **own.get("_buffers", {})}
    plain = {n: v for n, v in own.items() if not n.startswith("_") and n != "training"}
    plain = {n: v for n, v in plain.items() if type(v) in (bool, int, float, str) or _is_tensor(v)}
    found = sorted({**plain, **tensors}.items())
    return tuple((name, describe(value, depth + 1)) for name, value in found[:LONGEST_LIST] if _is_name(name))


def result_of(described: Described) -> Described:
    """Return a described result without scalars, which may have been computed from the values of tensors."""
    kind = described[0]
    if kind == "scalar":
        return described if described[1] == "none" else ("other", described[1])
    if kind == "dict":
        return ("dict", tuple((name, result_of(item)) for name, item in described[1]))
    if kind == "module":
        return ("other", described[1])
    return ("list", tuple(result_of(item) for item in described[1])) if kind == "list" else described


def _describe_int(value: int) -> Described:
    return ("scalar", "int", value) if -LARGEST_INT <= value < LARGEST_INT else ("other", "long int")


def _items(value: Any, depth: int) -> list[tuple[str, Any]] | None:
    """Return the items of a dict by sorted name, or None if its keys are no names or numbers.

    The methods of `dict` are used, because a subclass could run code of the program.
    """
    longest = LONGEST_INNER_DICT if depth else LONGEST_LIST
    if dict.__len__(value) > longest or depth >= DEEPEST_LIST:
        return None
    items = list(dict.items(value))
    if not all(_is_name(key) for key, _ in items):
        return None
    named = {str(key): item for key, item in items}
    return sorted(named.items(), key=lambda pair: pair[0]) if len(named) == len(items) else None


def _is_name(key: Any) -> bool:
    """Return whether a key identifies an item. A long string or one of several words is content."""
    if type(key) is int:
        return -LARGEST_INT <= key < LARGEST_INT
    if type(key) is not str or not 0 < len(key) <= LONGEST_TEXT:
        return False
    return f"_{key}".replace(".", "_").isidentifier()


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # None while torch is being imported
    return tensor is not None and isinstance(value, tensor)


def _describe_tensor(tensor: Any) -> Described:
    if type(tensor).__module__.startswith("torch._subclasses"):
        raise Traced
    shape = tuple(tensor.shape)
    if any(type(size) is not int for size in shape):
        raise Traced
    strides, offset = None, 0
    if str(tensor.layout) == "torch.strided":
        strides, offset = tuple(tensor.stride()), tensor.storage_offset()
        if type(offset) is not int:
            raise Traced
        # Only the alignment of the offset counts. The offset itself would make a new signature for every slice that a
        # loop takes.
        offset %= max(1, ALIGNED // tensor.element_size())
    return ("tensor", shape, str(tensor.dtype), strides, offset, tensor.device.type, bool(tensor.requires_grad))


def as_json(described: Described) -> dict[str, Any]:
    kind = described[0]
    if kind == "tensor":
        _, shape, dtype, strides, offset, device, requires_grad = described
        return {
            "kind": "tensor",
            "shape": list(shape),
            "dtype": dtype.replace("torch.", "", 1),
            "strides": None if strides is None else list(strides),
            "offset": offset,
            "device": device,
            "requires_grad": requires_grad,
        }
    if kind == "scalar":
        _, name, value = described
        if name == "float":
            number = float.fromhex(value)
            value = number if number - number == 0 else str(number)  # JSON has no NaN and no Inf
        return {"kind": "scalar", "type": name, "value": value}
    if kind == "list":
        return {"kind": "list", "items": [as_json(item) for item in described[1]]}
    if kind == "dict":
        return {"kind": "dict", "items": {name: as_json(item) for name, item in described[1]}}
    if kind == "module":
        items = {name: as_json(item) for name, item in described[2]}
        return {"kind": "module", "type": described[1], "items": items}
    return {"kind": "other", "type": described[1]}
