"""TunerAgent: an agent that tries configurations of a space, one per iteration. It needs no network."""

from __future__ import annotations

import tempfile
import time
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kernwright.campaign.agents.agent import NOTHING_LEFT, AgentResult, Assignment
from kernwright.campaign.agents.guard.commits import committed
from kernwright.campaign.record import Idea, direction_tag
from kernwright.campaign.tuning.limits import ARCHITECTURE_WITHOUT_GPU, HardwareLimits, gpu_architecture, limits_of
from kernwright.campaign.tuning.machine_code import CodeCompiler, MachineCode, missing_compiler
from kernwright.campaign.tuning.past_trials import PastTrial, note_of, past_trials
from kernwright.campaign.tuning.search import SampledSearch, changed_most, require_optuna
from kernwright.campaign.tuning.space import Configuration
from kernwright.campaign.tuning.template import Template
from kernwright.core.errors import BadFile
from kernwright.judge.rounds.progress import Progress
from kernwright.tasks.candidate import load_candidate

MOST_WRONG = 3  # after so many configurations without correct results, the kernel itself is at fault
COMPILED = "compiled"  # folder of the campaign with the reports of its compilations


@dataclass(frozen=True)
class TunerAgent:
    """Searches the space of the candidate with Optuna. It continues from the records of the campaign."""

    name: str = "tuner"

    def edit(self, assignment: Assignment, progress: Progress) -> AgentResult:
        require_optuna()
        try:
            iteration = _TunerIteration(assignment, progress)
        except BadFile as error:  # the next edit of a person may correct it
            return AgentResult(ending="no_change", reason=f"{NOTHING_LEFT}: {error.cause}; {error.remedy}")
        return iteration.run()


