"""HTTP itself: bodies, answers, errors, keys, deadlines, and what a row of the route table is.

Imported by every other room of the gateway; imports light `core` alone. Begin with `route` and
`errors`.
"""
