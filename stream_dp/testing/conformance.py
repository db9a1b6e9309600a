"""The conformance suite: what every mechanism must do, whatever it computes.

A mechanism is one `Case`, a line in a list; `checks_of(case)` returns the checks that apply to it, and each raises
`NotConforming`. Rules: a check sees states only through their bytes and noise only through a counting source; it
never looks into a mechanism. Each check fails on a mechanism broken on purpose (tests/conformance).

Taint: a composite mechanism that runs on `Tainted` rows over a `TaintedComposition` shows the destination and
response properties of [HSV] 6.3: private data neither chooses, addresses nor answers a message. The composite may add
and slice rows and pass them to a sub-mechanism. Production runs the same code on plain arrays and sealed states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, partial
from itertools import combinations, cycle, islice
from typing import Any, NoReturn, TypeAlias, TypeVar

import numpy as np

from stream_dp.core.composition import (
    Ask,
    Child,
    CompositionMessage,
    CompositionState,
    ConcurrentComposition,
    Create,
    Halt,
)
from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise, Query, Update
from stream_dp.core.neighbors import Neighbors
from stream_dp.core.relation import same
from stream_dp.core.serial import Codec
from stream_dp.errors import RejectedMessage, TaintError
from stream_dp.mechanisms.states import STATES
from stream_dp.mechanisms.watches.block import LevelsQuery
from stream_dp.testing.noise import SeededNoise, ZeroNoise
from stream_dp.verify.relations import Suitable

Plain: TypeAlias = "IntArray | np.int64 | int"
S = TypeVar("S")


def _taint_refused(what: str) -> Any:
    def method(self: "Tainted", *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TaintError(f"{what} a tainted value: private data may only be added and passed on")

    return method


class Tainted:
    """A private int64 array or integer, which may only be added, sliced and passed on.

    Any operation that lets the value decide, leave or be formatted raises `TaintError`, never with the value itself.

    >>> row = Tainted(np.array([1, 2])) + 1
    >>> bool(row[0])
    Traceback (most recent call last):
    stream_dp.errors.TaintError: branching on a tainted value: private data may only be added and passed on
    """

    __slots__ = ("_value",)
    __array_priority__ = 1_000.0

    def __init__(self, value: Plain) -> None:
        object.__setattr__(self, "_value", value)

    def __add__(self, other: "Tainted | Plain") -> "Tainted":
        return Tainted(reveal(self) + (reveal(other) if isinstance(other, Tainted) else other))

    __radd__ = __add__

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> "Tainted":
        """Handle plain array + tainted value; refuse every other numpy function."""
        if ufunc is not np.add or method != "__call__" or options:
            raise TaintError("numpy work on a tainted value other than a fresh sum")
        left, right = (reveal(x) if isinstance(x, Tainted) else x for x in inputs)
        return Tainted(left + right)

    def __getitem__(self, place: int | slice) -> "Tainted":
        parts = (place.start, place.stop, place.step) if isinstance(place, slice) else (place,)
        if any(isinstance(part, Tainted) for part in parts):
            raise TaintError("the place taken from a row depends on private data")
        value = reveal(self)
        if not isinstance(value, np.ndarray):
            raise TypeError("a tainted integer has no parts")
        return Tainted(value[place])

    __bool__ = _taint_refused("branching on")
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _taint_refused("comparing")
    __hash__ = _taint_refused("hashing")
    __len__ = _taint_refused("measuring")
    __iter__ = __contains__ = __reversed__ = _taint_refused("looking into")
    __int__ = __float__ = __complex__ = __round__ = _taint_refused("converting")
    __trunc__ = __floor__ = __ceil__ = __index__ = _taint_refused("converting")
    __repr__ = __str__ = __format__ = __bytes__ = _taint_refused("formatting")
    __array__ = __array_function__ = _taint_refused("numpy work on")
    __reduce_ex__ = __copy__ = __deepcopy__ = _taint_refused("copying out")
    __setattr__ = __delattr__ = __setitem__ = __delitem__ = _taint_refused("changing")
    __getattr__ = _taint_refused("reading an attribute of")
    __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _taint_refused("calculating with")
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _taint_refused("calculating with")
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _taint_refused("calculating with")
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _taint_refused("calculating with")
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _taint_refused("calculating with")
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __invert__ = _taint_refused(
        "calculating with"
    )
    __iadd__ = _taint_refused("changing")  # it would write into the sender's row


def reveal(value: Tainted) -> Any:
    """Return the value inside, for tests and for `TaintedComposition`; a mechanism that calls this is broken."""
    return object.__getattribute__(value, "_value")


class Elsewhere:
    """Stands in for a sub-mechanism's state, which a composite must not open."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise TaintError("a composite opened the state of a sub-mechanism")


