"""Verification functions ([HSV] Def 3.3): which pairs of message sequences an adversary may send.

| definition | here |
|---|---|
| event, user: one event or one user's events differ | `rows.EventRows`, `rows.event`, `rows.user` |
| rows(L0, Linf); ~_H, ~_S, ~_C, ~_L of section 7 | `rows.StepRows`, `histogram` |
| rows as messages: `Update | Query` | `rows.Stream` |
| identical; conjunction | `base.Identical`, `base.All` |
| a static data set, one message only (5.12) | `static.StaticDataSet`, `static.single_pair` |
| suitable sequences (4.5) | `suitable.Suitable` |
| 4.9, 4.11, 5.1, 5.3, 5.8, 5.13, 12.2, 13, 14 | `compositions`, each the list of its numbered `conditions` |
| local protocols (8.5) | `local.LocalMessages` |
"""
