"""The page of evidence: its claims are the README's, its tests are collected, its dates are those of a recorded run."""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded_script

ROOT = Path(__file__).resolve().parents[3]
GONE = ("tests/unit/docs/test_evidence.py::test_gone", "tests/gone.py::test_x")
HERE = "tests/unit/docs/test_evidence.py::test_what_a_run_says_is_recorded_and_no_more"
RESULTS = """<testsuites><testsuite timestamp="2026-11-27T21:00:00">
<testcase classname="tests.unit.a.test_a" name="test_right[1]"/>
<testcase classname="tests.unit.a.test_a" name="test_right[2]"/>
<testcase classname="tests.unit.a.test_a" name="test_wrong[1]"/>
<testcase classname="tests.unit.a.test_a" name="test_wrong[2]"><failure message="no"/></testcase>
<testcase classname="tests.unit.a.test_a" name="test_not_here"><skipped message="no Kafka"/></testcase>
<testcase classname="tests.unit.a.test_a" name="test_part[1]"/>
<testcase classname="tests.unit.a.test_a" name="test_part[2]"><skipped message="no 3.14"/></testcase>
<testcase classname="tests.unit.b.test_a" name="test_another"/>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    return loaded_script(ROOT / "docs" / "evidence.py")


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_claim_is_in_the_readme_and_has_twins(evidence: ModuleType) -> None:
    readme = words((ROOT / "README.md").read_text())
    assert len(evidence.CLAIMS) > 10
    for claim in evidence.CLAIMS:
        assert claim.words in readme
        assert claim.held_by
        assert claim.twins


@pytest.mark.long
def test_every_test_is_collected_and_the_page_is_current(evidence: ModuleType) -> None:
    """Of other Pythons the cases of the installed wheel have other names, which the page does not show."""
    cases = evidence.collected(evidence.named())
    record = json.loads((ROOT / "docs" / "evidence.json").read_text())
    assert evidence.PAGE.read_text() == evidence.text(cases, record), "python docs/evidence.py"
    assert set(record) <= set(cases)


@pytest.mark.parametrize("gone", GONE)
def test_a_test_that_is_gone_is_found(evidence: ModuleType, gone: str) -> None:
    assert evidence.collected([HERE]) == {HERE: [""]}
    with pytest.raises(LookupError, match=re.escape(gone)):
        evidence.collected([HERE, gone])


def test_what_a_run_says_is_recorded_and_no_more(evidence: ModuleType, tmp_path: Path) -> None:
    junit = tmp_path / "results.xml"
    junit.write_text(RESULTS)
    names = ("right", "wrong", "not_here", "part", "never_ran")
    found = evidence.results_of(junit, [f"tests/unit/a/test_a.py::test_{name}" for name in names])
    assert {test.partition("::test_")[2]: each["result"] for test, each in found.items()} == {
        "right": "passed", "wrong": "FAILED", "not_here": "skipped", "part": "passed, 1 of 2 cases skipped",
    }  # fmt: skip
    assert {each["date"] for each in found.values()} == {"2026-11-27"}
    assert evidence.last_ran("tests/unit/a/test_a.py::test_never_ran", found) == "not recorded"


def test_chances_are_quoted_from_the_tests(evidence: ModuleType) -> None:
    seeded = "tests/unit/verify/games/test_lower_bound.py::test_right_mechanisms_are_not_flagged"
    assert evidence.chance(seeded) == "Each wrongly with probability at most 1e-6."
    assert "probability at most 1e-6" in evidence.chance(
        "tests/statistical/test_noise.py::test_mass_function"
    )
    assert evidence.chance(HERE) == "none stated"
