"""EngineCommand: the command with which sglang runs a preset."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernwright.core.errors import KernwrightError
from kernwright.diagnose.doctor.hub import REMEDY as TOKEN_REMEDY
from kernwright.diagnose.doctor.hub import is_downloaded, token_source
from kernwright.diagnose.doctor.sglang import COMMAND, sglang_root
from kernwright.diagnose.doctor.sglang import REMEDY as SGLANG_REMEDY
from kernwright.diagnose.presets.preset import Preset

ENGINES = ("sglang",)
_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_ASSETS = Path("inputs", "diffusion_benchmark", "figs")  # folder in which sglang's own benchmark keeps input images
_PINNED = ("--backend", "--perf-dump-path")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """A user's changes to the command of a preset."""

    torch_compile: bool = False
    transformer_path: str | None = None
    model_path: str | None = None
    prompt_path: Path | None = None
    image_path: Path | None = None
    offline: bool = False
    extra: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class EngineCommand:
    """A command without its perf dump's path, the variables that it needs, and what it computes.

    Attributes:
        problems: what this machine lacks to run it, such as an input image.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    offline: bool
    problems: tuple[KernwrightError, ...] = ()
    workload: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def sglang_command(name: str, preset: Preset, options: EngineOptions, output_name: str) -> EngineCommand:
    """Compose the command of a preset. The native backend is pinned.

    Args:
        name: the preset's name, for errors.
        output_name: name of the generated file, which is fixed if the prompt comes from a file.
    """
    if preset.sglang is None:
        raise KernwrightError(f"the preset {name} has no [sglang] table", "choose another preset, or add the table")
    if refused := [word for word in options.extra if word.partition("=")[0].replace("_", "-") in _PINNED]:
        raise KernwrightError(f"{refused[0]} is fixed for a preset", "leave it out, or run `sglang generate` itself")
    needs = _Needs(name, preset, options)
    request = preset.request
    words = [COMMAND, "generate", "--backend=sglang", f"--model-path={needs.model()}", *needs.prompt(output_name)]
    words.append(f"--seed={request.seed}")
    if request.image is not None or options.image_path is not None:
        words.append(f"--image-path={needs.image()}")
    words += preset.sglang_arguments()
    if options.transformer_path is not None:
        words.append(f"--transformer-path={needs.weights('--transformer-path', options.transformer_path)}")
    words += ["--save-output", "--warmup-mode", "request"]
    words += ["--enable-torch-compile"] if options.torch_compile else []
    stated = request.model_dump(exclude_none=True, exclude={"prompt", "negative_prompt", "image"})
    return EngineCommand(
        words=(*words, *options.extra),
        environment=preset.sglang.env,
        offline=options.offline or is_folder(needs.named_model),
        problems=tuple(needs.problems),
        workload={"model": preset.sglang_model, **stated},
        settings={
            "engine": "sglang",
            "torch_compile": options.torch_compile,
            "transformer": options.transformer_path,
            "extra": list(options.extra),
        },
    )


def as_shell(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return a command for a POSIX shell, with one argument a line."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    lines = [[*variables, *map(shlex.quote, words[:2])]]
    for word in words[2:]:
        if word.startswith("--") or lines[-1] is lines[0]:
            lines.append([])
        lines[-1].append(shlex.quote(word))  # the value of an option is on the line of the option
    return " \\\n    ".join(map(" ".join, lines))


def is_folder(named: str) -> bool:
    """Return whether a name of weights means a folder: it exists or looks like a path. Other names are hub models."""
    return Path(named).expanduser().exists() or _HUB_ID.fullmatch(named) is None


class _Needs:
    """The files of a command. What is missing is collected, so that a command for another machine can be shown."""

    def __init__(self, name: str, preset: Preset, options: EngineOptions) -> None:
        self.problems: list[KernwrightError] = []
        self.named_model = options.model_path or preset.sglang_model
        self._name, self._preset, self._options = name, preset, options
        if shutil.which(COMMAND) is None:
            self._lack(f"the command `{COMMAND}` is not on PATH", SGLANG_REMEDY)

    def model(self) -> str:
        """Return the model. Note a problem if its weights are neither here nor downloadable."""
        named, options, table = self.named_model, self._options, self._preset.sglang
        if is_folder(named):
            return self.weights("--model-path", named)
        if not is_downloaded(named):
            if options.offline:
                self._lack(f"--offline: {named} is not downloaded", "name its folder with --model-path")
            elif table is not None and table.gated and options.model_path is None and not token_source():
                self._lack(f"{named} is a gated model, and no HF_TOKEN was found", TOKEN_REMEDY)
        return named

    def weights(self, option: str, named: str) -> str:
        """Return a folder or a hub id. A missing folder is a problem: sglang would read its name as a hub id."""
        if not is_folder(named):
            return named
        path = Path(named).expanduser().absolute()
        if not path.exists():
            self._lack(f"{option}: {named} does not exist", "name a folder, or a model of the hub as owner/name")
        return str(path)

    def prompt(self, output_name: str) -> list[str]:
        file = self._options.prompt_path
        if file is None:
            return [f"--prompt={self._preset.request.prompt}"]
        try:
            prompts = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            self._lack(f"--prompt-path: {file} cannot be read: {error}", "name a text file with one prompt")
        else:
            if len(prompts) != 1:
                self._lack(
                    f"--prompt-path: {file} holds {len(prompts)} prompts, one per line",
                    "leave one: the generated files would overwrite each other",
                )
        return [f"--prompt-path={file.absolute()}", f"--output-file-name={output_name}"]

    def image(self) -> Path:
        """Return the input image: the given one, or the preset's, in the folder that sglang's own benchmark uses."""
        given, root = self._options.image_path, sglang_root()
        folders = [Path.cwd(), *([root / _ASSETS] if root is not None else [])]
        places = [given] if given is not None else [folder / str(self._preset.request.image) for folder in folders]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            self._lack(
                f"the preset {self._name} needs an input image, which is not at {' or '.join(map(str, places))}",
                "name one with --image-path FILE",
            )
        return (found or places[0]).absolute()

    def _lack(self, cause: str, remedy: str) -> None:
        self.problems.append(KernwrightError(cause, remedy))
