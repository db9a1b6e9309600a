"""The page: an HTTP and SSE server of published releases and public configuration.

It knows no engine and no journal. Begin with `view`.
"""
