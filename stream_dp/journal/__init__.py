"""What becomes durable and what becomes public: commits, releases and answers as bytes, dead letters, keys.

It knows no engine and no adapter: it writes and reads forms, and seals them. Begin with `commit`, then
`release`.
"""
