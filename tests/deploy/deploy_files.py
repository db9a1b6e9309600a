"""Where deploy/ lies, and what several of its tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def mutated(text: str, old: str, new: str) -> str:
    """Return the text with one place changed, which must be there."""
    assert old in text, old
    return text.replace(old, new, 1)
