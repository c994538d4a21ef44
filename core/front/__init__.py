"""The front door's half of the work in a shard: an engine's tokens into a whole OpenAI answer.

`door` holds what is being served, `serving` one request of it: `choice` decodes, `chat` and
`completion` write server-sent events, `collecting` and `whole` answers in one piece. `journal` is
what a stream is opened anew from. Unlike derender, no state travels: the prompt, the request and
the parsers stay in the shard from the first token to the last.
"""
