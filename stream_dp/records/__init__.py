"""What a pipeline file says of its records: source and clock, schema, who is protected, conditions, groupings.

A record is decoded here, and laid out as columns: a function of the record alone. It knows no series and no
mechanism. Begin with `schema`, then `decoder`.
"""
