"""Routes for releases, live series and messages; `api` has the others.

Rules: a route returns a model of `server.models`, or its file explains why it returns bytes.
"""
