"""The audit of a pipeline: games against its mechanisms, each alone and all together. Touches no data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from stream_dp.accounting.amounts import UNITS, number
from stream_dp.accounting.filters.linear import by_ticks
from stream_dp.core.composition import Create
from stream_dp.core.guarantee import GaussianDP, PureDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.relation import Claim, Relation
from stream_dp.core.wording import Progress, unseen
from stream_dp.errors import FailClosed, UsageError
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.budget import opened
from stream_dp.pipeline.builder import Built, Chosen, build
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.yaml import load
from stream_dp.verify.game import LedgerFilter
from stream_dp.verify.lower_bound import (
    STATED_AT,
    Finding,
    audit_mechanism,
    audit_together,
    least_seen,
)
from stream_dp.verify.relations import filtered, fixed_mechanisms, own_or

TOGETHER = "all series together"
VISIBLE = 2
"""Epsilon from which a few thousand games show most of what a mechanism loses."""
MOST_TICKS = 48
"""For so many ticks a series is played at most until it tells its first number, where that comes later than asked."""
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Attacked:
    """A finding of the games: the name of a series, its mechanism, and how its claim fared.

    The mechanism was played at `times` its epsilon: the finding's claim is as many times that of the file. It was
    played for `ticks` ticks, and tells nothing before it has seen `first`.
    """

    name: str
    mechanism: str
    finding: Finding
    times: int = 1
    ticks: int = 0
    first: int = 0

    @property
    def claimed(self) -> Fraction:
        return self.finding.claimed / self.times


@dataclass(frozen=True, slots=True)
class Attack:
    """Findings of the games against a pipeline; `filter` is the filter over all its series.

    `unit` and `relation` say in what the two neighbouring streams differ. `seen` is the least epsilon of which so many
    games could show anything; `runs` games were played for each claim, of `ticks` ticks each, or of as many as a series
    had to see before it told anything.
    """

    pipeline: str
    unit: str
    relation: str
    filter: str
    series: tuple[Attacked, ...]
    together: Finding
    seen: float
    runs: int
    ticks: int
    confidence: float

    @property
    def refuted(self) -> list[str]:
        return [claim.name for claim in self.claims if claim.finding.violated]

    @property
    def claims(self) -> tuple[Attacked, ...]:
        """All attacked claims: of each series, and of all series together."""
        return (*self.series, Attacked(TOGETHER, "", self.together, ticks=self.ticks))

    @property
    def chosen_delta(self) -> Fraction:
        """The delta at which claims that hold at every delta are attacked."""
        return STATED_AT

    def require_unrefuted(self) -> None:
        if self.refuted:
            raise FailClosed(
                f"the audit refutes the claimed epsilon of {', '.join(self.refuted)}. Do not run "
                "this pipeline with this version of the code, and report the result"
            )

    def json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "violated": bool(self.refuted),
            "least_seen": self.seen,
            "series": [
                {"name": series.name, "mechanism": series.mechanism, **_finding_json(series)}
                for series in self.series
            ],
            "together": {"filter": self.filter, **_finding_json(self.claims[-1])},
        }


def attack(
    pipeline: Path,
    *,
    runs: int,
    ticks: int,
    confidence: float,
    times: int | None = None,
    progress: Progress = unseen,
) -> Attack:
    """Play `runs` games of `ticks` ticks each; all bounds hold together with probability `confidence`.

    A series that tells its first number later, at the end of a window, is played until then, up to `MOST_TICKS`.
    The mechanism of a series is played at `times` its epsilon; by default (None) at as many times as make `VISIBLE` of
    a pure claim. All together are played as the file has them. `progress` receives the number of games begun.
    """
    built = build(load(pipeline))
    spec, chosen = built.spec, built.chosen
    ticks = min(ticks, spec.clock.horizon or ticks)
    failure = (1 - confidence) / (len(chosen) + 1)
    mechanisms = {part.spec.name: part.mechanism for part in chosen}
    claims = [series_claim(part) for part in chosen]
    played = [
        _played_at(mechanism, claim, times)
        for mechanism, claim in zip(mechanisms.values(), claims, strict=True)
    ]
    for name, (_, _, factor) in zip(mechanisms, played, strict=True):
        if times not in (None, factor):
            raise UsageError(
                f"--times: {name} is not a pure mechanism, so it can be played only at the epsilon "
                "of the file: leave --times out"
            )
    firsts = [_first_told(part, spec.clock.step) for part in chosen]
    lengths = [max(ticks, first) if first <= MOST_TICKS else ticks for first in firsts]
    begun, games = count(1), runs * (len(chosen) + 1)

    def noise() -> Noise:
        progress("Playing", next(begun), games, "game")
        return fresh_noise()

    series = tuple(
        Attacked(
            name,
            type(mechanism).__name__,
            audit_mechanism(mechanism, noise, runs=runs, ticks=own, failure=failure, claim=claim),
            factor,
            own,
            first,
        )
        for name, (mechanism, claim, factor), own, first in zip(
            mechanisms, played, lengths, firsts, strict=True
        )
    )
    together = audit_together(
        mechanisms, game_verifier(built, claims), built.block.guarantee.measure, noise,
        runs=runs, ticks=ticks, failure=failure, claims=claims,
    )  # fmt: skip
    return Attack(
        spec.name, unit_words(spec), str(spec.relation), built.ledger.filter.name, series, together,
        least_seen(runs // 4, failure), runs, ticks, confidence,
    )  # fmt: skip


def _first_told(part: Chosen, step: int) -> int:
    """Return how many ticks a series has seen when it tells its first number."""
    places = range(max(1, len(part.spec.views)))
    return 1 + min(part.spec.first_told(place, step) for place in places)


def _played_at(mechanism: Any, claim: Claim | None, times: int | None) -> tuple[Any, Any, int]:
    """Return the mechanism and the claim at so many times their epsilon, and that number: 1 where they are not pure."""
    measure = claim.measure if claim else mechanism.guarantee.measure
    if not isinstance(measure, PureDP) or not measure.epsilon:
        return mechanism, claim, 1
    times = max(1, math.ceil(VISIBLE / measure.epsilon)) if times is None else times
    played, own = louder(mechanism, times), mechanism.guarantee.measure
    if not isinstance(own, PureDP) or played.guarantee.measure != PureDP(own.epsilon * times):
        return mechanism, claim, 1
    return played, claim and replace(claim, measure=PureDP(measure.epsilon * times)), times


def louder(mechanism: M, times: int) -> M:
    """Return the mechanism with `times` its epsilons, those of the mechanisms inside it among them.

    >>> from stream_dp.core.neighbors import Neighbors
    >>> from stream_dp.mechanisms.linear.counter import HybridCounter
    >>> louder(HybridCounter(1, Fraction(1, 5), Neighbors.ADD_REMOVE), 10).epsilon
    Fraction(2, 1)
    """
    changes: dict[str, Any] = {}
    for own in fields(mechanism):  # type: ignore[arg-type]  # every mechanism is a dataclass
        value = getattr(mechanism, own.name)
        if own.name.endswith("epsilon"):
            changes[own.name] = value * times
        elif _claims(value):
            changes[own.name] = louder(value, times)
        elif isinstance(value, tuple) and value and all(map(_claims, value)):
            changes[own.name] = tuple(louder(each, times) for each in value)
    return replace(mechanism, **changes)  # type: ignore[type-var]


def _claims(value: Any) -> bool:
    return is_dataclass(value) and hasattr(value, "guarantee")


def game_verifier(built: Built, claims: Sequence[Claim | None]) -> Relation:
    """Return the relation that limits what an adversary may send to all series; `claims` as in `audit_together`.

    If the pipeline's filter admits all series one by one, that filter is the relation. If it admits them only as one
    block at a delta (a Gaussian series under basic or an approximate filter), or because no record meets all of them
    (the game's pairs do), the relation is the block's condition: these mechanisms, fixed beforehand ([HSV] Def 4.9).
    """
    if _admits_all(built):
        return filtered(game_filter(built), lambda claim: claim.measure, own_or(claims))
    created = (Create(c.mechanism, claim) for c, claim in zip(built.chosen, claims, strict=True))
    return fixed_mechanisms(created, own_or(claims))


def _admits_all(built: Built) -> bool:
    """Return whether the game's filter admits all series together, whatever they see."""
    game: LedgerFilter | None = game_filter(built)
    for chosen in built.chosen:
        game = None if game is None else game.charge(chosen.derivation.guarantee.measure)
    return game is not None


def game_filter(built: Built) -> LedgerFilter:
    """Return the pipeline's filter before the first series, with the analysts' ledgers paid ([HSV] Def 12.2).

    It admits each series by itself. Under the pure and the basic filter the product charges all series as one
    block, rounded up once, at the optimum of their composition. The game creates, charges and rounds up each series
    separately, so its filter grants in addition the amount that the block saves, and 10^-12 for each series but
    one.
    """
    privacy = built.spec.privacy
    if by_ticks(built.ledger.filter):
        block, parts = built.block, built.block.premises
        delta = privacy.stated_delta
        apart = sum((dp_at(part, delta).epsilon for part in parts), Fraction(0))
        room = apart - dp_at(block, delta).epsilon + Fraction(len(built.chosen) - 1, UNITS)
        privacy = privacy.model_copy(update={"epsilon": privacy.epsilon + room})
    guarantees = [chosen.derivation.guarantee for chosen in built.chosen]
    finite = all(g.finite for g in guarantees if isinstance(g.measure, GaussianDP))
    return LedgerFilter(opened(privacy, partitions=built.spec.partitions).main, finite)


def fresh_noise() -> Noise:
    """Return the product's noise with a fresh seed, as for one committed step."""
    return NoiseStream(fresh_seed(), 0)


def _finding_json(attacked: Attacked) -> dict[str, Any]:
    finding = attacked.finding
    return {
        "file_epsilon": number(attacked.claimed), "times": attacked.times, "ticks": attacked.ticks,
        "claimed_epsilon": number(finding.claimed), "claimed_delta": number(finding.delta),
        "epsilon_lower_bound": finding.lower, "strongest": finding.strongest, "event": finding.event,
        "rates": list(finding.rates), "violated": finding.violated,
    }  # fmt: skip
