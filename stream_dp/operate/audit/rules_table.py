"""Every composition rule against the exact worst case of small instances, and naive admission beside it."""

import math
from dataclasses import asdict
from typing import Any

from stream_dp.accounting.derive import RULES
from stream_dp.core.guarantee import NAMES, parameters
from stream_dp.core.wording import Progress, unseen
from stream_dp.errors import FailClosed
from stream_dp.verify.counterexamples import NaiveBook, books
from stream_dp.verify.exact_checks.table import RuleFinding, constructed, findings
from stream_dp.verify.untrue_entries import untrue_entries


def rules_json(progress: Progress = unseen) -> dict[str, Any]:
    """Return the findings and the counterexamples as plain values; takes under a minute.

    `progress` receives the number of checked rules and of all rules.
    """
    checked: list[RuleFinding] = []
    rules = sum(map(len, RULES.values()))
    for finding in findings():
        checked.append(finding)
        done = len({before.rule for before in checked}) - 1
        progress("Checking rules against every adaptive adversary", done, rules, "rule")
    progress("Computing mechanisms from randomized response")
    return {
        "violated": any(finding.violated for finding in checked),
        "rules": [_finding_json(finding) for finding in checked],
        "constructions": [asdict(construction) for construction in constructed()],
        "counterexamples": [_book_json(book) for book in (*books(), *untrue_entries())],
    }


def require_certified(table: dict[str, Any]) -> None:
    """Raise FailClosed if an adversary exceeds the amount that a rule books; `table` comes from `rules_json`."""
    violated = [
        f"{rule['rule']} ({rule['source']})"
        for rule in table["rules"]
        if "compared" in rule and not rule["certified"]
    ]
    violated += [
        f"the reduction to randomized response of {case['words']} ([HSV] Lemma 4.7, [Lyu] Thm 3)"
        for case in table["constructions"]
        if not (case["decomposed"] and case["equal"])
    ]
    if violated:
        raise FailClosed(
            "an adversary exceeds the guarantee that the ledger charges by the rule "
            f"{', '.join(dict.fromkeys(violated))}. Do not rely on guarantees that this version "
            "of the code derives, and report this"
        )


def _finding_json(finding: RuleFinding) -> dict[str, Any]:
    head = {"rule": finding.rule, "source": finding.source}
    if finding.booked is None or finding.compared is None:
        return {**head, "certified": False, "why": finding.why}
    compared = finding.compared
    return {
        **head,
        "certified": not finding.violated,
        "instance": finding.words,
        "booked": {
            "measure": NAMES[type(finding.booked)],
            **{name: float(value) for name, value in parameters(finding.booked).items()},
        },
        "compared": {
            "quantity": compared.quantity,
            "at": compared.at,
            "booked": float(compared.booked),
            "exact": "infinite" if math.isinf(compared.exact) else float(compared.exact),
            "verdict": compared.verdict,
        },
    }


def _book_json(book: NaiveBook) -> dict[str, Any]:
    return {
        "books": book.title, "source": book.source, "quantity": book.quantity, "promised": float(book.promised),
        "exact": float(book.exact), "adversary": book.adversary, "ours": book.ours,
    }  # fmt: skip
