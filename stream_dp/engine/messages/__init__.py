"""Messages of analysts: accepted once, executed at a cut, answered in public. Begin with `conversation`, then
`answering`.

What a message asks for is derived by a port (`engine.proposals`), so that nothing here knows a statistic.
"""
