"""The routes of the API that keep or stream something: releases, live series, messages; `api` has the others.

Rules: a route returns a model of `server.models`, or says in its file why it returns bytes.
"""
