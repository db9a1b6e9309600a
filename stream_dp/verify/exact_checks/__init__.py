"""Every composition rule of the accounting on small instances, certified against all adaptive adversaries.

`table` lists the instances by rule, one file per family holds them, and `instance.compare` compares a rule's result
with the exact worst case. `stream-dp audit --rules` prints all comparisons; the tests check the same instances
against independent numbers.
"""
