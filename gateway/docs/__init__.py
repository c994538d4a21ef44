"""The OpenAPI document and its page, made from the route table and from message structs.

Imported by `gateway.routes`. Begin with `openapi`.
"""
