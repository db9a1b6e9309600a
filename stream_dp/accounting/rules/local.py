"""Local protocols ([HSV] Thm 8.7, Cor 8.8): users answer a server, and the server's view is private.

A user's data set is its mechanism's first message and all later pairs are equal, so the users are first-pair
consistent; at most k of them hold different data sets. Then Thm 5.14 prices k users, whatever their total number.
The server sees answers only, which is the destination and response property (Claim 8.4).
"""

from stream_dp.accounting.rules.first_pair import first_pair
from stream_dp.accounting.rules.rule import Premises, Rule, all_finite
from stream_dp.accounting.situations import Local, Parallel
from stream_dp.core.derivation import Condition
from stream_dp.core.guarantee import Measure


def _parallel(premises: Premises, situation: Local) -> Parallel:
    one = len(premises) == 1
    creations = (situation.users,) if one else (1,) * len(premises)
    return Parallel(
        situation.subject, situation.touched, creations, situation.delta, situation.static
    )


def _conditions(premises: Premises, situation: Local) -> tuple[Condition, ...]:
    counted = situation.users >= 1 and len(premises) in (1, situation.users)
    users = Condition(
        "users",
        counted,
        f"{situation.users} user(s), {len(premises)} mechanism(s)"
        + (", identical procedures" if len(premises) == 1 else ""),
    )
    if not counted:
        return (users,)
    return users, *first_pair.conditions(premises, _parallel(premises, situation))


def _measure(premises: Premises, situation: Local) -> Measure:
    return first_pair.measure(premises, _parallel(premises, situation))


local = Rule("local protocol", "[HSV] Thm 8.7, Cor 8.8", _conditions, _measure, finite=all_finite)
