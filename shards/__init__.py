"""Processes: one warmed parent, shards forked from it, and the side that calls them.

Calling side (light; in the gateway and the supervisor): `channel`, `entry`, `logs`, `link`, `pool`,
`signals`, `children`, `supervisor`, `ending`. Child side (heavy; in the warmed parent and its
shards only): `model`, `warm`, `streams`, `loop`. The two meet in `channel`, `logs`, `entry` and
`core.protocol.wire`.
"""
