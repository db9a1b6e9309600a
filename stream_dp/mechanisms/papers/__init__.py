"""Mechanisms as the papers print them: [HSV] Alg. 3 and 4, multi-dimensional SVT, local protocols.

The tuned ones, which pipelines run, are beside this folder; `method: paper_hss` runs `paper_hss`.
"""
