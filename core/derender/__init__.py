"""Derender calls: an engine's words and what a client carries into an answer and a state.

Imported by `core.answerer` alone. Begin with `one_shot` for whole answers, `window_answers` for
streams without a parser, and `live.answer` for those with one.
"""
