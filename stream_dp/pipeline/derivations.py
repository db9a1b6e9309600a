"""The derivation of each mechanism's guarantee from the rules of the accounting.

Rules: the derived guarantee must equal the mechanism's claim; a mechanism without a derivation here cannot be
built. This file charges nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from stream_dp.accounting.amounts import exact
from stream_dp.accounting.conversions import renyi_budget, zcdp_budget
from stream_dp.accounting.derive import derive as tightest
from stream_dp.accounting.filters.filter import Filter
from stream_dp.accounting.filters.linear import PURE, BasicFilter, PureFilter
from stream_dp.accounting.filters.optimal import OptimalFilter
from stream_dp.accounting.gaussian_curve import gaussian_budget
from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.rules.fixed import reached
from stream_dp.accounting.rules.groups import STEPS, currency_of, in_currencies, seen_box
from stream_dp.accounting.rules.rule import GAUSSIAN, RENYI, at_delta, price, pure_measures
from stream_dp.accounting.situations import Alive, Filtered, Fixed, Moved, OfUsers, Ticks
from stream_dp.accounting.subledgers import analyst_entry
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Condition, Derivation, require
from stream_dp.core.guarantee import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    Guarantee,
    Protected,
    PureDP,
    RenyiDP,
    differential_privacy,
)
from stream_dp.core.neighbors import Neighbors, Users


@dataclass(frozen=True, slots=True)
class Protection:
    """The neighbouring streams: they differ in one event, or in all counting events of a user.

    No mechanism knows an event that moves, and only counts of users themselves know a user. A mechanism is made for one
    step with its part of a series' epsilon, and the accounting derives the rest.
    """

    relation: Neighbors
    users: Users | None = None

    @property
    def protected(self) -> Protected:
        return Protected(self.relation, self.users)

    @property
    def steps(self) -> int:
        """Number of steps of the mechanisms' relation that make one step of the pipeline's."""
        if self.users is not None:
            return self.users.cap
        return 1 if self.relation.step is self.relation else STEPS

    @property
    def share(self) -> Fraction:
        """The share of a series' epsilon that its mechanism may spend under `relation.step`."""
        return Fraction(1, self.steps)

    def of(self, subject: str, step: Derivation) -> Derivation:
        """Derive the guarantee of this protection from that of one step; NotDerivable: it has no group rule."""
        if step.guarantee.users == self.users is not None:
            return step
        if self.users is not None:
            return tightest((step,), OfUsers(subject, self.users))
        if step.guarantee.neighbors is self.relation:
            return step
        return tightest((step,), Moved(subject))


TIME = "at each tick its own filter covers what is alive then (docs/time.md)"
STATED = "budget at a delta"
NONE = Fraction(0)


def fixed_blocks(
    pipeline: str,
    premises: tuple[Derivation, ...],
    delta: Fraction = NONE,
    stated: Fraction = NONE,
    order: Fraction | None = None,
) -> tuple[Derivation, ...]:
    """Derive the guarantee of the series of the first start, run at once on the same events, at the granted delta.

    Without a granted delta, a guarantee that has no epsilon at delta 0 is the tightest one at `stated`, the file's
    delta; Renyi DP is at the filter's `order`. Return a block of all premises at once and, if some are pure and
    some not, a block that first composes the others and then adds the pure ones; the tightest first. Raises
    `NotDerivable` if there is no series, or no rule covers them.
    """
    subject = f"{pipeline}: series of the first start"
    blocks = [tightest(premises, Fixed(subject, delta, stated=stated, order=order))]
    pure = tuple(p for p in premises if _pure(p))
    others = tuple(p for p in premises if not _pure(p))
    if delta and pure and others:
        inner = tightest(others, Fixed(f"{pipeline}: those that are not pure", delta))
        blocks.append(tightest((*pure, inner), Fixed(subject, delta)))
    return tuple(sorted(blocks, key=lambda block: price(block.guarantee.measure, delta) or NONE))


def _pure(part: Derivation) -> bool:
    return pure_measures((part.guarantee.measure,))


def at_own_delta(derivation: Derivation, delta: Fraction) -> Derivation:
    """Return the derivation as (epsilon, delta)-DP, at a delta that its series states; at 0, unchanged."""
    return at_delta(derivation, delta) if delta else derivation


