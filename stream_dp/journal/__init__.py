"""What becomes durable and what becomes public: commits, releases and answers as bytes, dead letters, keys.

It writes and reads forms, and seals them; it knows no engine and no adapter. Begin with `commit`, then `release`.
"""
