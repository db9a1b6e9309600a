"""The page: an HTTP and SSE server of published releases and public configuration, and its browser
client.

`view` holds what may be known, `models` say what an answer holds, `routes` and `broadcast` answer, `api` puts them
together behind the `shield`, `server` binds that to a port. `docs` shows the OpenAPI document in a browser.
`view`, `models` and `live_series` need no extra; the rest needs `serve`.
"""