def dp_at(derivation: Derivation, delta: Fraction) -> ApproxDP:
    """Return the derived guarantee as (epsilon, delta)-DP, at `delta` if it has no delta of its own."""
    return differential_privacy(at_delta(derivation, delta).guarantee.measure)


EVER = Alive(0, None)


class Part(NamedTuple):
    """What a ledger was charged for, the ticks at which it is alive, and the records that it sees."""

    derivation: Derivation
    alive: Alive = EVER
    box: Box = EVERYTHING

    @property
    def seen(self) -> Box:
        return seen_box(self.derivation, self.box)


def heaviest_load(filter_: Filter, parts: Sequence[Part]) -> int:
    """Return the part of the filter's capacity that what one event meets takes at most, in its units."""
    premises, alive, _ = zip(*parts, strict=True)
    loads = reached(premises, alive, [part.seen for part in parts], filter_)
    return max(filter_.reached(load).amount for load in loads)


def of_boxes(
    pipeline: str, filter_: Filter, block: Derivation, parts: Sequence[Part]
) -> Derivation:
    """Derive the guarantee of the series of the first start, of which `block` takes no account of what they see.

    It is the promise of the least filter of its family that admits them, in their boxes, if that is less.
    """
    premises, boxes = tuple(p.derivation for p in parts), tuple(p.seen for p in parts)
    if not any(box.sides for box in boxes):
        return block
    match filter_:
        case PureFilter() | BasicFilter():
            least: Filter = PureFilter(heaviest_load(filter_, parts))
        case OptimalFilter(capacity):
            amount = heaviest_load(filter_, parts)
            least = replace(filter_, capacity=replace(capacity, amount=amount))
        case _:
            return block
    subject = f"{pipeline}: series of the first start"
    apart = tightest(premises, Filtered(subject, least, boxes=boxes))
    saves = differential_privacy(apart.guarantee.measure).epsilon < dp_at(block, NONE).epsilon
    return apart if saves else block


def whole(pipeline: str, filter_: Filter, parts: Sequence[Part], target: ApproxDP) -> Derivation:
    """Derive the guarantee for everything that is ever asked: the filter's promise, for these parts.

    What one event meets adds up, and what no halt frees (`loads.local_part`). The promise of a zCDP, RDP or
    GDP filter is stated as the `target` for which its budget was made.

    Raises:
        NotDerivable: the parts were not admitted by the filter, or it is not proven for them.
    """
    premises, alive, _ = zip(*parts, strict=True)
    boxes = tuple(part.seen for part in parts)
    shared = any(currency_of(part) or in_currencies(part) for part in premises)
    apart = any(box.sides for box in boxes) or shared
    if filter_.name == PURE and len(parts) > 1 and not apart:
        ticked = tightest(premises, Ticks(f"{pipeline}: what is alive at one tick", alive))
        premises, alive, boxes = (ticked,), (), ()
    asked = Filtered(f"{pipeline}: all that is asked, now and later", filter_, alive, boxes)
    return _as_stated(tightest(premises, asked), target)


def _as_stated(premise: Derivation, target: ApproxDP) -> Derivation:
    """Return the (epsilon, delta) that a zCDP, RDP or GDP budget implies; other measures state their own."""
    like, implied = premise.guarantee, False
    match like.measure:
        case ZCDP(rho):
            implied = rho <= zcdp_budget(target)
        case RenyiDP(alpha, epsilon):
            implied = epsilon <= renyi_budget(target, alpha).epsilon
        case GaussianDP(mu):
            implied = mu <= gaussian_budget(target)
        case _:
            return premise
    largest = Condition("budget", implied, "it is the largest that implies this, rounded down")
    source = GAUSSIAN if isinstance(like.measure, GaussianDP) else RENYI
    require(premise.subject, STATED, source, (largest,))
    guarantee = Guarantee(target, like.neighbors, like.group, users=like.users)
    return Derivation(premise.subject, guarantee, STATED, source, (largest,), (premise,))


def analyst_ledger(name: str, ledger: Ledger, protection: Protection) -> Derivation:
    subject, part = analyst_entry(name), PureDP(exact(ledger.epsilon) * protection.share)
    why = f"charged to the main ledger before its first series; {TIME}"
    step = Derivation(
        subject, Guarantee(part, protection.relation.step), "filter inside a filter", "[HSV] Thm 12.4",
        (Condition("paid in full", True, why),),
    )  # fmt: skip
    return protection.of(subject, step)
