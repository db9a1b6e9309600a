"""The audit of a pipeline: games against its mechanisms, each alone and all together. Touches no data."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

from stream_dp.accounting.amounts import UNITS, number
from stream_dp.accounting.filters.linear import by_ticks
from stream_dp.core.composition import Create
from stream_dp.core.guarantee import GaussianDP
from stream_dp.core.mechanism import Noise
from stream_dp.core.progress import Progress, unseen
from stream_dp.core.relation import Claim, Relation
from stream_dp.errors import FailClosed
from stream_dp.noise import NoiseStream, fresh_seed
from stream_dp.operate.run.live_series import series_claim
from stream_dp.pipeline.budget import opened
from stream_dp.pipeline.builder import Built, build
from stream_dp.pipeline.derivations import dp_at
from stream_dp.pipeline.promise import unit_words
from stream_dp.pipeline.yaml import load
from stream_dp.verify.games.game import LedgerFilter
from stream_dp.verify.games.lower_bound import STATED_AT, Finding, audit_mechanism, audit_together
from stream_dp.verify.relations.creation import own_or
from stream_dp.verify.relations.pair_conditions import filtered, fixed_mechanisms

TOGETHER = "all series together"


@dataclass(frozen=True, slots=True)
class Attacked:
    """A finding of the games: the name of a series, its mechanism, and how its claim fared."""

    name: str
    mechanism: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Attack:
    """Findings of the games against a pipeline; `filter` is the filter over all its series.

    `unit` and `relation` say in what the two neighbouring streams differ.
    """

    pipeline: str
    unit: str
    relation: str
    filter: str
    series: tuple[Attacked, ...]
    together: Finding

    @property
    def refuted(self) -> list[str]:
        return [claim.name for claim in self.claims if claim.finding.violated]

    @property
    def claims(self) -> tuple[Attacked, ...]:
        """All attacked claims: of each series, and of all series together."""
        return (*self.series, Attacked(TOGETHER, "", self.together))

    @property
    def chosen_delta(self) -> Fraction:
        """The delta at which claims that hold at every delta are attacked."""
        return STATED_AT

    def require_unrefuted(self) -> None:
        if self.refuted:
            raise FailClosed(
                f"the audit refutes the claimed epsilon of {', '.join(self.refuted)}: do not run this pipeline with "
                "this version of the code, and report it"
            )

    def json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "violated": bool(self.refuted),
            "series": [
                {
                    "name": series.name,
                    "mechanism": series.mechanism,
                    **_finding_json(series.finding),
                }
                for series in self.series
            ],
            "together": {"filter": self.filter, **_finding_json(self.together)},
        }


def attack(
    pipeline: Path, *, runs: int, ticks: int, confidence: float, progress: Progress = unseen
) -> Attack:
    """Play `runs` games of `ticks` ticks each; all bounds hold together with probability `confidence`.

    `progress` receives the number of games begun.
    """
    built = build(load(pipeline))
    spec, chosen = built.spec, built.chosen
    ticks = min(ticks, spec.clock.horizon or ticks)
    failure = (1 - confidence) / (len(chosen) + 1)
    mechanisms = {part.spec.name: part.mechanism for part in chosen}
    claims = [series_claim(part) for part in chosen]
    begun, games = count(1), runs * (len(chosen) + 1)

    def noise() -> Noise:
        progress("Playing", next(begun), games, "game")
        return fresh_noise()

    series = tuple(
        Attacked(
            name,
            type(mechanism).__name__,
            audit_mechanism(mechanism, noise, runs=runs, ticks=ticks, failure=failure, claim=claim),
        )
        for (name, mechanism), claim in zip(mechanisms.items(), claims, strict=True)
    )
    together = audit_together(
        mechanisms, game_verifier(built, claims), built.block.guarantee.measure, noise,
        runs=runs, ticks=ticks, failure=failure, claims=claims,
    )  # fmt: skip
    return Attack(
        spec.name, unit_words(spec), str(spec.relation), built.ledger.filter.name, series, together
    )


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


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "claimed_epsilon": number(finding.claimed), "claimed_delta": number(finding.delta),
        "epsilon_lower_bound": finding.lower, "strongest": finding.strongest, "event": finding.event,
        "rates": list(finding.rates), "violated": finding.violated,
    }  # fmt: skip
