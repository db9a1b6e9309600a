"""Verification functions ([HSV] Def 3.3): which pairs of message sequences an adversary may send.

| definition | place |
|---|---|
| event, user: one event or one user's events differ | `core.row_relations`: `EventRows`, `event`, `user` |
| rows as messages: `Update | Query` | `core.row_relations.Stream` |
| identical; conjunction | `core.relation.Identical`, `core.relation.All` |
| a static data set, one message only (5.12) | `streams.StaticDataSet`, `streams.single_pair` |
| suitable sequences (4.5) | `pair_conditions.Suitable` |
| 4.9, 4.11, 5.1, 5.3, 5.8, 5.13, 12.2, 13, 14 | `pair_conditions`, a function for each |
| local protocols (8.5) | `verify.exact_checks.protocols.LocalMessages` |
"""
