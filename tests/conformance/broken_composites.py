"""HSS broken on purpose: each lets private data decide, leave, or reach a sub-mechanism twice."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from stream_dp.core.composition import Ask, Create, Halt
from stream_dp.core.mechanism import IntArray, Message, Noise, Query, Update
from stream_dp.core.sealed import inside_of
from stream_dp.mechanisms.hss.hss import COUNTER, HSS, HSSState
from stream_dp.mechanisms.hss.per_bin_hss import COUNTERS, WATCHERS, PerBinHSS, PerBinState


class PeeksAtPending(HSS):
    """Closes the interval when the exact sum is large."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        if state.pending[0] > 100:
            return self._close(replace(state, queries=state.queries + 1), noise)
        return super()._watch(state, noise)


class SkipsEmptyRows(HSS):
    """Saves work where nothing happened."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Forwards by content."""
        if isinstance(message, Update) and not np.any(message.row):
            return state, None
        return super().step(state, message, noise)


class AnswersWithPending(HSS):
    """Adds what is pending to what is released."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Exact answers."""
        after, answer = super().step(state, message, noise)
        return after, None if answer is None else answer + after.pending


class FormatsARow(HSS):
    """Keeps a log line."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Private data in a text."""
        _ = f"{state.pending}"
        return super().step(state, message, noise)


class PrivateThreshold(HSS):
    """Raises the threshold by what is pending."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        limit = self.gamma(state.queries + 1, state.intervals) + state.pending[0]
        asked = Ask(state.watcher, Query(limit))
        parts, above = self.composition.step(state.parts, asked, noise)
        after = replace(state, queries=state.queries + 1, parts=parts)
        return self._close(after, noise) if above is not None and above[0] else after


class PrivateDestination(HSS):
    """Picks the sub-mechanism by the data."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """The index depends on the row."""
        if isinstance(message, Update):
            place = message.row[0] + state.watcher
            self.composition.step(state.parts, Ask(place, message), noise)
        return super().step(state, message, noise)


class PrivateOffset(HSS):
    """Creates an instance that starts from a private sum."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        offset = (state.pending[0], 0, 0)
        made = Create(replace(self.instance(), offset=offset))
        parts, _ = self.composition.step(state.parts, made, noise)
        return super()._close(replace(state, parts=parts), noise)


class FeedsTheCrossingTickTwice(HSS):
    """The tick that crosses also enters the next interval ([HSV] Cor 5.5 would need k = 2)."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Replays the last row into the new instance."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and self.last is not None:
            self.last.row = message
        elif self.last is not None and after.intervals > state.intervals and self.last.row:
            parts, _ = self.composition.step(after.parts, Ask(after.watcher, self.last.row), noise)
            after = replace(after, parts=parts)
        return after, answer

    last: "Last | None" = None


@dataclass
class Last:
    """A place for a row."""

    row: Update | None = None


class KeepsPending(HSS):
    """Forgets to clear the sum: an event enters the counter in every later interval again."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return replace(super()._close(state, noise), pending=state.pending)


class DoublesARow(HSS):
    """Sends twice the sum: its inputs are no neighbours."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return super()._close(replace(state, pending=state.pending + state.pending), noise)


class CountsEveryTick(HSS):
    """Sends each row to the counter as well as to the interval's sum."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """The counter sees an event twice."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update):
            parts, _ = self.composition.step(after.parts, Ask(COUNTER, message), noise)
            after = replace(after, parts=parts)
        return after, answer


class ContinuesAfterCrossing(HSS):
    """Keeps the old instance listening beside the new one: an event reaches two."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        after = super()._close(state, noise)
        parts, _ = self.composition.step(after.parts, Create(self.instance()), noise)
        return replace(after, parts=parts)

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Rows go to the instance and its younger twin."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and after.intervals:
            parts, _ = self.composition.step(after.parts, Ask(after.watcher + 1, message), noise)
            after = replace(after, parts=parts)
        return after, answer


class AliasesTheRelease(HSS):
    """Answers with the released histogram itself ([HSV] Alg. 3 needs a copy)."""

    def _answer(self, released: IntArray) -> IntArray:
        return released


class HaltsByContent(HSS):
    """Halts its instance when the row is large; tells by which messages are sent."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """One more message, or not."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and message.row.sum() % 2:
            parts, _ = self.composition.step(after.parts, Create(self.instance()), noise)
            parts, _ = self.composition.step(parts, Halt(parts.created - 1), noise)
            after = replace(after, parts=parts)
        return after, answer


class ReadsItsPart(HSS):
    """Answers with the exact count that its counter holds."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Publishes it, whatever noise the counter has."""
        after, answer = super().step(state, message, noise)
        if answer is None:
            return after, None
        return after, answer * 0 + after.parts.live[COUNTER].state.total


class ReadsItsWatcher(HSS):
    """Closes the interval when the exact sum inside the sparse vector is large."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        if state.parts.live[state.watcher].state.count[0] > 100:
            return self._close(replace(state, queries=state.queries + 1), noise)
        return super()._watch(state, noise)


class OpensItsPart(HSS):
    """Breaks the seal of its counter's state."""

    def step(
        self, state: HSSState, message: Message, noise: Noise
    ) -> tuple[HSSState, IntArray | None]:
        """Publishes what is inside."""
        after, answer = super().step(state, message, noise)
        if answer is None:
            return after, None
        return after, answer * 0 + inside_of(after.parts.live[COUNTER].state).total


class AsksAgain(HSS):
    """Asks its sparse vector from one state over and over: the noise of the mean is gone, and none is halted."""

    def _watch(self, state: HSSState, noise: Noise) -> HSSState:
        asked = Ask(state.watcher, Query(self.gamma(state.queries + 1, state.intervals)))
        for _ in range(3):
            self.composition.step(state.parts, asked, noise)
        return super()._watch(state, noise)


class Silence:
    """Noise that is none."""

    def laplace(self, scale: Fraction, size: int) -> IntArray:
        """Zeros."""
        return np.zeros(size, dtype=np.int64)

    geometric = gaussian = laplace


class BringsItsOwnNoise(HSS):
    """Its counter draws no noise at all."""

    def _close(self, state: HSSState, noise: Noise) -> HSSState:
        return super()._close(state, Silence())


class ClosesByContent(PerBinHSS):
    """Closes a column when its exact row is large."""

    def step(
        self, state: PerBinState, message: Message, noise: Noise
    ) -> tuple[PerBinState, IntArray | None]:
        """Branches on the row."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and message.row[0] > 1:
            after = self._close(after, np.array([0]), noise)
        return after, answer


class WatchesTwice(PerBinHSS):
    """The row enters the sparse vectors twice: their inputs are no neighbours."""

    def step(
        self, state: PerBinState, message: Message, noise: Noise
    ) -> tuple[PerBinState, IntArray | None]:
        """Feeds the row again."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update):
            parts, _ = self.composition.step(after.parts, Ask(WATCHERS, message), noise)
            after = replace(after, parts=parts)
        return after, answer


class SkipsEmptyRowsOfBins(PerBinHSS):
    """Tells by which messages are sent."""

    def step(
        self, state: PerBinState, message: Message, noise: Noise
    ) -> tuple[PerBinState, IntArray | None]:
        """One more message, or not."""
        after, answer = super().step(state, message, noise)
        if isinstance(message, Update) and message.row.sum() % 2:
            parts, _ = self.composition.step(after.parts, Ask(COUNTERS, message), noise)
            after = replace(after, parts=parts)
        return after, answer
