"""Writes `evidence.md`, each claim of the README with its tests: `python docs/evidence.py [--record RESULTS.xml]`.

Rules: nothing on the page is typed in but which tests belong to which claim. Chances are quoted from the tests' own
docstrings, twins are the cases that pytest collects, dates come from `evidence.json`, into which `--record` writes what
a JUnit file of pytest says. The tests compare the committed page with what this makes.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence.md"
RECORD = ROOT / "docs" / "evidence.json"
STATED = re.compile(r"probab|wrongly|\berrs\b|chance of", re.IGNORECASE)
NONE = "none stated"
SHOWN, LONGEST = 8, 60  # cases of a twin, and letters of a case
Record = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim: words of the README, the tests that hold it, and the tests with broken twins that must be caught."""

    words: str
    held_by: tuple[str, ...]
    twins: tuple[str, ...]


EXACT, GAMES = "tests/unit/verify/exact", "tests/unit/verify/games"
CHARGES = "tests/unit/pipeline/routing/test_live_series_charges.py"
TRACE = "tests/unit/operate/audit/test_trace_check.py"
CLAIMS = (
    Claim(
        "With or without the protected event, every set of outcomes is at most e^ε times as likely",
        (
            "tests/unit/verify/test_exact_checks.py::test_no_rule_is_exceeded_and_the_tight_ones_are_met",
            "tests/unit/verify/test_from_theory_rows.py::test_raw_neighbours_lose_what_plan_states_and_a_twin_loses_more",
            "tests/statistical/test_privacy_hss.py::test_hss_loses_no_more_than_it_claims",
            "tests/statistical/test_privacy_monitor.py::test_the_real_monitor_meets_its_claim",
            "tests/statistical/test_privacy_quantiles.py::test_no_small_neighbours_lose_more_than_the_claim",
            "tests/statistical/test_noise.py::test_mass_function",
        ),
        (
            "tests/unit/verify/test_exact_checks.py::test_less_than_exact_is_violated",
            "tests/statistical/test_privacy_hss.py::test_too_little_noise_under_replace_is_caught",
            "tests/statistical/test_privacy_monitor.py::test_what_is_broken_is_caught",
            "tests/statistical/test_privacy_thresholds.py::test_an_instance_that_goes_on_after_its_crossing_is_caught",
            f"{GAMES}/test_lower_bound.py::test_too_little_noise_is_caught",
        ),
    ),
    Claim(
        "choose each next question by the answers so far",
        (
            f"{EXACT}/test_time_rule.py::test_the_sum_alive_is_met_exactly_whatever_comes_and_goes",
            f"{TRACE}::test_the_engine_is_the_composition",
            f"{TRACE}::test_two_neighbouring_runs_are_a_pair_of_the_claimed_relation",
        ),
        (
            f"{EXACT}/test_time_rule.py::test_a_halt_that_frees_past_ticks_is_caught",
            f"{EXACT}/test_time_rule.py::test_a_start_before_the_freed_tick_is_caught",
            f"{GAMES}/test_game.py::test_the_adversary_beats_the_largest_delta",
            f"{TRACE}::test_an_engine_that_asks_before_it_updates_is_caught",
        ),
    ),
    Claim(
        "counters, histograms and alerts that never stop",
        (
            f"{EXACT}/test_time_rule.py::test_dashboards_one_after_the_other_cost_one",
            "tests/unit/accounting/test_subledgers.py::test_a_halt_frees_no_past_tick",
        ),
        (f"{EXACT}/test_time_rule.py::test_deltas_do_not_follow_the_rule",),
    ),
    Claim(
        "ε is derived from the mechanisms, shown by `stream-dp plan`, and charged to a ledger before anything runs",
        (
            "tests/unit/pipeline/test_derivations.py::test_three_series_under_replace",
            "tests/unit/accounting/test_rules.py::test_what_is_derived_is_what_is_claimed",
            "tests/unit/accounting/test_ledger.py::test_costs_round_up_and_budgets_round_down",
            f"{CHARGES}::test_the_charge_is_durable_before_the_mechanism_draws",
        ),
        (
            "tests/unit/accounting/test_rules.py::test_a_claim_that_does_not_follow_is_refused",
            "tests/unit/pipeline/test_builder.py::test_a_claim_that_is_not_derived_is_refused",
            "tests/unit/verify/exact_checks/test_live_instances.py::test_a_broken_ledger_is_violated",
        ),
    ),
    Claim(
        "refuses what does not fit",
        (
            "tests/unit/python/test_python_budget.py::test_a_refusal_changes_nothing",
            "tests/unit/accounting/test_ledger.py::test_a_refusal_changes_nothing_says_everything_and_a_smaller_ask_fits",
            f"{CHARGES}::test_a_refusal_leaves_state_ledger_and_randomness_as_they_were",
        ),
        (
            "tests/unit/live/test_broken_messages.py::test_the_twin_is_found",
            "tests/unit/accounting/test_basic_filter.py::test_a_ledger_that_frees_or_counts_no_delta_is_beaten",
        ),
    ),
    Claim(
        "all events that one user has in a day or for ever",
        (
            f"{EXACT}/test_user_events.py::test_a_count_keeps_its_epsilon_and_no_less_would_do",
            "tests/unit/verify/test_from_theory_people.py::test_a_user_loses_what_plan_states_and_no_less_would_do",
            "tests/unit/pipeline/routing/test_user_guard.py::"
            "test_a_user_changes_at_most_k_events_of_each_window_and_those_are_their_own",
            "tests/faults/test_user_caps.py::test_a_cap_holds_through_crashes_anywhere",
        ),
        (
            f"{EXACT}/test_user_events.py::test_a_count_that_forgets_the_group_rule_loses_k_times_its_epsilon",
            "tests/unit/pipeline/routing/test_user_guard.py::test_a_broken_guard_is_caught",
            "tests/faults/test_user_caps.py::test_a_memory_that_is_not_rewound_is_caught",
        ),
    ),
    Claim(
        "everything that is ever published",
        (
            "tests/unit/journal/test_reprs.py::test_a_repr_shows_nothing_private",
            "tests/unit/server/test_api.py::test_refusals_do_not_echo",
            "tests/unit/cli/test_logged.py::test_a_run_logs_its_phases_and_nothing_of_its_records",
            "tests/kafka/test_stream_pairs.py::test_one_more_event_changes_one_row_by_one_and_no_publication",
        ),
        (
            "tests/unit/journal/test_reprs.py::test_the_check_can_fail",
            "tests/unit/cli/test_run_traces.py::test_a_run_that_is_allowed_to_tell_more_is_caught",
            "tests/conformance/test_conformance_sources.py::test_a_broken_source_is_caught",
        ),
    ),
    Claim(
        "after crashes, replays and restarts",
        (
            "tests/unit/engine/recovery/test_recovery.py::test_crashes_anywhere",
            "tests/faults/test_crash_embedded.py::test_with_noise_every_release_has_one_version",
            "tests/faults/test_crash_embedded.py::test_nothing_is_lost_or_counted_twice_over_random_kills",
            "tests/kafka/test_crash_kafka.py::test_every_release_has_one_version_over_kills_at_fixed_points",
            "tests/kafka/test_crash_kafka.py::test_nothing_is_lost_or_counted_twice_over_random_kills",
        ),
        (
            "tests/faults/test_checker.py::test_it_finds_an_engine_that_publishes_before_it_commits",
            "tests/faults/test_checker.py::test_it_finds_an_engine_that_loses_records_at_a_restart",
            "tests/faults/test_checker.py::test_it_finds_what_was_doctored",
        ),
    ),
    Claim(
        "4 stopped to keep the guarantee",
        (
            "tests/faults/test_journals_refused.py::test_a_journal_restored_from_an_older_copy",
            "tests/faults/test_journals_refused.py::test_a_journal_that_is_damaged_or_belongs_elsewhere",
            "tests/unit/files/test_highwater.py::test_an_empty_journal_is_refused_once_it_was_not_empty",
        ),
        (
            "tests/unit/files/test_memory.py::test_a_broken_journal_is_caught",
            "tests/kafka/test_zombie_engines.py::test_a_sleeper_without_the_fence_is_caught",
        ),
    ),
    Claim(
        "You can use any Kafka producer",
        (
            "tests/faults/test_bad_records.py::test_a_thousand_junk_records_are_a_thousand_dead_letters",
            "tests/unit/engine/ticks/test_tick_assembler.py::test_ticks_depend_on_the_records_alone",
            "tests/kafka/test_hostile_batches.py::test_what_a_broker_takes_and_how_it_is_counted",
        ),
        (
            "tests/unit/engine/ticks/test_tick_assembler.py::test_a_broken_twin_is_caught",
            "tests/unit/journal/test_dead_letters.py::test_broken_twins_are_caught",
        ),
    ),
    Claim(
        "With probability `confidence`, the true value lies within `band` of `value`",
        (
            "tests/statistical/test_band_coverage.py::test_bands_cover_and_are_tight",
            "tests/statistical/test_band_worst_case.py::test_a_burst_after_long_silence_is_covered",
        ),
        (
            "tests/statistical/test_band_coverage.py::test_a_part_of_a_bound_does_not_cover",
            "tests/statistical/test_band_worst_case.py::test_without_the_long_lived_thresholds_it_is_not",
        ),
    ),
    Claim(
        "attack the mechanisms; `audit --rules` certifies the composition rules; `audit --trace FILE` checks",
        (
            "tests/unit/cli/test_audit.py::test_a_right_pipeline_passes",
            f"{GAMES}/test_lower_bound.py::test_right_mechanisms_are_not_flagged",
        ),
        (
            "tests/unit/cli/test_audit.py::test_a_broken_sampler_is_exit_4",
            f"{GAMES}/test_together.py::test_booking_the_maximum_for_the_sum_is_refuted",
            f"{TRACE}::test_an_altered_journal_is_caught",
        ),
    ),
    Claim(
        "from a wheel that `make dist` builds",
        (
            "tests/deploy/test_installed.py::test_the_demo_runs_from_the_wheel",
            "tests/deploy/test_dist.py::test_another_clone_another_day_by_another_person_has_the_same_bytes",
        ),
        ("tests/deploy/test_dist.py::test_an_sdist_as_setuptools_makes_it_tells_when_and_by_whom",),
    ),
)
HEAD = """# Evidence

For whoever must decide whether to believe the [README](../README.md): each of its claims, the tests that hold it, how
often such a test may be wrong by chance, which broken twins must be caught, and when all that last ran.
`python docs/evidence.py` makes this page; a test checks that it is current and that pytest collects all that it names.

- *By chance*: how often the test would reject something right, in the words of the test itself. *none stated* has one
  of two reasons. Either the test compares exact values, laws or bytes, so there is no chance in it. Or its noise is the
  same in every run ([Noise](testing.md#noise)), so what passed once does not fail by luck the next time; chance lies
  only in the seeds that were once chosen.
- *Twins* tell of the other error, that a test accepts something broken: the same check on something broken on purpose,
  which passes only if the fault is caught. In brackets are the names of the cases as pytest has them (`[1, 3]`: two
  cases, with these parameters); of more than eight their number and the first eight names.
- Claims quote the README. Where a file grants a delta, read “at most e^ε times as likely, plus δ”
  ([the statement](security.md#the-statement)).
- *Last ran* shows only what somebody recorded of a run. `python docs/evidence.py --record RESULTS.xml` records a JUnit
  file of pytest; `make test` and `make test-all` write `.venv/results.xml`, and `.ci/run` tells at its end how many of
  these tests passed in its own run. *not recorded*: nobody has recorded a run of it.

A passed test, together with its twins, shows this much: a fault like those of its twins would make the test fail. It
proves no more than that. The guarantee follows from the derivation that `stream-dp plan --proof` prints, under
[what it rests on](security.md#what-it-rests-on). No test can hold what is said of trust in the operator and the machine
([what keeps the claims](security.md#what-keeps-the-claims-of-this-page)).
"""


