"""What tests of more than one folder need and is too dear to make twice."""

import pytest

from stream_dp.verify.exact_checks.table import RuleFinding, findings


@pytest.fixture(scope="session")
def certified() -> tuple[RuleFinding, ...]:
    """Every rule on its instances, as `stream-dp audit --rules` compares them: about ten seconds."""
    return tuple(findings())