@dataclass(frozen=True, slots=True)
class TaintedComposition(ConcurrentComposition):
    """The composition in which private data reaches the sub-mechanisms, and no other part of a composite.

    It returns empty states; the real ones stay here, each until the next message to it. If `noise` is given,
    sub-mechanisms may only draw from it.
    """

    noise: Noise | None = None
    _heads: list[tuple[CompositionState, CompositionState]] = field(
        default_factory=list, repr=False, compare=False
    )

    def init(self, noise: Noise | None = None) -> CompositionState:
        return self._hand_out(ConcurrentComposition.init(self, noise))

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        """Take a message as the composition does; only an update's row may be private.

        Raises:
            TaintError: a destination, a created mechanism's parameter or a threshold is tainted; a state is used a
            second time (repeated questions draw new noise, and the mean of many answers has none); the noise is not
            the composite's own.
        """
        match message:
            case Create(mechanism):
                if _holds_taint(mechanism):
                    raise TaintError("a created mechanism's parameter depends on private data")
            case Ask(Tainted()) | Halt(Tainted()):
                raise TaintError("the destination of a message depends on private data")
            case Ask(index, inner):
                message = Ask(index, _entering(inner))
        if self.noise is not None and noise is not self.noise:
            raise TaintError("a sub-mechanism was handed other noise than the composite's own")
        place = next((at for at, (head, _) in enumerate(self._heads) if head is state), None)
        if place is None:
            raise TaintError("a state of the composition was used again, or made by hand")
        after, answer = ConcurrentComposition.step(self, self._heads[place][1], message, noise)
        del self._heads[place]
        return self._hand_out(after), answer

    def _hand_out(self, state: CompositionState) -> CompositionState:
        """Return an empty state that stands for this one."""
        live = {index: Child(child.mechanism, Elsewhere()) for index, child in state.live.items()}
        self._heads.append((CompositionState(state.created, live), state))
        return self._heads[-1][0]


def _entering(message: Message | CompositionMessage) -> Message | CompositionMessage:
    """Return the message with its row unwrapped; refuse a tainted threshold."""
    match message:
        case Update(row) if isinstance(row, Tainted):
            return Update(reveal(row))
        case Query() if _holds_taint(message):
            raise TaintError("a query's threshold or columns depend on private data")
    return message