def named(claims: Iterable[Claim] = CLAIMS) -> list[str]:
    """Return all tests that are named, each once."""
    return list(dict.fromkeys(test for claim in claims for test in (*claim.held_by, *claim.twins)))


def collected(tests: Sequence[str]) -> dict[str, list[str]]:
    """Return of each test its cases as pytest collects them ([""] of a test without parameters).

    Raises LookupError for tests that are not collected.
    """
    files = sorted({test.partition("::")[0] for test in tests})
    there = [file for file in files if (ROOT / file).exists()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-o",
        "addopts=--import-mode=importlib",
        *there,
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    cases: dict[str, list[str]] = {test: [] for test in tests}
    for line in ended.stdout.splitlines():
        test, bracket, case = line.partition("[")
        if test in cases:
            cases[test].append(case.removesuffix("]") if bracket else "")
    if missing := [test for test, found in cases.items() if not found]:
        raise LookupError(
            f"pytest does not collect {', '.join(missing)}\n{ended.stderr or ended.stdout[-500:]}"
        )
    return cases


@cache
def _parsed(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def chance(test: str) -> str:
    """Return the sentences of the docstrings of a test, or else of its module, that state a chance."""
    file, _, name = test.partition("::")
    module = _parsed(file)
    (function,) = (node for node in module.body if getattr(node, "name", "") == name)
    for node in (function, module):
        text = " ".join((ast.get_docstring(node) or "").split())  # type: ignore[arg-type]
        sentences = re.split(r"(?<=[.;!?]) (?=[A-Z])", text)
        if stated := [each for each in sentences if STATED.search(each)]:
            return " ".join(stated)
    return NONE


def last_ran(test: str, record: Record) -> str:
    known = record.get(test)
    return f"{known['date']}, {known['result']}" if known else "not recorded"


def _twin(test: str, cases: Sequence[str], record: Record) -> str:
    names = [case for case in cases if case and "<" not in case]
    shown = [name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in names[:SHOWN]]
    many = f"{len(cases)} cases" if len(cases) > max(1, len(shown)) else ""
    inside = ", ".join([*filter(None, [many]), *shown]).replace("|", "\\|")
    stated = "" if chance(test) == NONE else f" {chance(test)}"
    return f"- `{test}`{f' [{inside}]' if inside else ''}: {last_ran(test, record)}.{stated}"


def section(claim: Claim, cases: Mapping[str, Sequence[str]], record: Record) -> str:
    rows = [
        f"| `{test}` | {len(cases[test])} | {chance(test)} | {last_ran(test, record)} |"
        for test in claim.held_by
    ]
    return "\n".join([
        f"## “{claim.words}”", "",
        "| test | cases | by chance | last ran |", "|---|---|---|---|", *rows, "",
        "Twins that must be caught:", "",
        *(_twin(test, cases[test], record) for test in claim.twins),
    ])  # fmt: skip


def text(cases: Mapping[str, Sequence[str]], record: Record) -> str:
    return "\n\n".join([HEAD.rstrip(), *(section(claim, cases, record) for claim in CLAIMS)]) + "\n"


def results_of(junit: Path, tests: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return date and result of each of these tests that a JUnit file of pytest has.

    A test passed if every case that ran passed and at least one ran.
    """
    suites = list(ET.parse(junit).getroot().iter("testsuite"))  # noqa: S314 - our own pytest wrote it
    wanted = {test.replace(".py::", ".").replace("/", "."): test for test in tests}
    found: dict[str, dict[str, Any]] = {}
    for suite in suites:
        for case in suite.iter("testcase"):
            name = f"{case.get('classname')}.{str(case.get('name')).partition('[')[0]}"
            if name in wanted:
                ends = found.setdefault(
                    wanted[name], {"date": str(suite.get("timestamp"))[:10], "ends": []}
                )
                ends["ends"].append(next((end.tag for end in case if end.tag in _ENDS), "passed"))
    return {
        test: {"date": each["date"], "result": _result(each["ends"])}
        for test, each in found.items()
    }


_ENDS = ("failure", "error", "skipped")


def _result(ends: Sequence[str]) -> str:
    if "failure" in ends or "error" in ends:
        return "FAILED"
    skipped, passed = ends.count("skipped"), ends.count("passed")
    if not passed:
        return "skipped"
    return f"passed, {skipped} of {len(ends)} cases skipped" if skipped else "passed"


def main(arguments: Sequence[str]) -> None:
    tests = named()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if arguments:
        option, junit = arguments
        if option != "--record":
            raise SystemExit(f"python {sys.argv[0]} [--record RESULTS.xml]")
        ran = results_of(Path(junit), tests)
        record = {test: record[test] for test in tests if test in record} | ran
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")
        passed = sum(each["result"].startswith("passed") for each in ran.values())
        sys.stdout.write(
            f"docs/evidence.md: of {len(tests)} tests {len(ran)} ran, {passed} passed\n"
        )
    PAGE.write_text(text(collected(tests), record), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
