"""Files of perf dumps: read, write, file by label, and find again."""

from __future__ import annotations

import json
import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from kernwright.core.errors import BadFile, EnvironmentProblem, KernwrightError, did_you_mean
from kernwright.diagnose.perf_dump.dump import PerfDump
from kernwright.ledger.files import make_folder, replacing

LARGEST_FILE = 64 << 20  # bytes; a dump of ten thousand steps has less than 1 MB
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_REMEDY = "name a perf dump: a JSON file of `kernwright denoise`, or of `sglang generate --perf-dump-path`"


def default_dump_root() -> Path:
    """Return $KERNWRIGHT_DUMPS, or ``.kernwright/dumps`` below the working directory."""
    configured = os.environ.get("KERNWRIGHT_DUMPS")
    return Path(configured).expanduser() if configured else Path.cwd() / ".kernwright" / "dumps"


def dump_path(preset: str, label: str, root: Path | None = None) -> Path:
    """Return a new path for a dump: ``<root>/<preset>/<label>/<time>-<id>.json``. Nothing is created."""
    for what, name in (("preset", preset), ("label", label)):
        if not _NAME.fullmatch(name):
            raise KernwrightError(
                f"{what} {name!r} cannot name a folder", "use letters, digits, dots, dashes and underscores"
            )
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    return (root or default_dump_root()) / preset / label / f"{time}-{secrets.token_hex(3)}.json"


def write_dump(path: Path, dump: PerfDump) -> None:
    """Write a dump and create its folder. Readers see the whole file or none."""
    text = dump.model_dump_json(indent=2, exclude_none=True) + "\n"
    try:
        make_folder(path.absolute().parent)
        with replacing(path.absolute()) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be written: {error.strerror or error}", "choose a writable folder, or set KERNWRIGHT_DUMPS"
        ) from None


def file_dump(dump: PerfDump, root: Path | None = None) -> Path:
    """Write a dump to the folder of its preset and label. Return the path."""
    held = dump.kernwright
    preset, label = (held.preset, held.label) if held is not None else ("", "")
    path = dump_path(preset or "unnamed", label or "unnamed", root)
    write_dump(path, dump)
    return path


def read_dump(path: Path) -> PerfDump:
    """Return the dump of a file that Kernwright or sglang wrote.

    Raises:
        BadFile: the file cannot be read, is not JSON, or has no times.
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadFile(path, "", f"is larger than {LARGEST_FILE >> 20} MiB, so it is not a perf dump", _REMEDY)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadFile(path, "", f"cannot be read: {error.strerror or error}", _REMEDY) from None
    except UnicodeDecodeError:
        raise BadFile(path, "", "is not text in UTF-8", _REMEDY) from None
    if not text.strip():
        raise BadFile(path, "", "is empty", "repeat the run: it may have ended before its dump was written")
    try:
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, "", f"is not complete JSON: {error}", _REMEDY) from None
    return parse_dump(held, path)


def parse_dump(held: object, source: object) -> PerfDump:
    """Return the dump in decoded JSON.

    Args:
        source: the file, for errors.
    """
    if not isinstance(held, dict):
        raise BadFile(source, "", f"holds a {type(held).__name__}, not an object", _REMEDY)
    try:
        dump = PerfDump.model_validate(held)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise BadFile(source, field, f"{first['msg']}, got {str(first['input'])[:80]!r}", _REMEDY) from None
    if dump.total_duration_ms is None and not dump.steps and not dump.denoise_steps_ms:
        raise BadFile(source, "", "has none of total_duration_ms, steps and denoise_steps_ms", _REMEDY)
    return dump


def find_dumps(name: str, root: Path | None = None) -> list[Path]:
    """Return the files of repeated runs, oldest first.

    Args:
        name: a file, a folder of files, or a label, with its preset, as in `flux/base`, if several presets have it.
        root: the folder of labels.
    """
    path = Path(name).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        return _dumps_in(path)
    root = root or default_dump_root()
    labels = {f"{each.parent.name}/{each.name}": each for each in sorted(root.glob("*/*")) if each.is_dir()}
    found = [each for key, each in labels.items() if name in (key, each.name)]
    if len(found) == 1:
        return _dumps_in(found[0])
    if found:
        choices = ", ".join(f"{each.parent.name}/{each.name}" for each in found)
        raise KernwrightError(f"several presets have the label {name}", f"name one of: {choices}")
    words = [*labels, *(each.name for each in labels.values())]
    known = f"known labels: {', '.join(labels)}" if labels else f"there are no labels in {root}"
    raise KernwrightError(f"{name} is not a file, a folder or a label", did_you_mean(name, words, known))


def _dumps_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.glob("*.json") if path.is_file() and not path.name.startswith("."))
    if found:
        return found
    below = sorted({path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.json")})
    remedy = f"name one of its folders: {', '.join(below[:8])}" if below else _REMEDY
    raise KernwrightError(f"{folder} holds no perf dumps", remedy)
