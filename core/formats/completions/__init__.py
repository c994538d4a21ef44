"""Text completions. Imported by `core.front.formats` and the completion calls of derender.

Begin with `format`: `events` writes a stream of the front door, `whole` an answer in one piece,
`chunks` what derender answers to one chunk.
"""
