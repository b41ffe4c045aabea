"""Collect the evidence for the pages, as far as a short GPU session permits, in one archive.

    python3 benchmarks/gpu_evidence.py field=4 again=4:qknorm_rope ops=12 [--out DIR] [--work DIR] [--bundle DIR]

Steps run in the given order. Each is NAME=MINUTES, or NAME=MINUTES:TASK,TASK for some tasks only:

    field     torch.compile and the current sglang against eager, for docs/field.md
    others    all other baselines against eager, on the tasks that they have kernels for, for the same page
    again     the same rows once more, even if they are judged, to show how well times repeat
    ops       the shipped ops against eager, torch.compile and sglang
    peers     the shipped ops against all other baselines, on the tasks that these have kernels for
    grids     the shipped ops on every row of their grids, without times
    verify    checks that every baseline agrees with the reference
    sanitize  the shipped ops under compute-sanitizer, a few rows of a task at a time
    look      quick times of every op next to the eager chain and a copy, which are no evidence

It needs the same as gpu_check.py. A step that overruns its minutes is ended with its processes. --work has the ledgers,
from which a later call continues: judged rows are not judged again, except by `again`. --out then has a few files:
evidence.tar.gz (all of --work, for `kernwright ledger import`), verified.json, looked.json and a log for each step.

Exit status 0: every step finished its work. 1: one did not. 2: the script could not run here.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_check import ARCHIVE, show_end_of_log
from gpu_machine import ROOT, CannotRun, environment, look_around, search_path
from gpu_steps import Outcome, run_step

EAGER, CURRENT = "eager", ("compile", "sglang@0.5.23")
OTHERS = ("liger@0.8.5", "sglang@0.5.12.post1")
AT_ONCE = 7  # processes without timing that run at once, each with a context on the device
ROWS_AT_ONCE = 8  # rows per sanitizer: racecheck takes minutes for 28 rows, while all other processes have finished
ROUNDS = 2  # maximum rounds of a row: a short session has no time for more
LATE_S = 20.0  # a sweep starts nothing that would end after its minutes, but may finish late what it has begun


@dataclass(frozen=True)
class Step:
    """NAME=MINUTES[:TASK,TASK]"""

    name: str
    minutes: float
    tasks: tuple[str, ...] = ()

    @classmethod
    def of(cls, word: str) -> Step:
        name, _, rest = word.partition("=")
        minutes, _, tasks = rest.partition(":")
        try:
            own = cls(name, float(minutes), tuple(filter(None, tasks.split(","))))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is no step: write NAME=MINUTES[:TASK,TASK]") from None
        if name not in COMMANDS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(COMMANDS)}")
        if not 0 < own.minutes < float("inf"):
            raise argparse.ArgumentTypeError(f"{word!r}: minutes must be above 0")
        return own


@dataclass(frozen=True)
class Window:
    """The folders in which steps put their results, and the rows that they cover."""

    out: Path
    work: Path
    device: str
    rows: str
    baselines: tuple[str, ...]  # baselines in addition to eager
    rounds: int = ROUNDS

    @property
    def ledger(self) -> Path:
        return self.work / "ledger"

    def another_ledger(self) -> Path:
        """Return an unused ledger for a repeated sweep. In an existing one its rows might count as done."""
        return self.work / f"again-{sum(1 for _ in self.work.glob('again-*'))}"

    def sweep(self, step: Step, ledger: Path, *words: str, rows: str = "") -> Commands:
        own = [
            *kernwright("sweep", *step.tasks, *words), "--device", self.device, "--rows", rows or self.rows,
            "--rounds", str(self.rounds), "--minutes", f"{step.minutes:g}", "--ledger", str(ledger), "--wait", "30",
        ]  # fmt: skip
        yield [own]


Command = list[str]
# Lists of commands that run in parallel. The next list starts when the previous one has ended.
Commands = Iterator[list[Command]]


def kernwright(*words: str) -> Command:
    return [sys.executable, "-m", "kernwright", *words]


def named(option: str, *names: str) -> list[str]:
    return [word for name in names for word in (option, name)]


def field(window: Window, step: Step) -> Commands:
    return window.sweep(step, window.ledger, "--aa", *named("--contender", *window.baselines))


def again(window: Window, step: Step) -> Commands:
    return window.sweep(step, window.another_ledger(), "--aa", *named("--contender", *window.baselines))


def others(window: Window, step: Step) -> Commands:
    """Eager against itself is judged by the step `field`."""
    from kernwright.tasks.catalog import list_tasks

    for left, names in by_others(window, step, step.tasks or list_tasks()):
        yield from window.sweep(left, window.ledger, *named("--contender", *names))


def by_others(window: Window, step: Step, names: Sequence[str]) -> Iterator[tuple[Step, tuple[str, ...]]]:
    """Return commands for tasks on which the same other baselines have kernels, in the rest of the minutes, tasks with
    few rows first. A baseline without an adapter for any op of a task would decline every row."""
    from kernwright.baselines.published import PublishedBaseline
    from kernwright.tasks.catalog import find_task

    start = time.monotonic()
    published = [PublishedBaseline.find(name) for name in OTHERS]
    rows: dict[str, int] = {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for task in map(find_task, names):
        rows[task.name] = len(task.matching(window.rows))
        having = tuple(own.name for own in published if any(own.adapter(op) for op in task.ops))
        groups.setdefault(having, []).append(task.name)
    for having, tasks in sorted(groups.items(), key=lambda group: sum(rows[name] for name in group[1])):
        if having:
            left = step.minutes - (time.monotonic() - start) / 60
            yield replace(step, tasks=tuple(sorted(tasks, key=lambda name: rows[name])), minutes=left), having


def ops(window: Window, step: Step) -> Commands:
    baselines = named("--baseline", EAGER, *window.baselines)
    return window.sweep(step, window.ledger, "--contender", "kernwright", *baselines)


def peers(window: Window, step: Step) -> Commands:
    for left, names in by_others(window, step, step.tasks or tasks_with_kernels()):
        yield from window.sweep(left, window.ledger, "--contender", "kernwright", *named("--baseline", *names))


def grids(window: Window, step: Step) -> Commands:
    from kernwright.tasks.catalog import find_task

    tasks = tuple(name for name in step.tasks or tasks_with_kernels() if find_task(name).grids)
    if tasks:  # without names, a sweep takes all tasks
        yield from window.sweep(replace(step, tasks=tasks), window.ledger, "--contender", "kernwright", rows="grid")


def verify(window: Window, step: Step) -> Commands:
    own = [
        *kernwright("baseline", "verify", *named("--task", *step.tasks)), "--device", window.device,
        "--rows", window.rows, "--processes", str(AT_ONCE), "--json", str(window.out / "verified.json"),
    ]  # fmt: skip
    yield [own]


def sanitize(window: Window, step: Step) -> Commands:
    """The longest commands start first, so that none of them runs alone at the end."""
    from kernwright.tasks.catalog import find_task

    parts: list[tuple[str, list[str]]] = []
    for task in map(find_task, step.tasks or tasks_with_kernels()):
        rows = [row.id for row in task.select("smoke")]
        parts += [(task.name, rows[at : at + ROWS_AT_ONCE]) for at in range(0, len(rows), ROWS_AT_ONCE)]
    all_of_them = [
        [
            *kernwright("sanitize", name, "--candidate", "kernwright"), "--device", window.device,
            "--rows", ",".join(rows), "--ledger", str(window.ledger), "--deadline", f"{60 * step.minutes:g}",
        ]
        for name, rows in sorted(parts, key=lambda part: -len(part[1]))
    ]  # fmt: skip
    for start in range(0, len(all_of_them), AT_ONCE):
        yield all_of_them[start : start + AT_ONCE]


def tasks_with_kernels() -> list[str]:
    from kernwright.baselines.shipped import Shipped
    from kernwright.ops.catalog import dispatcher
    from kernwright.tasks.catalog import find_task, list_tasks

    shipped = {name: Shipped.of(find_task(name)).ops for name in list_tasks()}
    return [name for name, ops in shipped.items() if any(dispatcher(op).implementations[1:] for op in ops)]


def look(window: Window, step: Step) -> Commands:
    yield [[sys.executable, str(ROOT / "benchmarks" / "bench_ops.py"), "--json", str(window.out / "looked.json")]]


COMMANDS: dict[str, Callable[[Window, Step], Commands]] = {
    own.__name__: own for own in (field, again, others, ops, peers, grids, verify, sanitize, look)
}


def taken(window: Window, step: Step, number: int, env: dict[str, str]) -> Outcome:
    """Run a step: lists of commands one after the other, within the rest of its minutes."""
    from kernwright.core.errors import KernwrightError

    log, start = window.out / f"{number}-{step.name}.log", time.monotonic()
    outcome = Outcome(step.name, "passed", detail=f"log in {log.name}")
    text = ""
    groups = COMMANDS[step.name](window, step)
    while True:
        try:
            commands = next(groups, None)
        except KernwrightError as error:  # unknown task
            outcome.status, text = "failed", f"{text}{error}\n"
            break
        if commands is None:
            break
        left = start + 60 * step.minutes - time.monotonic()
        if left <= 0:
            outcome.status = "overran"
            break
        with tempfile.TemporaryDirectory() as locks:
            # These commands run in parallel although each locks the device: they time nothing.
            envs = [env | {"KERNWRIGHT_LOCKS": locks_of(locks, at)} for at in range(len(commands))]
            one = run_step(step.name, commands, envs if len(commands) > 1 else [env], log, left + LATE_S)
        text += "\n".join([*("$ " + " ".join(command[1:]) for command in commands), log.read_text(errors="replace")])
        outcome.status = outcome.status if one.good else one.status
        if one.status in ("overran", "interrupted"):
            break
    log.write_text(text)
    outcome.seconds = time.monotonic() - start
    return outcome


def locks_of(folder: str, number: int) -> str:
    own = Path(folder) / str(number)
    own.mkdir()
    return str(own)


def pack(window: Window) -> list[str]:
    """Pack every run of the session's ledgers into one archive. Return what could not be packed."""
    from kernwright.core.errors import LedgerError
    from kernwright.ledger.ledger import Ledger
    from kernwright.ledger.transfer import export_runs, import_runs

    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for heads in sorted(window.work.glob("*/heads.jsonl")):
            try:
                import_runs(folder, heads.parent)
            except LedgerError as error:
                problems.append(f"{heads.parent.name}: {error.cause}")
        if runs := Ledger(folder).runs():
            export_runs(folder, runs, window.out / ARCHIVE)
    return problems


