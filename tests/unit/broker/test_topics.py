"""Creating a topic where no broker is: an error for people."""

import pytest
from free_ports import free_port

from stream_dp.broker.topics import create_topic
from stream_dp.errors import WorldError


async def test_nobody_listens() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(WorldError) as raised:
        await create_topic(address, "orders")
    assert str(raised.value) == (
        f"topic orders: no Kafka broker answers at {address}: check address and login, and that it runs; "
        "one that was just started takes some seconds"
    )
