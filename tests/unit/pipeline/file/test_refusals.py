"""What is told of broken pipeline files: a golden file, over the right files that stand beside it.

A block of `refusals.txt` breaks the file that its section names: lines that stand in place of the numbered ones, then,
indented, all that is told. This file run as a program writes anew what is told; read the difference before you commit:

    PYTHONPATH=tests python tests/unit/pipeline/file/test_refusals.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stream_dp.errors import UsageError
from stream_dp.pipeline.yaml import load

FOLDER = Path(__file__).parents[3] / "fixtures" / "refusals"
GOLDEN = FOLDER / "refusals.txt"
SECTION, REFUSAL = "== ", "    "


def sections() -> dict[str, list[str]]:
    """The blocks that break each right file."""
    parts = GOLDEN.read_text(encoding="utf-8").split(SECTION)[1:]
    split = [part.rstrip("\n").split("\n\n") for part in parts]
    return {name: blocks for name, *blocks in split}


def changes(block: str) -> list[str]:
    """The lines of a block that break the file."""
    return [line for line in block.split("\n") if not line.startswith(REFUSAL)]


def broken(name: str, changed: list[str]) -> str:
    """The text of the file with other lines."""
    lines = dict(enumerate((FOLDER / name).read_text(encoding="utf-8").splitlines(), 1))
    numbered = [line.partition(": ") for line in changed]
    others = {int(number): "" for number, _, _ in numbered}
    for number, _, text in numbered:
        others[int(number)] += f"{text}\n"
    return "".join((lines | others)[number].rstrip("\n") + "\n" for number in lines)


def refusal(text: str, folder: Path) -> list[str]:
    """The lines of the refusal, without the name of the file."""
    path = folder / "broken.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load(path)
    except UsageError as error:
        return [line.removeprefix(f"{path}:") for line in str(error).splitlines()]
    return ["is accepted"]


def anew(name: str, block: str, folder: Path) -> str:
    """The block with what is told now."""
    changed = changes(block)
    return "\n".join(
        [*changed, *(REFUSAL + line for line in refusal(broken(name, changed), folder))]
    )


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_refusals_are_those_of_the_golden_file(name: str, tmp_path: Path) -> None:
    assert refusal(broken(name, []), tmp_path) == ["is accepted"]
    blocks = sections()[name]
    rewritten = [anew(name, block, tmp_path) for block in blocks]
    assert rewritten == blocks
    assert f"{REFUSAL}is accepted" not in "\n".join(rewritten)


def test_parts_are_told_first_and_parts_together_once_they_are_right(tmp_path: Path) -> None:
    clock = "16: clock: {kind: replay, field: tme, start: soon, step: 1h, horizon: 9}"
    both = broken("flights.yaml", ["15: privacy: {epsilon: 0}", clock])
    places = [line.split(": ")[1] for line in refusal(both, tmp_path)]
    assert places == ["privacy.epsilon", "clock.start"]
    right = both.replace("soon", "2026-01-01T00:00:00Z").replace("epsilon: 0}", "epsilon: 2}")
    (line,) = refusal(right, tmp_path)
    assert line.endswith("clock.field: 'tme' is not in the schema; did you mean time?")


def main() -> None:
    """Write the golden file anew."""
    with TemporaryDirectory() as folder:
        parts = [
            "\n\n".join([name, *(anew(name, block, Path(folder)) for block in blocks)])
            for name, blocks in sections().items()
        ]
    GOLDEN.write_text("".join(f"{SECTION}{part}\n\n" for part in parts)[:-1], encoding="utf-8")


if __name__ == "__main__":
    main()