def packed(window: Window) -> list[str]:
    """Pack the ledgers. A problem with the archive must not fail a step."""
    from kernwright.core.errors import KernwrightError

    try:
        return pack(window)
    except (KernwrightError, OSError) as error:
        return [f"all of it: {error}"]


def collect(options: argparse.Namespace) -> int:
    places = search_path(options.bundle)
    sys.path[:0] = [str(place) for place in places]
    env = environment(places)
    found = look_around(env, 120.0, options.device == "cpu")
    kernels = found["kernels"] or {"all": 0, "built": 0}
    print(f"{found['device']}; {kernels['built']} of {kernels['all']} libraries of kernels are built", flush=True)
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in (ARCHIVE, *(own.name for own in options.out.glob("*.log"))):
        (options.out / stale).unlink(missing_ok=True)
    rows = options.rows or ("smoke" if options.device == "cpu" else "production")
    baselines = tuple(options.baseline or CURRENT)
    window = Window(
        out=options.out, work=options.work, device=options.device, rows=rows, baselines=baselines, rounds=options.rounds
    )
    outcomes: list[Outcome] = []
    problems: list[str] = []
    for number, step in enumerate(options.steps):
        outcomes.append(taken(window, step, number, env))
        try:
            problems = packed(window)  # after each step, so that finished steps survive if the machine is taken away
        except KeyboardInterrupt:
            problems = ["all of it: interrupted while it was packed"]
            break
        if outcomes[-1].status == "interrupted":
            break
    for number, outcome in enumerate(outcomes):
        show_end_of_log(window.out / f"{number}-{outcome.name}.log")
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.status}, {outcome.seconds:.0f} s, {outcome.detail}")
    for problem in problems:
        print(f"left out of the archive: {problem}")
    return 0 if all(outcome.good for outcome in outcomes) and not problems else 1


def main(words: list[str] | None = None) -> int:
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("steps", nargs="+", type=Step.of, metavar="STEP", help="NAME=MINUTES[:TASK,TASK]")
    parser.add_argument("--out", type=Path, default=Path(".kernwright/evidence"), help="where the archive goes")
    parser.add_argument("--work", type=Path, default=Path(".kernwright/window"), help="ledgers, to go on from")
    parser.add_argument("--bundle", type=Path, default=ROOT / "bundle", help="what `kernwright bundle` made")
    parser.add_argument("--rows", help="globs over row ids, or sets; production, on a CPU smoke")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"that a row is given at most; {ROUNDS}")
    parser.add_argument("--baseline", action="append", help="beside eager; repeatable; compile and sglang by default")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the procedure")
    options = parser.parse_args(words)
    options.out, options.work, options.bundle = (own.resolve() for own in (options.out, options.work, options.bundle))
    # Behaves like Ctrl-C, so that the archive is still written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return collect(options)
    except CannotRun as problem:
        print(f"gpu evidence: {problem}", file=sys.stderr)
    except KeyboardInterrupt:
        print("gpu evidence: interrupted before its first step", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
