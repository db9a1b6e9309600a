"""What the HTTP API answers, one model for each answer; FastAPI writes them and the OpenAPI document describes them.

Rules: an answer holds what its model says and nothing else. `answer` has the base of all models, `published` the
releases, `configured` what is public of a pipeline, `asked` live series and messages.
"""
