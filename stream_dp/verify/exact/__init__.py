"""The exact privacy of finite mechanisms against every adaptive adversary.

Begin with `finite`, then `exact_delta`.
"""
