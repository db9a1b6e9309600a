"""Histograms by sparse-vector intervals ([HSV] Alg. 4), tuned. Begin with `sparse_vector`, then `hss`.

The forms as the paper prints them are in `mechanisms.papers`.
"""
