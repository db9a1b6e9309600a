"""What a record is: its schema, conditions, groupings, amounts and own time; decoded, and laid out as columns.

Everything here is a function of the record alone. It knows no series and no mechanism. Begin with `schema`,
then `decoder`.
"""
