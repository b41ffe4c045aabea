"""Search: which configuration to try next.

`kernwright tune` measures a short list of configurations together. A campaign judges one configuration an iteration,
and its space may be large: there, Optuna proposes. Neither proposes a configuration twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from kernwright.campaign.tuning.space import Configuration, Space
from kernwright.core.errors import EnvironmentProblem

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

Choice = TypeVar("Choice")
FIRST_AT_RANDOM = 5  # trials before the sampler models their values
NEIGHBOURHOOD = 0.35  # width of the estimate, in units of a parameter's whole range
LEAST_KNOWN = 3  # measured trials before an estimate is given
MOST_LISTED = 20_000  # configurations of a space that are listed when sampling finds no new one
MOST_SAMPLES = 60  # proposals of the sampler before the space is listed


@dataclass(frozen=True)
class ListSearch(Generic[Choice]):
    """All of a short list, the default first."""

    default: Choice
    others: Sequence[Choice]

    def __iter__(self) -> Iterator[Choice]:
        return iter(dict.fromkeys([self.default, *self.others]))


@dataclass(frozen=True)
class Tried:
    """A configuration that was judged. `value` is its speedup over the baseline; None if it was wrong or failed."""

    configuration: Configuration
    value: float | None


class SampledSearch:
    """Proposals of Optuna's TPE sampler over a space, after the trials so far.

    The study lives in memory and is rebuilt from past trials, so a search continues after any interruption. Its seed
    and its past determine its proposals.
    """

    def __init__(self, space: Space, tried: Iterable[Tried], seed: int) -> None:
        self._space = space
        self._tried = [each for each in tried if space.holds(each.configuration)]
        self._seen = {space.key(each.configuration) for each in self._tried}
        self._distributions = _distributions(space)
        self._study = self._rebuilt(seed + len(self._tried))
        self._seed = seed

    def _rebuilt(self, seed: int) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST_AT_RANDOM)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for each in self._tried:
            self._add(study, each.configuration, self._value(each))
        return study

    def _add(self, study: Study, configuration: Configuration, value: float) -> None:
        import optuna

        params = self._space.positions(configuration)
        study.add_trial(optuna.trial.create_trial(params=params, distributions=self._distributions, values=[value]))

    def _value(self, tried: Tried) -> float:
        """Return the logarithm of a speedup. A wrong kernel counts as one of half the lowest speedup."""
        known = [each.value for each in self._tried if each.value is not None]
        return math.log(tried.value if tried.value is not None else min(known, default=1.0) / 2)

    def proposals(self) -> Iterator[Configuration]:
        """Yield configurations that were neither judged nor yielded: the defaults, samples, then all the others."""
        if self._is_new(self._space.defaults):
            yield self._space.defaults
        for _ in range(MOST_SAMPLES):
            trial = self._study.ask(self._distributions)
            found = self._space.at(trial.params)
            if self._is_new(found):
                yield found
        yield from self._listed()

    def note(self, configuration: Configuration, value: float | None = None) -> None:
        """Tell the sampler about a proposal that is not judged: its known speedup, or that it cannot be used."""
        self._add(self._study, configuration, self._value(Tried(configuration, value)))

    def _is_new(self, configuration: Configuration) -> bool:
        key = self._space.key(configuration)
        if key in self._seen:
            return False
        self._seen.add(key)
        return self._space.allows(configuration)

    def _listed(self) -> Iterator[Configuration]:
        """Yield the configurations that were not tried, the best estimate first."""
        left = [each for each in self._space.all_configurations(MOST_LISTED) if self._space.key(each) not in self._seen]
        left.sort(key=lambda each: -(self.estimate(each) or 0.0))
        yield from (each for each in left if self._is_new(each))

    def estimate(self, configuration: Configuration) -> float | None:
        """Return the expected speedup over the baseline: the mean over similar configurations, weighted by distance.

        None if there are too few results.
        """
        known = [each for each in self._tried if each.value is not None]
        if len(known) < LEAST_KNOWN:
            return None
        weighted = [
            (math.exp(-(self._space.distance(configuration, each.configuration) ** 2) / (2 * NEIGHBOURHOOD**2)), each)
            for each in known
        ]
        total = sum(weight for weight, _ in weighted)
        if total < 1e-6:
            return None
        return math.exp(sum(weight * self._value(each) for weight, each in weighted) / total)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return a distribution over positions for ordered parameters, and over values for the others."""
    import optuna

    found: dict[str, BaseDistribution] = {}
    for name, parameter in space.parameters.items():
        if parameter.is_ordered:
            found[name] = optuna.distributions.IntDistribution(0, len(parameter.values) - 1)
        else:
            found[name] = optuna.distributions.CategoricalDistribution(parameter.values)
    return found


def require_optuna() -> None:
    """Raise EnvironmentProblem if Optuna is missing."""
    import importlib.util

    if importlib.util.find_spec("optuna") is None:
        raise EnvironmentProblem(
            "the agent tuner needs optuna, which is not installed",
            'pip install "kernwright[campaign]"; a bundle carries it with --with-campaign',
        )


def changed_most(space: Space, before: Configuration, after: Configuration) -> list[str]:
    """Return the parameters that differ most between two configurations, measured against their ranges."""
    moved: dict[str, float] = {
        name: parameter.distance(before[name], after[name]) for name, parameter in space.parameters.items()
    }
    most = max(moved.values(), default=0.0)
    return sorted(name for name, distance in moved.items() if most > 0 and distance == most)
