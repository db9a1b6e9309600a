"""What `stream-dp doctor` looks at: the cluster, rights, topics, clocks, and this machine. Nothing is mended here.

Rules: each check is a function that returns findings. It changes nothing, but for the records that `--write` asks for.
No finding holds an offset, a lag or a count of records.
"""
