"""ArtifactFolder: writes the folder of a pull request, with README.md and one CSV file for each table."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.files.upstream_work import upstream_lines
from kernwright.campaign.history import History
from kernwright.campaign.promotion.requirements import PromotionCase
from kernwright.campaign.record import Promoted
from kernwright.campaign.review.findings import ReviewState
from kernwright.campaign.review.review_folder import bottleneck_words
from kernwright.core.errors import BadFile, EnvironmentProblem, ExistsAlready
from kernwright.judge.record.verdict import Verdict
from kernwright.report.artifacts.artifact_tables import Table, causes, counters, microbenchmark, model_table
from kernwright.report.markdown import escaped, image, table

NO_EVIDENCE = "No evidence is recorded."
IMAGES = ("before", "after")


@dataclass
class ArtifactFolder:
    """The artifacts of a campaign's best version.

    Attributes:
        images: pictures that a model made before and after, if there are any.
    """

    campaign: Campaign
    images: Sequence[Path] = ()
    _csv: dict[str, Table] = field(default_factory=dict, init=False)

    @cached_property
    def case(self) -> PromotionCase:
        return PromotionCase.of(self.campaign)

    @property
    def history(self) -> History:
        return self.case.history

    @property
    def version(self) -> BestVersion:
        return self.case.version

    @property
    def verdict(self) -> Verdict | None:
        """Return the latest verdict on all rows of the campaign, one with the grid if there is one."""
        runs = self.case.runs
        return runs.grid_run or next(reversed(runs.full_runs), None)

    def write(self, folder: Path) -> list[Path]:
        """Write all files into a new or empty folder and return their paths."""
        for picture in self.images:
            if not picture.is_file():
                raise BadFile(picture, "", "is not a file", "name the picture of a run of the model")
        if folder.is_dir() and any(folder.iterdir()):
            raise ExistsAlready(f"{folder} is not empty", "name a new folder")
        text = "\n".join(self._lines()) + "\n"
        files = {"README.md": text, "figures.json": json.dumps(self._figures(), indent=1) + "\n"}
        files |= {"candidate.patch": self.version.diff()}
        files |= {f"{name}.csv": _as_csv(own) for name, own in self._csv.items()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (folder / name).write_text(content, encoding="utf-8")
            copied = [
                Path(shutil.copyfile(picture, folder / f"{when}{picture.suffix}"))
                for when, picture in zip(IMAGES, self.images, strict=False)
            ]
        except OSError as error:
            raise EnvironmentProblem(f"{folder} cannot be written: {error}", "name another folder") from None
        return [*(folder / name for name in files), *copied]

    # README.md

    def _lines(self) -> Iterator[str]:
        settings = self.campaign.settings
        yield f"# {settings.op}: campaign {settings.name}\n"
        yield from self._summary()
        for title, lines in (
            ("Microbenchmark", self._microbenchmark()),
            ("Denoise", self._model("denoise", "denoise")),
            ("End to end", self._model("end_to_end", "end to end")),
            ("Hardware counters", self._counters()),
            ("Images", self._pictures()),
            ("Why it is faster", self._causes()),
            ("Overlapping upstream work", self._upstream()),
            ("Review and promotion", self._review()),
            ("Reproduce", self._commands()),
        ):
            yield f"\n## {title}\n"
            yield from list(lines) or [NO_EVIDENCE]

    def _summary(self) -> Iterator[str]:
        settings = self.campaign.settings
        yield f"- candidate {self.version.digest}, iteration {self.version.number}, commit {self.version.commit}"
        yield f"- task {escaped(self.case.task.name)}, digest {settings.task_digest}"
        yield f"- baseline {escaped(settings.baseline)}, digest {settings.baseline_digest}; metric {settings.metric}"
        if self.verdict is not None:
            hardware = json.dumps(self.verdict.provenance.get("hardware", {}))
            yield f"- device {settings.device}: {escaped(hardware)}"

    def _microbenchmark(self) -> Iterator[str]:
        if (verdict := self.verdict) is None:
            return
        yield f"Run {verdict.run}: **{verdict.verdict}**. Intervals are confidence intervals of the speedup.\n"
        yield from (f"- {escaped(reason)}" for reason in verdict.reasons)
        yield ""
        yield from self._table("microbenchmark", microbenchmark(verdict), 7)

    def _model(self, part: str, words: str) -> Iterator[str]:
        check = self.case.model_check
        if (found := model_table(check, part)) is not None:
            yield from self._table(part, found, 5)
        elif check is not None:
            yield f"No time of {words} was measured. {escaped(check.summary)}"

    def _counters(self) -> Iterator[str]:
        before = self.history.baseline.bottleneck if self.history.baseline is not None else None
        after = self.history.profiles[-1].bottleneck if self.history.profiles else None
        yield f"- before: {escaped(bottleneck_words(before))}"
        yield f"- after: {escaped(bottleneck_words(after))}"
        if (found := counters(before, after)) is not None:
            yield ""
            yield from self._table("counters", found, 2)

    def _pictures(self) -> Iterator[str]:
        for when, picture in zip(IMAGES, self.images, strict=False):
            digest = hashlib.sha256(picture.read_bytes()).hexdigest()
            yield from image(f"{when} the change", f"{when}{picture.suffix}")
            yield f"\n{when}: {escaped(picture.name)}, SHA-256 {digest}"

    def _causes(self) -> Iterator[str]:
        if self.verdict is not None:
            yield from (f"- {escaped(cause)}" for cause in causes(self.verdict))

    def _upstream(self) -> Iterator[str]:
        found = list(upstream_lines(self.campaign.settings.op))
        yield from found or ["The catalogue of fast paths has no overlapping work."]

    def _review(self) -> Iterator[str]:
        obstacle = ReviewState.of(self.history, self.version.digest).obstacle
        yield f"- review: {escaped(obstacle or 'approved')}"
        promoted = [own for own in self.history.all(Promoted) if own.candidate_digest == self.version.digest]
        yield f"- promotion: {f'branch {promoted[-1].branch}' if promoted else 'none'}"

    def _commands(self) -> Iterator[str]:
        settings = self.campaign.settings
        task = Path(settings.task).name
        words = ["kernwright", "judge", task, "--candidate", str(self.version.folder_in_git)]
        words += ["--baseline", settings.baseline, "--rows", self.case.runs.full_rows, "--device", settings.device]
        yield "```"
        yield f"git checkout {self.version.commit}"
        yield shlex.join(words)
        if self.verdict is not None:
            yield f"kernwright ledger show {self.verdict.run} --ledger LEDGER   # the recorded run"
        yield "kernwright ledger verify --ledger LEDGER"
        yield "kernwright ledger recompute --ledger LEDGER"
        yield "```"

    def _table(self, name: str, found: Table, numbers: int) -> Iterator[str]:
        head, rows = found
        self._csv[name] = found
        yield from table(head, rows, numbers)
        yield f"\nAs a file: {name}.csv"

    def _figures(self) -> dict[str, Any]:
        """Return the records behind the page."""
        check = self.case.model_check
        return {
            "campaign": self.campaign.settings.model_dump(mode="json"),
            "candidate": self.version.digest,
            "verdicts": [own.model_dump(mode="json") for own in self.case.runs.verdicts],
            "model_check": check.model_dump(mode="json") if check else None,
        }


def _as_csv(found: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found[0])
    writer.writerows(found[1])
    return text.getvalue()
