"""What tests do at a cut of an engine, or with its messages: the steps of the product without its formalities."""

from stream_dp.accounting.ledger import Preview
from stream_dp.engine.engine import Engine
from stream_dp.engine.messages.answering import NeedsDerivation
from stream_dp.engine.messages.conversation import Conversation
from stream_dp.engine.proposals import Derived, Proposal
from stream_dp.errors import UsageError
from stream_dp.journal.answer_body import AnswerCut
from stream_dp.journal.commit import Answer, Created, Halted


async def create_series(
    engine: Engine, definition: bytes, analyst: str = "", *, accept_noise: bool = True
) -> Created:
    """Create a series at the next cut; it is durable and charged on return."""

    async def act(derived: Derived | None, *, hold: bool = False) -> Created | NeedsDerivation:
        changes = engine._changes
        needed = NeedsDerivation(definition, changes.begins, analyst)
        outcome = None if derived is None else derived.at(needed.start)
        if outcome is None:
            if not hold:
                return needed
            outcome = (await engine._derived(needed)).outcome
        if isinstance(outcome, UsageError):
            raise outcome
        created = await changes.create(outcome, analyst, accept_noise=accept_noise)
        await changes.flush()
        return created

    with engine._in_hand():
        created: Created = await engine._done(act)
    return created


async def halt_series(engine: Engine, name: str) -> Halted:
    async def act() -> Halted:
        halted = engine._changes.halt(name)
        await engine._changes.flush()
        return halted

    halted: Halted = await engine._inbox.executed(act)
    return halted


async def preview_series(
    engine: Engine, definition: bytes, analyst: str = ""
) -> tuple[Proposal, Preview]:
    """Return what `create_series` would do from the first tick that is not public."""
    proposal = await engine.propose(definition, analyst)
    return proposal, engine.admission.preview(proposal, analyst)


def drained(conversation: Conversation, standing: AnswerCut) -> tuple[Answer, ...]:
    """Return the answers of the next commit, that to what is no message among them if it is due."""
    conversation.answer_refused(standing)
    conversation.record(())
    return conversation.take_answers()
