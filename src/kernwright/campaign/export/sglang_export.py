"""SglangExport: a campaign's best version as a patch against a tree of SGLang."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from kernwright.campaign.best_version import BestVersion
from kernwright.campaign.campaign import Campaign
from kernwright.campaign.export.sglang_files import SglangFiles
from kernwright.campaign.export.sglang_tree import DOMAINS, SglangTree
from kernwright.campaign.history import History
from kernwright.campaign.promotion.proven_forms import proven_forms
from kernwright.campaign.review.findings import ReviewState
from kernwright.campaign.version_verdicts import deciding_headline, verdicts_on
from kernwright.core.digest import folder_digest
from kernwright.core.errors import EnvironmentProblem, ExistsAlready, KernwrightError
from kernwright.core.registry import shipped_families
from kernwright.judge.record.verdict import Verdict
from kernwright.tasks.candidate import Candidate, load_candidate
from kernwright.tasks.catalog import find_task
from kernwright.tasks.task import Task

OURS = "exported by Kernwright"
DOMAIN_OF = {  # subfolder of sglang's diffusion kernels by family of our ops
    "norm_modulation": "norm", "plain_norm": "norm", "residual_norm": "norm", "norm_tanh": "norm", "vae": "norm",
    "ernie": "norm", "ltx2_modulate": "norm", "rotation": "rope", "query_key": "rope", "layout": "layout",
    "modulation": "modulate",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SglangExport:
    """The export of a campaign into a tree.

    Attributes:
        root: a checkout of SGLang, or a folder with the unpacked wheel.
        name: name of the public function; None for the op's name, with a suffix if the tree has that name already.
        domain: subfolder of the diffusion kernels; None for the one that suits the op's family.
    """

    campaign: Campaign
    root: Path
    name: str | None = None
    domain: str | None = None

    @cached_property
    def tree(self) -> SglangTree:
        return SglangTree.at(self.root)

    @cached_property
    def history(self) -> History:
        return self.campaign.history()

    @cached_property
    def version(self) -> BestVersion:
        return BestVersion.of(self.campaign, self.history)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return verdicts_on(self.campaign, self.history, self.version.digest)

    @cached_property
    def files(self) -> SglangFiles:
        """Return the files of the export. Raise KernwrightError for a candidate that cannot be exported."""
        settings, task = self.campaign.settings, find_task(self.campaign.settings.task)
        candidate, op = self._candidate(), task.ops[settings.op]
        judged = {row.id for verdict in self.verdicts for row in verdict.rows}
        forms = proven_forms(task, op, judged)
        if not forms:
            raise KernwrightError(
                "no judged row has all tensors at aligned addresses",
                f"judge it: kernwright campaign run {settings.name}",
            )
        domain = self.domain or DOMAIN_OF.get(shipped_families().get(op.name, ""), "modulate")
        if domain not in DOMAINS:
            raise KernwrightError(f"--domain {domain}: is no subfolder of the kernels", f"use: {', '.join(DOMAINS)}")
        return SglangFiles(
            tree=self.tree, task=task, op=op, candidate=candidate, name=self._name(candidate, domain), domain=domain,
            forms=forms, provenance=list(self._provenance(task)),
        )  # fmt: skip

    def _candidate(self) -> Candidate:
        with tempfile.TemporaryDirectory(prefix="kernwright-export-") as scratch:
            candidate = self.version.write(Path(scratch) / self.campaign.name)
            _ = candidate.digest  # reads all sources
        return candidate

    def _name(self, candidate: Candidate, domain: str) -> str:
        """Return the public name: that of an earlier export, or one that the tree does not have."""
        first = self.name or candidate.file.op.strip("_")
        names = [first] if self.name else [first, f"{first}_kernwright"]
        taken = self.tree.registrations.names | {op.removeprefix("diffusion.") for op in self.tree.registrations.ops}
        if own := next((each for each in names if OURS in self._launchers(each, domain)), None):
            return own
        free = next((each for each in names if each not in taken and not self._launchers(each, domain)), None)
        if free is None:
            raise KernwrightError(f"sglang has a kernel {first} already", "choose another name with --name")
        return free

    def _launchers(self, name: str, domain: str) -> str:
        """Return the text of the launchers that a name has in the tree."""
        places = [self.tree.package(f"kernels/ops/diffusion/{domain}/{name}_{kind}.py") for kind in ("jit", "triton")]
        return "".join(self.tree.read(place) or "" for place in places)

    def _provenance(self, task: Task) -> Iterator[str]:
        settings = self.campaign.settings
        yield f"campaign   {settings.name}, iteration {self.version.number}"
        yield f"candidate  {self.version.digest}"
        yield f"task       {task.name}, {settings.task_digest}"
        yield f"baseline   {settings.baseline}, {settings.baseline_digest}"
        for verdict in self.verdicts:
            headline = deciding_headline(verdict)
            hardware = verdict.provenance.get("hardware", {})
            device = hardware.get("name") or hardware.get("cpu") or settings.device
            ratio = f" {headline.geomean:.3f}x over {headline.rows} rows ({verdict.metric})" if headline else ""
            yield f"verdict    {verdict.run}: {verdict.verdict}{ratio} on {device}"
        obstacle = ReviewState.of(self.history, self.version.digest).obstacle
        yield f"review     {'approved' if obstacle is None else obstacle}"

    # The patch

    def changes(self) -> dict[PurePosixPath, tuple[str | None, str]]:
        """Return the changed files by path, each with its present text, or None, and its new text.

        Raises:
            ExistsAlready: a file of the tree that is not ours has the place of a new one.
        """
        files = self.files
        wanted = {path: data.decode() for path, data in files.new_files().items()}
        if files.name not in self.tree.registrations.names:
            wanted[self.tree.facade] = files.facade()
        found = {path: (self.tree.read(path), text) for path, text in wanted.items()}
        is_again = OURS in (self.tree.read(files.launcher_path) or "")
        for path, (present, text) in found.items():
            if present is not None and path != self.tree.facade and present != text and not is_again:
                raise ExistsAlready(f"{self.root / path} exists and is not ours", "choose another name with --name")
        return {path: pair for path, pair in found.items() if pair[0] != pair[1]}

    def patch(self) -> str:
        """Return the changes as a patch for `git apply`, relative to the root of the tree."""
        return "".join(_diff(path, *pair) for path, pair in sorted(self.changes().items()))

    def apply(self) -> list[PurePosixPath]:
        """Write the changes into the tree and return the paths."""
        changes = self.changes()
        try:
            for path, (_, text) in changes.items():
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.root / path).write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise EnvironmentProblem(f"{self.root} cannot be written: {error}", "make the tree writable") from None
        return sorted(changes)

    # Drift

    def drift(self) -> list[str]:
        """Return what differs between the exported copy, the best version and solution/; nothing if all agree."""
        files = self.files
        launcher = self.tree.read(files.launcher_path)
        if launcher is None or OURS not in launcher:
            return [f"{files.launcher_path} is not there: the campaign was not exported into this tree"]
        found = []
        exported = next((line.split()[1] for line in launcher.splitlines() if line.startswith("candidate ")), "")
        if exported != self.version.digest:
            found.append(f"the copy is of candidate {exported[:16]}, the best version is {self.version.digest[:16]}")
        else:
            for path, data in files.new_files().items():
                if path != files.launcher_path and (text := self.tree.read(path)) != data.decode():
                    found.append(f"{path} {'is missing' if text is None else 'was edited after the export'}")
            if _without_provenance(launcher) != _without_provenance(files.new_files()[files.launcher_path].decode()):
                found.append(f"{files.launcher_path} was edited after the export")
        if files.name not in self.tree.registrations.names:
            found.append(f"{self.tree.facade} does not register {files.name}")
        if (solution := self.campaign.solution).is_dir():
            own = folder_digest(load_candidate(solution).sources)
            if own != self.version.digest:
                found.append(f"solution/ holds {own[:16]}, which is not the best version")
        return found


def _without_provenance(text: str) -> str:
    """Return a launcher without its docstring, since new verdicts on the same version do not change the code."""
    return text.partition('"""\n\nfrom __future__')[2]


def _diff(path: PurePosixPath, present: str | None, text: str) -> str:
    head = f"diff --git a/{path} b/{path}\n" + ("new file mode 100644\n" if present is None else "")
    before = "/dev/null" if present is None else f"a/{path}"
    lines = difflib.unified_diff(
        (present or "").splitlines(keepends=True), text.splitlines(keepends=True), before, f"b/{path}"
    )
    marked = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return head + "".join(marked)
