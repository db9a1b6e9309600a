"""The page for a security review names tests that exist, and says of what no test can hold that none does."""

from unit.docs.test_laws import ROOT, missing, named

PAGE = (ROOT / "docs" / "security.md").read_text()


def test_what_keeps_the_claims_is_there() -> None:
    kept = PAGE.partition("## What keeps the claims of this page")[2].partition("\n## ")[0]
    assert missing(kept) == []
    assert len(named(kept)) == kept.count("\n- ") > 20
    assert "No test can hold" in kept
