"""How the tests of a run are shared between its workers (`pytest -n`): a file stays together, Kafka has one broker.

Rules: tests of one group go to one worker, in their order. What is grouped shares something dear: a broker, a
Chromium, the certified rules, or else the caches of a file.
"""

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test without an `xdist_group` that of its file."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """Return the group that shares a fixture of the session with this test, else its file."""
    wanted = getattr(item, "fixturenames", ())
    for fixture in ("kafka", "certified"):
        if fixture in wanted:
            return fixture
    return f"{item.path.parent.name}/{item.path.stem}"
