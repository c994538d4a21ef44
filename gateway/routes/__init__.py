"""What is served where: a module per group, and `table`, which serves, refuses and documents.

Imported by `gateway.app` alone. To add an endpoint, begin with `table`.
"""
