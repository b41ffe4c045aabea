"""StartingCandidate: a correct candidate that a campaign begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernwright.campaign.files.reference import reference_text
from kernwright.campaign.settings import CampaignLanguage
from kernwright.core.errors import KernwrightError
from kernwright.core.plain_text import scalar_literal
from kernwright.tasks.candidate import CANDIDATE_FILE, load_candidate
from kernwright.tasks.task import Task

KERNEL = "kernel.py"


def starting_candidate(task: Task, op: str, language: CampaignLanguage) -> dict[str, bytes]:
    """Return the files of a candidate that computes an op with its eager chain.

    Raises:
        KernwrightError: there is no such candidate in this language.
    """
    if language != "python":
        raise KernwrightError(
            f"a campaign in {language} needs a candidate to start from",
            f"write one with `kernwright candidate new --op {op} --language {language}`, commit it and give it with "
            "--from DIR; or start with --language python",
        )
    schema = task.schemas[op]
    tensors = [f"{each.name}=None" if each.optional else each.name for each in schema.tensor_parameters]
    scalars = [f"{name}={scalar_literal(value)}" for name, value in schema.scalar_defaults.items()]
    called = [each.name for each in schema.tensor_parameters] + [f"{name}={name}" for name in schema.scalar_defaults]
    text = "\n".join(
        [
            reference_text(task, op, "_reference").rstrip(),
            "",
            "",
            f"def {op}({', '.join([*tensors, *(['*'] if scalars else []), *scalars])}):",
            f"    return _reference({', '.join(called)})",
            "",
        ]
    )
    toml = f'op = "{op}"\nlanguage = "{language}"\nentry = "{KERNEL}:{op}"\n'
    return {CANDIDATE_FILE: toml.encode(), KERNEL: text.encode()}


def given_candidate(folder: Path, op: str) -> Mapping[str, bytes]:
    """Return the files of a candidate that the user gives.

    Raises:
        KernwrightError: the folder is no candidate for the op.
    """
    candidate = load_candidate(folder)
    if candidate.file.op != op:
        raise KernwrightError(
            f"{folder} implements {candidate.file.op}, and the campaign is about {op}", "give another folder, or --op"
        )
    return candidate.sources
