"""The mark of a lease's holder: who lost its brokers goes on, who was replaced stops and fences nobody."""

import pytest
from kafka.kafka_worlds import Close, create, visible

from stream_dp.errors import FailClosed, Outage
from stream_dp.kafka.client.clients import KafkaSettings
from stream_dp.kafka.log.lease import Holder, KafkaLease, Outgoing, Presence


async def test_the_mark_tells_a_slow_transaction_from_another_engine(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    """The brokers fence in both cases; where the lease is still this run's, it recovers and goes on."""
    await create(kafka, f"{name}.records")
    holder = Holder()
    first, again, other = (KafkaLease(settings, name, who) for who in (holder, holder, Holder()))
    closing += [first.close, again.close, other.close]
    await first.start()
    await first.transact([Outgoing(f"{name}.records", b"first")])
    await again.start()
    with pytest.raises(Outage, match="the brokers ended a transaction"):
        await first.transact([Outgoing(f"{name}.records", b"too late")])
    await again.transact([Outgoing(f"{name}.records", b"again")])
    await other.start()
    with pytest.raises(FailClosed, match="another engine has taken over"):
        await again.transact([Outgoing(f"{name}.records", b"fenced")])
    assert [one.value for one in await visible(kafka, f"{name}.records")] == [b"first", b"again"]


async def test_who_was_replaced_while_it_noticed_nothing_takes_nothing_back(
    kafka: str, settings: KafkaSettings, name: str, closing: list[Close]
) -> None:
    await create(kafka, f"{name}.records")
    holder = Holder()
    asleep, newer = KafkaLease(settings, name, holder), KafkaLease(settings, name)
    woken = KafkaLease(settings, name, holder)
    closing += [asleep.close, newer.close, woken.close]
    await asleep.start()
    await newer.start()
    await asleep.close()
    with pytest.raises(FailClosed, match="another engine has taken over"):
        await woken.start()
    await newer.transact([Outgoing(f"{name}.records", b"untouched")])
    assert [one.value for one in await visible(kafka, f"{name}.records")] == [b"untouched"]


async def test_one_that_leaves_is_gone_at_once_and_one_that_comes_is_there(
    settings: KafkaSettings, name: str
) -> None:
    one, two = Presence(settings, name), Presence(settings, name)
    assert await two.members() == 0
    await one.join()
    assert await two.members() == 1
    await two.join()
    assert await one.members() == 2
    await one.leave()
    await one.leave()
    assert await two.members() == 1
    await two.leave()
    await one.alone()
    assert await two.members() == 1
    await one.leave()
