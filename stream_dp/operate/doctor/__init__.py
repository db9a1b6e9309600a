"""The checks of `stream-dp doctor`: the cluster, rights, topics, clocks, and this machine. Nothing is changed.

Rules: each check is a function that returns findings. A check changes nothing, except that `--write` lets it write
records into the doctor's own topic. No finding holds an offset, a lag or a count of records.
"""
