"""What the engine remembers of users and identifiers, by keyed hash, until their public window ends.

Nothing here is evicted under memory pressure. Begin with `user_memory`.
"""
