"""Stages of a diffusers pipeline, recorded while it runs.

Every pipeline of diffusers runs its denoising loop inside its progress bar, which is advanced after each step. A
`DenoisingLoop` takes the place of the bar. The other stages are methods of the pipeline and of its components.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any

from kernwright.diagnose.perf_dump.recorder import DumpRecorder

# Stages other than the loop: component (none: the pipeline), its method, and the stage's name.
METHODS = (
    (None, "encode_prompt", "TextEncodingStage"),
    ("connectors", "forward", "TextConnectorStage"),
    ("image_encoder", "forward", "ImageEncodingStage"),
    ("vae", "encode", "ImageVAEEncodingStage"),
    ("vae", "decode", "DecodingStage"),
    ("audio_vae", "decode", "AudioDecodingStage"),
    ("vocoder", "forward", "VocoderStage"),
)
StepEnd = Callable[[int], None]


class DenoisingLoop:
    """The progress bar of a pipeline: a stage, in which each advance ends a step.

    Args:
        around: a context of the loop, such as a profiler.
        on_step: called after each step with its number.
    """

    def __init__(
        self, recorder: DumpRecorder, name: str, total: int, around: AbstractContextManager[Any], on_step: StepEnd
    ) -> None:
        self._recorder, self._name, self._total = recorder, name, total
        self._around, self._on_step = around, on_step
        self._stack = ExitStack()
        self._step: AbstractContextManager[None] | None = None
        self._done = 0

    def __enter__(self) -> DenoisingLoop:
        self._stack.enter_context(self._around)
        self._stack.enter_context(self._recorder.stage(self._name))
        self._begin()
        return self

    def update(self, steps: int = 1) -> None:
        """End a step."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        self._done += steps
        self._on_step(self._done)
        self._begin()

    def _begin(self) -> None:
        self._step = self._recorder.denoise_step() if self._done < self._total else None
        if self._step is not None:
            self._step.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self._recorder.checkpoint("after_denoising")


@contextmanager
def recorded_stages(
    pipeline: Any,
    recorder: DumpRecorder,
    name: str,
    around: Callable[[], AbstractContextManager[Any]],
    on_step: StepEnd,
) -> Iterator[dict[str, Any]]:
    """Record the stages of a pipeline while the block runs. Yield the first argument of the last call of each stage.

    Args:
        name: the name of the stage of the denoising loop.
        around: returns a context for the loop.
    """
    last: dict[str, Any] = {}
    with ExitStack() as stack:
        loop = lambda iterable=None, total=None: DenoisingLoop(recorder, name, total, around(), on_step)  # noqa: E731
        stack.enter_context(_replaced(pipeline, "progress_bar", loop))
        for component, method, stage in METHODS:
            owner = pipeline if component is None else getattr(pipeline, component, None)
            if owner is not None and hasattr(owner, method):
                timed = _timed(getattr(owner, method), recorder, stage, last)
                stack.enter_context(_replaced(owner, method, timed))
        yield last


def _timed(own: Callable[..., Any], recorder: DumpRecorder, stage: str, last: dict[str, Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        last[stage] = arguments[0] if arguments else None
        with recorder.stage(stage):
            return own(*arguments, **named)

    return call


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute on an object while the block runs. It hides the attribute of the class."""
    owner.__dict__[name] = value
    try:
        yield
    finally:
        owner.__dict__.pop(name, None)
