"""The routes of the API, one file for each kind of answer; `api` puts them together.

Rules: a route returns a model of `server.models`, or says in its file why it returns bytes.
"""
