"""What an operator can see at `/metrics`, read at scrape time where that costs a request nothing.

Imported by `gateway.services`. Begin with `metrics`.
"""
