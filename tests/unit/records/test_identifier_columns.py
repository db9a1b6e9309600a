"""Identifiers of records as text and as hashes: long ones, many ticks in a batch, and small batches of one tick."""

from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC
from oracles.user_caps import Event
from unit.pipeline.routing.seen_worlds import specification
from unit.pipeline.routing.user_worlds import SEALER, hashed, payload

from stream_dp.engine import identifiers
from stream_dp.engine.identifiers import Arrivals, each_once
from stream_dp.engine.ports import Batch
from stream_dp.pipeline.layout import Slot
from stream_dp.pipeline.router import OpenRouter
from stream_dp.pipeline.user_guard import CapUses


def found(events: list[Event]) -> dict[int, dict[int, set[bytes]]]:
    """The hashes that a batch of these events brings, by tick and column."""
    router = OpenRouter(specification(), 0, None, SEALER.user_key())
    payloads = [payload(each) for each in events]
    arrived = router.route(Batch(0, payloads, range(len(payloads)), len(payloads))).arrived
    return {
        tick: {at: {row.astype("<u8").tobytes() for row in hashes} for at, hashes in some.items()}
        for tick, some in arrived.items()
    }


def test_a_long_identifier_is_hashed_by_its_digest_and_is_no_other_one() -> None:
    """Else the hash takes a step for every sixteen bytes of a text that nobody has bounded."""
    made = CMAC(AES(SEALER.user_key()))
    made.update(b"\xff" + sha256(b"x" * 1025).digest())
    told = found([Event("x" * 1025, 0, "c"), Event("x" * 1024, 0, "c"), Event("x" * 1026, 0, "c")])
    assert len(told[0][0]) == 3
    assert told[0][0] >= {made.finalize(), hashed("x" * 1024)}


def test_identifiers_of_many_ticks_and_columns_keep_their_places() -> None:
    random = Random(7)
    events = [
        Event(f"u{random.randrange(9)}", random.randrange(24), random.choice("abc"))
        for _ in range(300)
    ]
    expected: dict[int, dict[int, set[bytes]]] = {}
    for each in events:
        for column in (0, 1) if each.key == "c" else (0, 1, 2):
            expected.setdefault(each.tick, {}).setdefault(column, set()).add(hashed(each.user))
    assert found(events) == expected


def test_users_of_many_ticks_stand_once_in_each() -> None:
    random = np.random.default_rng(3)
    users = random.integers(0, 5, (200, 2)).astype(np.uint64)
    ticks, counting, kept = (
        random.integers(0, 9, 200),
        random.random(200) < 0.8,
        random.random(200) < 0.5,
    )
    told = CapUses([Slot(2, ("active", "cut")), Slot(7, ("active", "cut"))]).of(
        users, ticks, counting, kept
    )
    for place, those in enumerate((counting, counting & ~kept)):
        for tick in range(9):
            once = each_once([users[those & (ticks == tick)]])
            assert all(np.array_equal(told[tick][start + place], once) for start in (2, 7))


def test_parts_of_one_tick_are_not_looked_through_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of one record is a step, whatever came before."""
    looked = 0

    def length(one: Any) -> int:
        nonlocal looked
        looked += 1
        return len(one)

    monkeypatch.setattr(identifiers, "len", length, raising=False)
    came, every = Arrivals(), np.arange(10_000, dtype=np.uint64).reshape(-1, 2)
    for at in range(len(every)):
        came.add({0: every[at : at + 1]})
    assert np.array_equal(came.once()[0], every)
    assert looked < 3 * len(every)
