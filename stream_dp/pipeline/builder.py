"""From a specification to the engine's configuration: mechanisms, bands, the charge of the first series.

Rules: everything here is a function of the specification. Guarantees come from `derivations`, refusals from the
ledger, before anything runs. This file opens nothing.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from stream_dp.accounting.ledger import Ledger
from stream_dp.accounting.subledgers import MAIN, Subledgers
from stream_dp.core.box import EVERYTHING, Box
from stream_dp.core.derivation import Derivation
from stream_dp.core.serial import mechanism_fingerprint
from stream_dp.engine.admission import charge_of
from stream_dp.engine.run_config import RunConfig
from stream_dp.engine.series import Lag, Meaning, Series, SeriesView, Tell
from stream_dp.errors import NotDerivable, UsageError
from stream_dp.mechanisms.serving import Answer, Bands, ServingMechanism, derived
from stream_dp.pipeline.budget import Seen, charged, charged_parts, opened, target
from stream_dp.pipeline.derivations import (
    Part,
    analyst_ledger,
    at_own_delta,
    fixed_blocks,
    of_boxes,
    whole,
)
from stream_dp.pipeline.fingerprints import (
    Fingerprints,
    fingerprint,
    fingerprints,
    going_on,
    text_of,
)
from stream_dp.pipeline.layout import (
    RowLayout,
    entries_of_parts,
    seen_by,
    shape_of,
    uncollected,
    user_entries,
    values_of,
)
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.user_guard import guessed_records
from stream_dp.records.endpoints import ReplayClock
from stream_dp.statistics import Series as SeriesSpec
from stream_dp.statistics.parts.choice import Choice, Setting
from stream_dp.statistics.parts.series_spec import Input, MadeOf


@dataclass(frozen=True, slots=True)
class Chosen:
    """The mechanism of one series, the reason for the choice, and the box of the records that it can see."""

    spec: SeriesSpec
    choice: Choice
    derivation: Derivation
    box: Box = EVERYTHING

    @property
    def mechanism(self) -> ServingMechanism[Any]:
        return self.choice.mechanism

    @property
    def fingerprint(self) -> str:
        """A short digest of the mechanism with its parameters: states of other mechanisms do not fit."""
        return mechanism_fingerprint(self.mechanism)[:12]

    def series(
        self, spec: PipelineSpec, rows: slice, keys: tuple[str, ...], start: int = 0
    ) -> Series:
        """Return the engine's series: on these rows from tick `start` on, with `keys` as names of its entries."""
        confidence, mechanism = float(spec.confidence), self.mechanism
        sure = self.spec.entry_confidence(confidence, mechanism)
        counts = self.spec.counts_band(mechanism, confidence)
        named = self.spec.entries(keys)
        size = self.spec.told_bytes(named)

        def bands(answer: ServingMechanism[Any] | Answer) -> Callable[[int, Any], int]:
            band = Bands.of(answer, sure)
            return lambda tick, state: band(tick - start, state)

        def teller(place: int | None) -> Tell | None:
            tell = self.spec.teller(mechanism, place, confidence)
            if tell is None:
                return None
            return lambda names, answer, tick, state: tell(names, answer, tick - start, state)

        views = tuple(
            SeriesView(
                name,
                named,
                bands(Answer(mechanism, place)),
                teller(place),
                size,
                self.spec.numbers,
                start + self.spec.first_told(place, spec.clock.step),
            )
            for place, name in enumerate(self.spec.views)
        )
        return Series(
            self.spec.name, mechanism, rows, named, self.spec.form, bands(mechanism), confidence,
            asking=self.spec.asking(keys, mechanism, counts),
            counts_band=counts,
            views=views,
            ask_band=lambda tick, query, state: self.spec.ask_band(
                mechanism, confidence, tick - start, query, state
            ),
            askers=self.spec.askers,
            unit=self.spec.grain,
            signed=self.spec.signed,
            amounts=self.spec.amount is not None,
            tell=None if views else teller(None),
            told_bytes=None if views else size,
            array=spec.in_order,
            start=start,
            lag=Lag.of(mechanism, self.spec.form, sure),
        )  # fmt: skip


