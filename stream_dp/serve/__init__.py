"""The page: an HTTP and SSE server of published releases and public configuration, and its browser
client.

`view` holds what may be known, `stream` and `api` answer with it, `server` binds it to a port.
`view` needs nothing but msgspec; the rest needs the extra `serve`.
"""