def _holds_taint(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_taint(item) for item in value)
    if is_dataclass(value):
        return any(_holds_taint(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, Tainted)


def tainted_step(
    mechanism: Mechanism[S], state: S, message: Message, noise: Noise
) -> tuple[S, IntArray | None]:
    """Run one step of a composite on a tainted input row; TaintError if private data decides or answers."""
    if isinstance(message, Update):
        message = Update(Tainted(message.row))  # type: ignore[arg-type]  # stands in for a row
    state, answer = mechanism.step(state, message, noise)
    if _holds_taint(answer) or (isinstance(answer, np.ndarray) and answer.dtype == object):
        raise TaintError("the answer is private data")
    return state, answer


class Forced(ConcurrentComposition):
    """A composition that records its messages and replaces every answer.

    Two copies of a composite get equal answers for any input, so their messages show whether neighbouring inputs
    become neighbouring inputs of the parts ([HSV] Def 6.2, f to f'). Answers to comparisons with public thresholds
    cycle through `bits`; other answers are made-up counts.
    """

    def __init__(self, bits: Sequence[int]) -> None:
        super().__init__()
        self.trace: list[CompositionMessage] = []
        self._bits = cycle(bits)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        self.trace.append(message)
        after, answer = ConcurrentComposition.step(self, state, message, noise)
        if not isinstance(message, Ask) or answer is None:
            return after, answer
        asked = message.message
        if not isinstance(asked, LevelsQuery) and getattr(asked, "threshold", None) is None:
            return after, np.arange(answer.size, dtype=np.int64) + len(self.trace)
        live = {**after.live, message.index: state.live[message.index]}  # stays live
        bits = np.fromiter(self._bits, dtype=np.int64, count=answer.size)
        return CompositionState(after.created, live), bits


TICKS = 14
SEED = 20_130_101
Answer: TypeAlias = tuple[int, ...] | str | None


class NotConforming(AssertionError):
    """A mechanism broke a rule of the suite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mechanism under test.

    `threshold`: of its queries, for mechanisms that need one and halt. `horizon`: the number of updates it was made
    for. `counts`: it answers running counts, exact without noise. `windows`: it answers counts over these numbers of
    last updates, one window after the other. `column`: makes the same mechanism of width 1. `composite`: makes it
    over another composition. `touches`: how many sub-mechanisms of each type one event may reach. `untold`: an
    answer's entry before the first count, if not 0. `signed`: its rows may be negative.
    """

    name: str
    make: Callable[[], Mechanism[Any]]
    threshold: int | None = None
    horizon: int | None = None
    counts: bool = False
    windows: tuple[int, ...] = ()
    column: Callable[[], Mechanism[Any]] | None = None
    composite: Callable[[ConcurrentComposition], Mechanism[Any]] | None = None
    touches: tuple[tuple[type, int], ...] = ()
    untold: int = 0
    codec: Codec = STATES
    signed: bool = False

    @property
    def query(self) -> Query:
        return Query(self.threshold)

    def rows(self, ticks: int = TICKS) -> Iterator[IntArray]:
        """Yield some rows for this mechanism, of both signs if it allows them."""
        for tick, row in enumerate(rows(self.make().width, ticks)):
            yield -row if self.signed and tick % 3 == 1 else row


Check: TypeAlias = Callable[[Case], None]


def checks_of(case: Case) -> list[Check]:
    checks: list[Check] = [restores, refuses, keeps_nothing, silence_is_zeros]
    if case.counts or case.windows:
        checks += [counts_exactly, queries_change_nothing, draws_ignore_the_data]
    if case.column is not None:
        checks.append(block_is_columns)
    return checks if case.composite is None else [*checks, taint, neighbours_stay_neighbours]


def rows(width: int, ticks: int = TICKS) -> Iterator[IntArray]:
    """Yield some rows: with zeros, repetitions and a burst."""
    for t in range(ticks):
        burst = 60 if t % 5 == 3 else 1
        yield np.array([(t * (i + 2) + i) % 3 * burst for i in range(width)], dtype=np.int64)


def drive(
    mechanism: Mechanism[Any], state: Any, messages: Sequence[Message], noise: Noise
) -> tuple[Any, list[Answer]]:
    """Return the last state and all answers; a refusal counts as an answer."""
    answers: list[Answer] = []
    for message in messages:
        try:
            state, answer = mechanism.step(state, message, noise)
        except RejectedMessage:
            answers.append("refused")
            continue
        answers.append(None if answer is None else tuple(int(v) for v in answer))
    return state, answers


def restores(case: Case) -> None:
    """Check that a state, written, read and continued by a fresh mechanism, continues exactly like the original."""
    messages = _messages(case)
    for cut in range(0, len(messages) + 1, 3):
        mechanism = case.make()
        state, _ = drive(mechanism, mechanism.init(SeededNoise(SEED)), messages[:cut], _later(1))
        data = case.codec.encode(state)
        again, restored = case.make(), case.codec.decode(data)
        _require(case.codec.encode(restored) == data, "a state read back has other bytes")
        went = drive(mechanism, state, messages[cut:], _later(2))
        goes = drive(again, restored, messages[cut:], _later(2))
        _require(went[1] == goes[1], "the restored copy answers differently")
        same = case.codec.encode(went[0]) == case.codec.encode(goes[0])
        _require(same, "the restored copy ends in another state")


def refuses(case: Case) -> None:
    """Check that a bad message raises `RejectedMessage`, draws no noise and changes nothing."""
    mechanism = case.make()
    state, _ = drive(mechanism, mechanism.init(_later(1)), _messages(case)[:3], _later(2))
    for message in _bad(case, mechanism.width):
        _refused(case, mechanism, state, message)
    if case.threshold is not None:
        always = Update(np.full(mechanism.width, 1 << 30, dtype=np.int64))
        messages: list[Message] = [always, case.query]
        halted, answers = drive(mechanism, mechanism.init(_later(1)), messages, _later(2))
        _require(answers[-1] == (1,), "a far exceeded threshold is not above")
        for message in (always, case.query):
            _refused(case, mechanism, halted, message)
    if case.horizon is not None:
        updates = [Update(row) for row in case.rows(case.horizon)]
        full, answers = drive(mechanism, mechanism.init(_later(1)), updates, _later(2))
        _require("refused" not in answers, "an update within the horizon is refused")
        _refused(case, mechanism, full, updates[0])


def keeps_nothing(case: Case) -> None:
    """Check that `step` changes neither state nor row, keeps no alias of the row, and returns none of the state."""
    mechanism = case.make()
    state = mechanism.init(_later(1))
    for number, message in enumerate(_messages(case)):
        before = case.codec.encode(state)
        row = message.row.copy() if isinstance(message, Update) else np.zeros(0, dtype=np.int64)
        try:
            after, answer = mechanism.step(state, message, _later(number))
            twin, _ = mechanism.step(state, message, _later(number))
        except RejectedMessage:
            continue
        _require(case.codec.encode(state) == before, "step mutated the state it was given")
        data = case.codec.encode(after)
        _require(case.codec.encode(twin) == data, "the same step twice gives two states")
        if isinstance(message, Update):
            _require(np.array_equal(message.row, row), "step mutated the row")
            np.add(message.row, 17, out=message.row)
        if answer is not None:
            answer += 17
        _require(case.codec.encode(after) == data, "the state is an alias of the row or the answer")
        _require(case.codec.encode(state) == before, "the answer is an alias of the given state")
        state = after


def silence_is_zeros(case: Case) -> None:
    """Check that without noise a silent stream is answered with int64 zeros, once there is something to tell."""
    mechanism = case.make()
    state = mechanism.init(ZeroNoise())
    for _ in range(TICKS):
        silent = Update(np.zeros(mechanism.width, dtype=np.int64))
        state, nothing = mechanism.step(state, silent, ZeroNoise())
        _require(nothing is None, "an update was answered")
        state, answer = mechanism.step(state, case.query, ZeroNoise())
        if answer is None or answer.dtype != np.int64 or answer[answer != case.untold].any():
            raise NotConforming("silence is not answered with zeros")


def counts_exactly(case: Case) -> None:
    """Check that without noise the answers are the sums of the last rows for each window, or of all rows."""
    mechanism, noise = case.make(), ZeroNoise()
    state, taken = mechanism.init(noise), list[IntArray]()
    for row in case.rows():
        taken.append(row)
        state, answers = drive(mechanism, state, [Update(row), case.query], noise)
        sums = [np.sum(taken[-window:], axis=0) for window in case.windows or (TICKS,)]
        right = tuple(np.concatenate(sums).tolist())
        _require(answers[-1] == right, "a count without noise is not exact")


def queries_change_nothing(case: Case) -> None:
    """Check that asking a counter twice gives one answer, no new noise and one state."""
    mechanism, noise = case.make(), SeededNoise(SEED)
    state = mechanism.init(noise)
    for row in case.rows():
        state, _ = mechanism.step(state, Update(row), noise)
        before, drawn = case.codec.encode(state), noise.drawn
        state, answers = drive(mechanism, state, [case.query] * 3, noise)
        _require(len(set(answers)) == 1, "a counter answers the same question differently")
        _require(noise.drawn == drawn, "a counter draws noise for a query")
        _require(case.codec.encode(state) == before, "a query changed a counter's state")


def draws_ignore_the_data(case: Case) -> None:
    """Check that a counter draws the same noise for any rows."""
    calls = []
    for factor in (0, 1):
        mechanism, noise = case.make(), SeededNoise(SEED)
        updates = [Update(row * factor) for row in case.rows()]
        drive(mechanism, mechanism.init(noise), updates, noise)
        calls.append(noise.calls)
    _require(calls[0] == calls[1], "how much noise a counter draws depends on the data")


def block_is_columns(case: Case) -> None:
    """Check that without noise a mechanism of width d answers like d mechanisms of width 1."""
    block = case.make()

    def answered(mechanism: Mechanism[Any], messages: list[Message]) -> list[Answer]:
        return drive(mechanism, mechanism.init(ZeroNoise()), messages, ZeroNoise())[1]

    columns = [
        answered(
            (case.column or case.make)(),
            [Update(m.row[i : i + 1]) if isinstance(m, Update) else m for m in _messages(case)],
        )
        for i in range(block.width)
    ]
    whole = answered(block, _messages(case))
    for answer, parts in zip(whole, zip(*columns, strict=True), strict=True):
        joined = tuple(value for part in parts if isinstance(part, tuple) for value in part)
        _require((answer or ()) == joined, "a block answers unlike its columns")


def taint(case: Case) -> None:
    """Check that a composite on tainted rows raises no `TaintError` and answers as on plain rows."""
    answers: list[list[Answer]] = []
    for tainted in (True, False):
        noise = SeededNoise(SEED)
        over = TaintedComposition(noise) if tainted else ConcurrentComposition()
        mechanism = _composite(case, over)
        step = partial(tainted_step, mechanism) if tainted else mechanism.step
        state, replies = mechanism.init(noise), list[Answer]()
        for message in _messages(case):
            state, answer = step(state, message, noise)
            replies.append(None if answer is None else tuple(answer.tolist()))
        answers.append(replies)
    _require(answers[0] == answers[1], "taint changed what the composite answers")


def neighbours_stay_neighbours(case: Case) -> None:
    """Check f to f' ([HSV] Def 6.2): neighbouring inputs, equal answers, neighbouring inputs of the sub-mechanisms.

    Two copies run with the same answers forced on all their sub-mechanisms. They must send the same messages to the
    same places, up to the rows: a suitable sequence of pairs that touches at most as many sub-mechanisms as `touches`
    says. Their own answers must be equal, because they follow from the parts' answers (the response property).
    """
    composite: Any = case.make()
    relation, ones = composite.guarantee.neighbors, composite.rows.ones
    base = list(islice(rows(composite.width), 6))

    @cache
    def copy(bits: tuple[int, ...], tick: int, event: bytes) -> _Copy:
        changed = [*base[:tick], base[tick] + np.frombuffer(event, np.int64), *base[tick + 1 :]]
        return _forced(case, bits, [Update(row) for row in changed])

    for bits in ((0,), (1,), (0, 1), (0, 0, 1), (1, 1, 0)):
        for tick, pair in _one_event(relation, base[0].size, len(base), ones):
            (sent, answered), (beside, again) = (copy(bits, tick, e.tobytes()) for e in pair)
            _compare(case, sent, beside)
            _require(answered == again, "private data decides what is answered")


_Copy: TypeAlias = tuple[list[CompositionMessage], list[Answer]]


def _forced(case: Case, bits: Sequence[int], updates: Sequence[Update]) -> _Copy:
    """Return a copy's messages to its sub-mechanisms and its answers, with their answers forced."""
    composition, noise = Forced(bits), ZeroNoise()
    mechanism = _composite(case, composition)
    state, answers = mechanism.init(noise), list[Answer]()
    for update in updates:
        state, _ = mechanism.step(state, update, noise)
        state, answer = mechanism.step(state, case.query, noise)
        answers.append(None if answer is None else tuple(answer.tolist()))
    return composition.trace, answers


def _compare(case: Case, a: list[CompositionMessage], b: list[CompositionMessage]) -> None:
    """Check that the copies' messages to sub-mechanisms are suitable pairs ([HSV] Def 4.5) and sparse enough."""
    _require(len(a) == len(b), "private data decides how many messages are sent")
    made: list[type] = []
    touched: set[int] = set()
    now = Suitable()
    for left, right in zip(a, b, strict=True):
        rows = _updates(left) and _updates(right)
        _require(rows or same(left, right), "private data decides what is sent")
        if isinstance(left, Ask) and isinstance(right, Ask) and not same(left, right):
            _require(left.index == right.index, "private data decides where a row goes")
            touched.add(left.index)
        after = now.accept(left, right)
        if after is None:
            raise NotConforming("a sub-mechanism's inputs are not neighbours")
        now = after
        if isinstance(left, Create):
            made.append(type(left.mechanism))
    for kind, number in case.touches:
        reached = sum(made[index] is kind for index in touched)
        _require(reached <= number, f"one event reaches {reached} sub-mechanisms of one kind")


def _updates(message: CompositionMessage) -> bool:
    return isinstance(message, Ask) and isinstance(message.message, Update)


def _one_event(
    relation: Neighbors, width: int, ticks: int, ones: int
) -> Iterator[tuple[int, tuple[IntArray, IntArray]]]:
    """Yield where and how two neighbouring streams differ: an event sets one entry, or its first or last `ones`."""
    hots = list(np.eye(width, dtype=np.int64))
    if ones > 1:
        hots += [np.sum(some, axis=0) for some in (hots[:ones], hots[-ones:])]
    pairs = [(hot, np.zeros(width, dtype=np.int64)) for hot in hots]
    if relation is Neighbors.REPLACE:
        pairs += list(combinations(hots, 2))
    return ((tick, pair) for tick in range(ticks) for pair in pairs)


def _composite(case: Case, composition: ConcurrentComposition) -> Mechanism[Any]:
    if case.composite is None:
        raise TypeError(f"{case.name} is not a composite")
    return case.composite(composition)


def _messages(case: Case) -> list[Message]:
    return [m for row in case.rows() for m in (Update(row), case.query)]


def _bad(case: Case, width: int) -> Iterator[Message]:
    fine = np.ones(width, dtype=np.int64)
    for row in (
        np.ones(width + 1, dtype=np.int64), np.ones(0, dtype=np.int64), fine.reshape(1, width),
        fine.astype(np.float64), fine.astype(np.int32), fine.astype(np.uint64), fine.astype(bool),
        -(fine << 61), np.where(np.arange(width) == width - 1, -(1 << 61), fine), fine << 61,
        fine.tolist(), None,
    ):  # fmt: skip
        yield Update(row)  # type: ignore[arg-type]
    if not case.signed:
        yield Update(-fine)
        yield Update(np.where(np.arange(width) == width - 1, -1, fine))
    if case.threshold is not None:
        yield Query()


def _refused(case: Case, mechanism: Mechanism[Any], state: Any, message: Message) -> None:
    before, noise = case.codec.encode(state), SeededNoise(SEED)
    try:
        mechanism.step(state, message, noise)
    except RejectedMessage:
        pass
    else:
        raise NotConforming(f"a bad message was not refused: {message}")
    _require(not noise.calls, "noise was drawn for a message that was then refused")
    _require(case.codec.encode(state) == before, "a refused message changed the state")


def _later(number: int) -> SeededNoise:
    return SeededNoise(SEED, number + 1)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotConforming(otherwise)
