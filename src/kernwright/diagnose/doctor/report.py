"""DoctorReport: the findings of all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kernwright.core.errors import KernwrightError, did_you_mean
from kernwright.diagnose.doctor.finding import Finding
from kernwright.diagnose.doctor.storage import check_disk, check_folders, used_folders
from kernwright.diagnose.doctor.tool import check_tools


@dataclass(frozen=True)
class DoctorReport:
    """What the doctor found on this machine."""

    findings: tuple[Finding, ...]

    def finding(self, check: str) -> Finding:
        found = next((each for each in self.findings if each.check == check), None)
        if found is None:
            names = [each.check for each in self.findings]
            known = f"the checks are: {', '.join(names)}"
            raise KernwrightError(f"the doctor has no check {check!r}", did_you_mean(check, names, known))
        return found

    def failures(self, required: Iterable[str] = ()) -> list[Finding]:
        """Return the problems, and the required checks that are not usable."""
        needed = {self.finding(check).check for check in required}
        return [
            each for each in self.findings if each.status == "problem" or (each.check in needed and not each.is_usable)
        ]

    def as_json(self) -> dict[str, Any]:
        return {each.check: each.as_json() for each in self.findings}


def examine() -> DoctorReport:
    """Run all checks, side by side."""
    folders = used_folders()
    groups: Sequence[Callable[[], list[Finding]]] = (
        check_tools,
        lambda: [check_disk(folders), check_folders(folders)],
    )
    with ThreadPoolExecutor(len(groups)) as pool:
        return DoctorReport(tuple(each for group in pool.map(lambda check: check(), groups) for each in group))