@dataclass
class _TunerIteration:
    assignment: Assignment
    progress: Progress
    lines: list[str] = field(default_factory=list)
    has_avoided: bool = False  # a configuration was left out because of its direction
    started_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        campaign = self.assignment.campaign
        self.template = Template.read(campaign.solution)
        self.history = campaign.history()
        self.past = past_trials(self.history, self._configuration_of)
        best = [trial for trial in self.past if trial.is_kept]
        self.best: PastTrial | None = best[-1] if best else None
        seed = zlib.crc32(campaign.name.encode())
        self.search = SampledSearch(self.template.space, [trial.tried for trial in self.past], seed)

    def _configuration_of(self, commit: str) -> Configuration | None:
        """Return the configuration of a committed version of the candidate."""
        campaign = self.assignment.campaign
        content = committed(campaign.worktree, campaign.solution / self.template.source, commit)
        return None if content is None else self.template.configuration_in(content.decode("utf-8", "replace"))

    @cached_property
    def limits(self) -> HardwareLimits:
        return limits_of(self.architecture if self._is_cuda else None)

    @cached_property
    def architecture(self) -> str:
        if not self._is_cuda:
            return "host"
        return gpu_architecture(self.assignment.campaign.settings.device) or ARCHITECTURE_WITHOUT_GPU

    @property
    def _is_cuda(self) -> bool:
        return self.template.candidate.file.language == "cuda"

    @property
    def reference(self) -> Configuration:
        """Return the configuration of the best version so far."""
        if self.best is not None and self.template.space.holds(self.best.configuration):
            return self.best.configuration
        return self.template.current() or self.template.space.defaults

    def run(self) -> AgentResult:
        compiler = CodeCompiler(self.architecture, self.assignment.campaign.folder / COMPILED)
        missing = missing_compiler(self.template.candidate)
        self._say(f"space of {self.template.space.size} configurations, {len(self.past)} judged before")
        if missing is not None:
            self._say(f"{missing} is not on PATH: configurations are not compiled before they are judged")
        if why := self._never_right():
            return self._result("no_change", why)
        self.progress.phase("choosing a configuration", 0)
        if missing is None:
            self.past = [self._with_code(compiler, trial) for trial in self.past]
        for configuration in self.search.proposals():
            if self._is_over():
                return self._result("timed_out", "the time limit was reached while configurations were compiled")
            if why := self._excluded(configuration):
                self._say(f"{_shown(configuration)}: {why}")
                continue
            code = MachineCode() if missing else self._compiled(compiler, configuration)
            if same := self._same_code(code):
                self._say(f"{_shown(configuration)}: the machine code of iteration {same.iteration}")
                self.search.note(configuration, same.ratio)
                continue
            if why := self._excluded_by_code(configuration, code):
                self._say(f"{_shown(configuration)}: {why}")
                self.search.note(configuration)
                continue
            return self._apply(configuration, code)
        return self._result("no_change", self._exhausted())

    def _never_right(self) -> str | None:
        """Return why the kernel must be repaired first, if no configuration gave correct results."""
        if len(self.past) < MOST_WRONG or any(trial.is_correct for trial in self.past):
            return None
        last = self.history.iterations[self.past[-1].iteration - 1].ended
        said = f" ({last.verdict}: {last.reason})" if last is not None and last.reason else ""
        return (
            f"{NOTHING_LEFT}: none of {len(self.past)} configurations gave correct results{said}. "
            "Repair the kernel first: a tuner changes only its constants"
        )

    def _is_over(self) -> bool:
        limit = self.assignment.time_limit_s
        return limit is not None and time.monotonic() - self.started_at > limit

    def _excluded(self, configuration: Configuration) -> str | None:
        direction = self._direction(configuration)
        if self.past and direction_tag(direction) in map(direction_tag, self.assignment.avoid_directions):
            self.has_avoided = True
            return f"the direction {direction} is refused now"
        return self.limits.problem_before(self.template.space, configuration)

    def _compiled(self, compiler: CodeCompiler, configuration: Configuration) -> MachineCode:
        self.progress.step(f"compiling {_shown(configuration)}")
        with tempfile.TemporaryDirectory(prefix="kernwright-tuner-") as scratch:
            folder = Path(scratch, "solution")
            for name, content in self.template.candidate.sources.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            source = self.template.with_configuration(configuration, "")
            (folder / self.template.source).write_text(source, encoding="utf-8")
            return compiler.compile(load_candidate(folder))

    def _with_code(self, compiler: CodeCompiler, trial: PastTrial) -> PastTrial:
        """Return a past trial with the digest of its machine code. Records of a user's versions do not have it."""
        if trial.code or not self.template.space.holds(trial.configuration):
            return trial
        return replace(trial, code=self._compiled(compiler, trial.configuration).digest)

    def _same_code(self, code: MachineCode) -> PastTrial | None:
        return next((trial for trial in self.past if code.digest and trial.code == code.digest), None)

    def _excluded_by_code(self, configuration: Configuration, code: MachineCode) -> str | None:
        if code.problem:
            return f"does not compile: {code.problem}"
        return self.limits.problem_after(self.template.space, configuration, code)

    def _apply(self, configuration: Configuration, code: MachineCode) -> AgentResult:
        number = self.assignment.number
        remark = f"iteration {number} of the campaign {self.assignment.campaign.name}"
        path = self.assignment.campaign.solution / self.template.source
        path.write_text(self.template.with_configuration(configuration, remark), encoding="utf-8")
        for kernel in code.kernels:
            self._say(f"{kernel.name}: {kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory")
        predicted = self._predicted(configuration)
        self._say(f"chosen: {_shown(configuration)}, machine code {code.digest[:16] or 'unknown'}")
        return self._result("finished", "", self._idea(configuration, predicted), note_of(configuration, code.digest))

    def _predicted(self, configuration: Configuration) -> float | None:
        expected = self.search.estimate(configuration)
        if expected is None or self.best is None or self.best.ratio is None:
            return None
        return round(expected / self.best.ratio, 4)

    def _idea(self, configuration: Configuration, predicted: float | None) -> Idea:
        if not self.past:
            hypothesis = f"The template is a good start as it is declared: {_shown(configuration)}."
            return Idea(hypothesis=hypothesis, direction="defaults")
        before = self.reference
        changed = [name for name in self.template.space.parameters if configuration[name] != before[name]]
        meanings = {name: self.template.space.parameters[name].meaning for name in changed}
        moves = [
            f"{name} from {before[name]} to {configuration[name]}" + (f" ({about})" if about else "")
            for name, about in meanings.items()
        ]
        hypothesis = (
            f"{', '.join(moves) or 'no change'}. Proposed by the search after {len(self.past)} judged configuration(s)."
        )
        return Idea(hypothesis=hypothesis, direction=self._direction(configuration), predicted_ratio=predicted)

    def _direction(self, configuration: Configuration) -> str:
        """Return the direction: the parameters that differ most from the best version."""
        names = changed_most(self.template.space, self.reference, configuration)
        return "+".join(name.lower().replace("_", "-") for name in names) or "defaults"

    def _exhausted(self) -> str:
        left = "every other configuration has a refused direction" if self.has_avoided else NOTHING_LEFT
        return f"{left}: {len(self.past)} configurations were judged, and the transcript names the excluded ones"

    def _say(self, text: str) -> None:
        self.lines.append(text)

    def _result(self, ending: str, reason: str, idea: Idea | None = None, note: str = "") -> AgentResult:
        return AgentResult(
            ending=ending,  # type: ignore[arg-type]  # one of the literals above
            idea=idea,
            reason=reason,
            note=note,
            seconds=time.monotonic() - self.started_at,
            cost_usd=0.0,
            transcript="\n".join([*self.lines, reason]).encode(),
        )


def _shown(configuration: Configuration) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.items())
