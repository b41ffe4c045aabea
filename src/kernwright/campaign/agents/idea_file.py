"""idea.json: the idea behind an edit, as the agent states it."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernwright.campaign.record import Idea, direction_tag
from kernwright.core.plain_text import plain

IDEA_FILE = "idea.json"
MOST_BYTES = 1 << 16
MOST_TEXT, MOST_TAG = 4000, 60  # characters
NO_IDEA = Idea(hypothesis="(none given)", direction="unknown")


class IdeaFile(BaseModel):
    """The content of idea.json. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    hypothesis: str = Field(min_length=1)
    direction: str = Field(min_length=1)
    predicted_ratio: float | None = Field(default=None, gt=0, le=1000)
    note: str = ""
    cost_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)


@dataclass(frozen=True)
class StatedIdea:
    """The statement of an agent about its edit. `problem` says why its file does not count."""

    idea: Idea = NO_IDEA
    note: str = ""
    cost_usd: float | None = None
    problem: str = ""


def take_idea(folder: Path) -> StatedIdea:
    """Read and remove idea.json. A missing or bad file costs the idea, not the iteration."""
    path = folder / IDEA_FILE
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return StatedIdea(problem=f"{IDEA_FILE} is not a plain file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
        path.unlink()
        if len(content) > MOST_BYTES:
            return StatedIdea(problem=f"{IDEA_FILE} has over {MOST_BYTES >> 10} KiB")
        stated = IdeaFile.model_validate(_parsed(content))
    except FileNotFoundError:
        return StatedIdea(problem=f"the agent wrote no {IDEA_FILE}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return StatedIdea(problem=f"{IDEA_FILE}: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    except (OSError, ValueError, RecursionError) as error:
        return StatedIdea(problem=f"{IDEA_FILE} cannot be read: {error}")
    idea = Idea(
        hypothesis=plain(stated.hypothesis[:MOST_TEXT]) or NO_IDEA.hypothesis,
        direction=direction_tag(stated.direction)[:MOST_TAG] or NO_IDEA.direction,
        predicted_ratio=stated.predicted_ratio,
    )
    return StatedIdea(idea, plain(stated.note[:MOST_TEXT]), stated.cost_usd)


def _parsed(content: bytes) -> Any:
    return json.loads(content.decode("utf-8"))
