"""Texts of a file stay what stands there; of a definition that comes by message nothing is repeated."""

from pathlib import Path

import pytest
from unit.pipeline.file.test_refusals import FOLDER

from stream_dp.errors import UsageError
from stream_dp.pipeline.spec import PipelineSpec
from stream_dp.pipeline.yaml import load, load_series

RIGHT = (FOLDER / "shop.yaml").read_text()


@pytest.fixture
def shop(tmp_path: Path) -> PipelineSpec:
    path = tmp_path / "shop.yaml"
    path.write_text(RIGHT)
    return load(path)


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


LIVE = [
    ("statistic: cuont",
     "22: statistic: what stands there is not a known statistic; did you mean count?"),
    ("statistic: count, windows: SECRET",
     "38: windows: must be a list, in brackets or with a dash before each entry"),
    ("statistic: count, windos: [1h]",
     "29: windos: is not a known key; did you mean windows?"),
    ("statistic: count, method: gausian",
     "37: method: must be tree, gaussian or auto; did you mean gaussian?"),
    ("statistic: count, where: [{field: country, equals: SECRET}]",
     "62: where[0].equals: what stands there is not in the domain of the field"),
    ("statistic: count, where: [{field: country, equals: de}]",
     "62: where[0].equals: what stands there is not in the domain of the field; did you mean DE?"),
    ("statistic: count, where: [{field: contry, equals: DE}]",
     "45: where[0].field: what stands there is not in the schema; did you mean country?"),
    ("statistic: count, secret:SECRET",
     "29: a space is missing behind the colon: what stands there"),
    ("statistic: count, title: null",
     "36: title: has no value (null); leave it out, or put quotes around it if it is a text"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "told"), LIVE)
def test_of_a_message_nothing_is_repeated(shop: PipelineSpec, said: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_series(f"{{name: x, {said}, epsilon: 1}}".encode(), shop)
    assert str(caught.value) == f"series, line 1, column {told}"


def test_behind_a_misspelled_statistic_its_other_keys_are_told(shop: PipelineSpec) -> None:
    with pytest.raises(UsageError) as caught:
        load_series(b"{name: two, statistic: cuont, epsilom: 1}", shop)
    first, second = str(caught.value).splitlines()
    assert first.endswith("is not a known statistic; did you mean count?")
    assert second.endswith("epsilom: is not a known key; did you mean epsilon?")
    assert "cuont" not in str(caught.value)
