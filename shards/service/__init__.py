"""The supervisor's side: starts the processes, replaces what dies, ends all in order.

Imported by `gateway.cli`. Begin with `supervisor`; `processes` has a class for each kind of
process, `shutdown` the steps of the end.
"""
