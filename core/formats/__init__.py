"""APIs: each is one object that reads a request's rules and writes its answer, whole or by events.

Imported by `core.derender` and `core.front`; imports `core.text` and below. Begin with `format`,
which says what a format does; `core.front.formats` names them all.
"""
