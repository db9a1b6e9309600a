"""Concurrent composition of continual mechanisms ([HSV] Def 4.1, ExtConComp).

Messages create mechanisms while others run, pass (index, message) to one of them, or halt one. Rules: the
composition itself decides nothing. The ledger decides which mechanisms may be created or, inside a composite
mechanism, the code whose derivation counts the creations. The state of each mechanism is sealed (`sealed`): code
that has the composition's state can ask and halt mechanisms, but reads nothing but answers. This file knows no
noise, actor or budget.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from stream_dp.core.mechanism import IntArray, Mechanism, Message, Noise
from stream_dp.core.relation import Claim
from stream_dp.core.sealed import SealedState, inside_of
from stream_dp.core.wire import wire
from stream_dp.errors import RejectedMessage


@dataclass(frozen=True, slots=True)
class Create:
    """Create `mechanism`; there is no answer, and its index is the number of creations before it.

    `claim` is the claim about the mechanism, where it differs from its own guarantee (a composition has none).
    """

    mechanism: "Mechanism[Any] | ConcurrentComposition"
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Pass `message` to the mechanism with this index."""

    index: int
    message: "Message | CompositionMessage"


@dataclass(frozen=True, slots=True)
class Halt:
    """End the mechanism with this index; it takes no further message."""

    index: int


CompositionMessage: TypeAlias = Create | Ask | Halt


@wire("composition-child", 1)
@dataclass(frozen=True, slots=True, repr=False)
class Child:
    """A live mechanism and its state; the state is sealed when the child is made."""

    mechanism: "Mechanism[Any] | ConcurrentComposition"
    state: Any

    def __post_init__(self) -> None:
        if type(self.state) is not SealedState:
            object.__setattr__(self, "state", SealedState(self.state))


@wire("composition-state", 1)
@dataclass(frozen=True, slots=True, repr=False)
class CompositionState:
    """`created` counts all creations so far; `live` holds the mechanisms that have not been halted."""

    created: int
    live: dict[int, Child]


@dataclass(frozen=True, slots=True)
class ConcurrentComposition:
    """ExtConComp of [HSV] Def 4.1 as a state machine.

    Privacy claim: none of its own; a rule of the accounting derives a claim from the mechanisms created.
    """

    def init(self, noise: Noise | None = None) -> CompositionState:
        """Return the first state, without mechanisms. Draws nothing; games need the parameter `noise`."""
        return CompositionState(0, {})

    def step(
        self, state: CompositionState, message: CompositionMessage, noise: Noise
    ) -> tuple[CompositionState, IntArray | None]:
        """Take one message; return the next state and, for `Ask`, the answer of that mechanism.

        Raises:
            RejectedMessage: no live mechanism has that index, or the mechanism itself refuses the message.
        """
        match message:
            case Ask():
                child = self._live(state, message.index)
                machine: Any = child.mechanism  # each checks its query space
                before = inside_of(child.state)
                after, answer = machine.step(before, message.message, noise)
                if after is before:
                    return state, answer
                live = state.live | {message.index: Child(machine, SealedState(after))}
                return CompositionState(state.created, live), answer
            case Create(mechanism):
                child = Child(mechanism, mechanism.init(noise))
                live = {**state.live, state.created: child}
                return CompositionState(state.created + 1, live), None
            case Halt(index):
                self._live(state, index)
                live = {i: c for i, c in state.live.items() if i != index}
                return CompositionState(state.created, live), None
            case _:
                raise RejectedMessage(
                    "a composition accepts only creations, halts, and messages to its own mechanisms"
                )

    @staticmethod
    def _live(state: CompositionState, index: int) -> Child:
        if index not in state.live:
            raise RejectedMessage(f"no live mechanism has index {index}; create one first")
        return state.live[index]
