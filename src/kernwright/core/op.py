"""Op: a fused operation whose definition is a short torch function.

The function's signature is the schema (tensor parameters, then keyword-only scalars), its body the eager chain that the
op replaces, the reference that every implementation is held to, and the fallback on every device.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from kernwright.core.digest import function_digest

Reference = Callable[..., Tensor | tuple[Tensor, ...] | None]
Contract = Literal["exact", "close"]
Scalar = bool | int | float | str


class TensorParameter(BaseModel):
    """One tensor argument of an op."""

    model_config = ConfigDict(frozen=True)

    name: str
    optional: bool


class Op(BaseModel):
    """A fused operation: its computation, the arguments that it may change, and its numerical contract."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, ignored_types=(cached_property,))

    name: str
    outputs: tuple[str, ...] = Field(description="what a call returns; may be empty for an op that works in place")
    contract: Contract = "close"
    activations: tuple[str, ...] = Field(
        min_length=1, description="tensors that carry data of any magnitude; the others modulate them"
    )
    inplace: tuple[str, ...] = Field(default=(), description="tensor arguments that a call changes")
    indices: dict[str, str] = Field(
        default_factory=dict,
        description="tensors of row numbers, each with the table it picks from; others pick 0 or 1",
    )
    propagates_nonfinite: bool = Field(
        default=True, description="a NaN or Inf in the input must reach the output wherever it reaches the reference's"
    )
    reference: Reference = Field(exclude=True, repr=False)

    @model_validator(mode="after")
    def signature_is_a_schema(self) -> Op:
        for name, parameter in inspect.signature(self.reference).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                if not isinstance(parameter.default, bool | int | float | str):
                    raise ValueError(
                        f"{self.name}: the scalar {name} needs a number or a string as its default: {name}: float = 1.0"
                    )
            elif parameter.annotation is parameter.empty:
                raise ValueError(
                    f"{self.name}: the parameter {name} has no annotation: write {name}: Tensor or "
                    "Tensor | None = None; scalars come after a *"
                )
        return self

    @model_validator(mode="after")
    def names_are_parameters(self) -> Op:
        known = {parameter.name for parameter in self.tensor_parameters}
        for field in ("activations", "inplace", "indices"):
            strangers = {*getattr(self, field), *(self.indices.values() if field == "indices" else ())} - known
            if strangers:
                raise ValueError(f"{field} names {sorted(strangers)}, which {self.name} does not take")
        if not self.outputs and not self.inplace:
            raise ValueError(f"{self.name} neither returns nor changes anything: name its outputs or inplace arguments")
        return self

    @cached_property
    def tensor_parameters(self) -> tuple[TensorParameter, ...]:
        hints = typing.get_type_hints(self.reference)
        return tuple(
            TensorParameter(name=name, optional=type(None) in typing.get_args(hints[name]))
            for name, parameter in inspect.signature(self.reference).parameters.items()
            if parameter.kind is not parameter.KEYWORD_ONLY
        )

    @cached_property
    def scalar_defaults(self) -> dict[str, Scalar]:
        return {
            name: parameter.default
            for name, parameter in inspect.signature(self.reference).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }

    @cached_property
    def digest(self) -> str:
        """Return the digest of the op's fields and of its reference with all helpers of ours that it calls."""
        return function_digest(self.reference, self.model_dump(mode="json"))

    def call(self, tensors: Mapping[str, Tensor | None], scalars: Mapping[str, Scalar]) -> tuple[Tensor, ...]:
        """Run the eager chain. In the given dtypes it is the reference, in float64 the oracle."""
        arguments = [tensors.get(parameter.name) for parameter in self.tensor_parameters]
        result = self.reference(*arguments, **scalars)
        if result is None:
            return ()
        return (result,) if isinstance(result, Tensor) else tuple(result)

    def oracle(self, tensors: Mapping[str, Tensor | None], scalars: Mapping[str, Scalar]) -> tuple[Tensor, ...]:
        """Run the chain in float64, where its rounding is far below that of any judged dtype."""
        return self.call({name: _widened(tensor, torch.float64) for name, tensor in tensors.items()}, scalars)

    def results(
        self,
        tensors: Mapping[str, Tensor | None],
        scalars: Mapping[str, Scalar],
        *,
        precision: torch.dtype | None = None,
    ) -> dict[str, Tensor]:
        """Return the results of a call by name: its outputs, then the arguments that it changes.

        The given tensors are not changed. With a `precision` above their dtype, the result is an oracle.
        """
        own = {name: _widened(tensor, precision) for name, tensor in tensors.items()}
        changed: dict[str, Tensor] = {}
        for name in self.inplace:
            if (tensor := own.get(name)) is not None:
                own[name] = changed[name] = tensor.clone()
        return dict(zip(self.outputs, self.call(own, scalars), strict=True)) | changed


def _widened(tensor: Tensor | None, precision: torch.dtype | None) -> Tensor | None:
    if tensor is None or precision is None or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.promote_types(tensor.dtype, precision))


def define(
    *,
    outputs: Sequence[str],
    activations: Sequence[str],
    contract: Contract = "close",
    inplace: Sequence[str] = (),
    indices: Mapping[str, str] | None = None,
    propagates_nonfinite: bool = True,
) -> Callable[[Reference], Op]:
    """Turn a torch function into an Op with the function's name."""

    def wrap(function: Reference) -> Op:
        return Op(
            name=function.__name__,
            outputs=tuple(outputs),
            contract=contract,
            activations=tuple(activations),
            inplace=tuple(inplace),
            indices=dict(indices or {}),
            propagates_nonfinite=propagates_nonfinite,
            reference=function,
        )

    return wrap


def ops_in(namespace: Mapping[str, Any]) -> dict[str, Op]:
    """Return the ops that a module defines, by name."""
    return {value.name: value for value in namespace.values() if isinstance(value, Op)}
