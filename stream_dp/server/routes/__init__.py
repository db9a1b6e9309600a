"""The routes of the API that keep or stream something: releases, live series, messages; `api` has the others.

Rules: a route returns a model of `server.models`, or its file explains why it returns bytes.
"""
