"""The gateway's side of token-in / token-out engines: whom to ask, asking, and reading the answer.

One `Engines` object serves a gateway process; it belongs to that process's event loop.
"""
