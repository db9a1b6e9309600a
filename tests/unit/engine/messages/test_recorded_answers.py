"""An answer that is on record is given again by its number, and never another in its place."""

import pytest

from stream_dp.core.time import TickGrid
from stream_dp.engine.messages.answering import recorded
from stream_dp.engine.messages.conversation import body_of
from stream_dp.errors import NotAccepted
from stream_dp.files.memory import MemoryAnswers
from stream_dp.journal.answer_body import AnswerCut

AT = AnswerCut.before(0, TickGrid(0, 1000))
BODIES = [body_of(number, f"m{number}", "list", AT, {"queries": []}) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_the_answer_of_a_number_is_given_again(number: int) -> None:
    assert await recorded(MemoryAnswers(list(BODIES)), number) == BODIES[number - 1]


@pytest.mark.parametrize("kept", [BODIES[2:], BODIES[:1], []])
async def test_another_one_is_not_given_in_its_place(kept: list[bytes]) -> None:
    with pytest.raises(NotAccepted, match="id: this very message came before"):
        await recorded(MemoryAnswers(list(kept)), 2)


async def test_where_no_answers_are_kept_it_is_on_record_only() -> None:
    with pytest.raises(NotAccepted, match="its answer is in the topic"):
        await recorded(None, 1)
