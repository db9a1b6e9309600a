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
    parts = GOLDEN.read_text(encoding="utf-8").split(SECTION)[1:]
    split = [part.rstrip("\n").split("\n\n") for part in parts]
    return {name: blocks for name, *blocks in split}


def changes(block: str) -> list[str]:
    return [line for line in block.split("\n") if not line.startswith(REFUSAL)]


def broken(name: str, changed: list[str]) -> str:
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


RIGHT = (FOLDER / "shop.yaml").read_text()


@pytest.mark.parametrize(
    "value", ["NO", "on", "1_000", "1:30", "2013-01-01", "0x10", ".5", "'null'", '"~"']
)
def test_a_text_stays_the_text_that_stands_there(tmp_path: Path, value: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(RIGHT.replace("[DE, FR, US]", f"[DE, {value}]"))
    assert load(path).fields["country"].domain == ("DE", value.strip("'\""))  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["true", "True", "TRUE", "false", "False"])
def test_a_truth_is_one_in_any_case(tmp_path: Path, value: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(RIGHT.replace("field: amount, at_least: 100", f"field: paid, equals: {value}"))
    assert load(path).series[1].where[0].equals == value


def main() -> None:
    with TemporaryDirectory() as folder:
        parts = [
            "\n\n".join([name, *(anew(name, block, Path(folder)) for block in blocks)])
            for name, blocks in sections().items()
        ]
    GOLDEN.write_text("".join(f"{SECTION}{part}\n\n" for part in parts)[:-1], encoding="utf-8")


if __name__ == "__main__":
    main()