@dataclass(frozen=True)
class Built:
    """A specification with its mechanisms, its derivation and its (charged) ledgers.

    `block` derives the series of the file together, whatever records they see.
    `charged` are the parts that the ledger adds up for the series of the file: their derivation as one, its premises,
    or each series' own. `made` are the series without mechanisms, in the order of the file.

    Where the file was changed since the journal began, `spec` is the pipeline as it goes on, with the series of the
    `first` file, and `file` the file as it is now.
    """

    spec: PipelineSpec
    layout: RowLayout
    chosen: tuple[Chosen, ...]
    block: Derivation
    charged: tuple[Seen, ...]
    ledgers: Mapping[str, Ledger]
    made: tuple[MadeOf, ...] = ()
    first: PipelineSpec | None = None
    file: PipelineSpec | None = None

    @cached_property
    def derivation(self) -> Derivation:
        """The guarantee of the series of the file together."""
        parts = [Part(part, box=box) for part, box in self.charged]
        return of_boxes(self.spec.name, self.ledger.filter, self.block, parts)

    @property
    def ledger(self) -> Ledger:
        """The main ledger after the charges of the first start."""
        return self.ledgers[MAIN]

    @property
    def frozen(self) -> tuple[Part, ...]:
        """The permanent charges of the main ledger at the first start: the analysts' ledgers and the series."""
        protection, partitions = self.spec.protection, self.spec.partitions
        paid = [
            Part(analyst_ledger(name, ledger, protection), box=partitions[name])
            for name, ledger in self.ledgers.items()
            if name != MAIN
        ]
        return (*paid, *(Part(part, box=box) for part, box in self.charged))

    @property
    def promise(self) -> Derivation:
        """The derivation of the guarantee for all series, including live ones, at the first start."""
        return whole(self.spec.name, self.ledger.filter, self.frozen, target(self.spec.privacy))

    def subledgers(self) -> Subledgers:
        """Return the ledgers after the charges of the first start, for one engine."""
        return Subledgers(dict(self.ledgers), partitions=self.spec.partitions)

    @property
    def fingerprint(self) -> str:
        return _sha256(f"{self._prints.whole}\n{self._mechanisms}")

    @property
    def parts(self) -> dict[str, str]:
        return {**self._prints.parts, "mechanisms": _sha256(self._mechanisms)[:12]}

    @property
    def first_print(self) -> str:
        """The fingerprint of the file with which the journal began, without its mechanisms."""
        return self._prints.whole

    @cached_property
    def file_print(self) -> str:
        """The fingerprint of the file as it is now, without its mechanisms."""
        return self.first_print if self.file is None else fingerprint(self.file)

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The names of the entries of each series of the file ("" of a single one), in their order."""
        counted = {
            chosen.spec.name: chosen.spec.entries(self.layout.keys(chosen.spec.name))
            for chosen in self.chosen
        }
        return counted | {made.series.name: made.series.keys for made in self.made}

    @cached_property
    def _prints(self) -> Fingerprints:
        return fingerprints(self.first or self.spec)

    @cached_property
    def _mechanisms(self) -> str:
        return "\n".join(mechanism_fingerprint(chosen.mechanism) for chosen in self.chosen)

    @uncollected()
    def run_config(self, now: int, *, private: bool = True, accepted: str = "") -> RunConfig:
        """Return the engine's configuration; `now` (ms) becomes the origin of a wall clock that declares none.
        `accepted` names a new guarantee for a source that was used before; the journal records it.
        """
        spec, clock = self.spec, self.spec.clock
        block, hold = (clock.block, None) if isinstance(clock, ReplayClock) else (1, clock.delay)
        start = clock.start
        return RunConfig(
            pipeline=spec.name,
            fingerprint=self.fingerprint,
            origin=now - now % clock.step if start is None else start,
            step=clock.step,
            horizon=clock.horizon,
            block=block,
            hold=hold,
            private=private,
            series=tuple(self._series(chosen) for chosen in self.chosen),
            charges=tuple(charge_of(entry) for entry in self.ledger.entries),
            parts=self.parts,
            accepted=accepted,
            made=tuple(replace(made.series, array=spec.in_order) for made in self.made),
            file=self.file_print,
            first_file=self.first_print,
            text=lambda: text_of(self.first or spec),
        )

    def _series(self, chosen: Chosen) -> Series:
        name = chosen.spec.name
        return chosen.series(self.spec, self.layout.slice(name), self.layout.keys(name))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@uncollected()
def build(spec: PipelineSpec, first: PipelineSpec | None = None, written: str = "") -> Built:
    """Choose mechanisms, derive the guarantee and charge the ledgers. `first` is the file with which its journal began,
    where that was another one, and `written` the digest of the mechanisms in its header: where they are those of a
    former meaning, they stay.

    Raises `BudgetRefused` (the series and the analysts' ledgers need more than the budget), `NotDerivable`, or
    `UsageError` (a series asks for a mechanism that is not made for these rows and neighbours).
    """
    built = _built(spec, first, Meaning.NOW)
    if written not in ("", built.parts["mechanisms"]):
        for meaning in (Meaning.SUM_OF_ERRORS, Meaning.BY_GROWTH):
            former = _built(spec, first, meaning)
            if former.parts["mechanisms"] == written:
                return former
    return built


def _built(spec: PipelineSpec, first: PipelineSpec | None, meaning: Meaning) -> Built:
    file = None if first is None else spec
    spec = spec if first is None else going_on(first, spec)
    layout = RowLayout.of(spec)
    chosen = tuple(
        chosen_for(spec, series, layout.slice(series.name), advise=True, meaning=meaning)
        for series in spec.counted
    )
    ledgers, block, charges = first_charges(spec, chosen)
    ledgers[MAIN] = charged(ledgers[MAIN], block, charges)
    made = made_of_releases(spec, layout, chosen)
    return Built(spec, layout, chosen, block, charges, ledgers, made, first, file)


def first_charges(
    spec: PipelineSpec, chosen: Sequence[Chosen]
) -> tuple[dict[str, Ledger], Derivation, tuple[Seen, ...]]:
    """Return the ledgers before the charge for the file's series, and what is to be charged, as `charged_parts` does.

    Errors as of `build`.
    """
    privacy = spec.privacy
    ledgers = dict(opened(privacy, spec.protection.protected, spec.partitions).ledgers)
    premises = tuple(c.derivation for c in chosen)
    granted = max(privacy.block_delta, sum((c.spec.delta for c in chosen), Fraction(0)))
    blocks = fixed_blocks(spec.name, premises, granted, privacy.delta, privacy.order)
    seen = tuple((c.derivation, c.box) for c in chosen)
    return ledgers, *charged_parts(ledgers[MAIN], seen, blocks)


def made_of_releases(
    spec: PipelineSpec, layout: RowLayout, chosen: Sequence[Chosen]
) -> tuple[MadeOf, ...]:
    inputs = {
        source.spec.name: Input(
            source.spec.name, source.spec.entries(layout.keys(source.spec.name)), source.spec.views,
            source.mechanism, source.spec.grain, spec.confidence,
        )
        for source in chosen
    }  # fmt: skip
    return tuple(
        series.made([inputs[name] for name in series.inputs], spec.fields, spec.clock.horizon)
        for series in spec.series
        if series.inputs
    )


def chosen_for(
    spec: PipelineSpec,
    series: SeriesSpec,
    rows: slice,
    *,
    advise: bool = False,
    meaning: Meaning = Meaning.NOW,
) -> Chosen:
    """Return the mechanism of a series on these rows, the reason for the choice, and its guarantee.

    If a replacement may move to another tick, the mechanism is made for `add_remove` with half the series' epsilon.
    If users are protected and k events of a user count, it gets a k-th of the epsilon; but a mechanism that counts
    these users themselves, or the values of which a cap lets a user have so many, or that adds up their totals, is
    made for users directly. `advise`: the reason names what another method would have.
    Raises `NotDerivable` if no rule covers the series, or one event may set more entries of its rows than the mechanism
    allows.
    """
    width, confidence, protection = rows.stop - rows.start, float(spec.confidence), spec.protection
    identifier, totals = series.identifier, series.totals
    by_user = identifier is not None and identifier.counts(spec.privacy.user)
    values = None if by_user else values_of(spec, series)
    users = protection.users if by_user or totals or values else None
    part = series.at_share(protection.share) if users is None else series
    # of a total each unit is an event of its own
    ones = 1 if totals else series.ones(spec.fields)
    lowest, highest = (0, 1) if series.amount is None or totals else series.amount.units
    weight = max(abs(lowest), abs(highest))
    shared = spec.privacy.total_of(series.shares)
    records = guessed_records(spec, series) if advise else ""
    setting = Setting(
        width, protection.relation.step, spec.clock.horizon, confidence,
        series.delta or spec.privacy.stated_delta,
        gdp=spec.privacy.filter == "gdp",
        by_rho=spec.privacy.by_rho,
        steps=protection.steps if users is None else 1,
        ones=ones,
        parts=entries_of_parts(spec, series),
        step=spec.clock.step,
        weight=weight,
        signed=lowest < 0,
        users=users,
        shape=shape_of(spec, series) if users is None else None,
        values=values,
        entries=user_entries(spec, series) if identifier and users else 1,
        total=0 if shared is None else shared.units,
        total_of=shared.of if shared and spec.privacy.totals else "",
        advise=advise,
        records=records if isinstance(records, Fraction) else None,
        meaning=meaning,
    )  # fmt: skip
    try:
        choice = part.choose(setting)
    except NotDerivable:
        raise
    except UsageError as refused:
        raise UsageError(f"series {series.name}: {refused}") from None
    _require_covered(series, choice.mechanism, ones, weight)
    step = derived(choice.mechanism, series.name)
    derivation = at_own_delta(protection.of(series.name, step), series.delta)
    return Chosen(series, choice, derivation, seen_by(spec, series))


def _require_covered(
    series: SeriesSpec, mechanism: ServingMechanism[Any], ones: int, weight: int
) -> None:
    """Raise NotDerivable unless the guarantee covers events that set `ones` entries to at most `weight` units."""
    rows, kind = mechanism.rows, type(mechanism).__name__
    if rows.ones < ones:
        raise NotDerivable(
            f"{series.name}: one event may set {ones} entries of its rows, because "
            f"'{series.listed['by']}' is a list, but {kind} is made for "
            f"{rows.ones}. Use another statistic or method, or declare a smaller `most:`"
        )
    if rows.weight < weight:
        raise NotDerivable(
            f"{series.name}: one event may add {weight} units to an entry, but {kind} is made "
            f"for {rows.weight}"
        )
