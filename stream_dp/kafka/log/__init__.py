"""The topics of a pipeline's own: journal, lease, releases, questions, answers, clock. Begin with `lease`, then
`journal`.
"""
