"""The `derender` command: its flags, what they come to, and the service it starts.

Nobody imports it but `python -m gateway.cli`; a forked shard imports it again, so it stays light.
Begin with `settings` (what can be told), then `flags` and `resolving`; `main` runs the command.
"""
