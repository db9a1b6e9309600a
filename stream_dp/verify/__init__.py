"""Games against mechanisms, exact worst cases of small instances, and running counterexamples: evidence for and
against a claim.

This package knows mechanisms and the accounting, and no engine. Begin with `game`, then `exact.exact_delta`.
"""
