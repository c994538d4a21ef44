"""`make demo`: the front door between the `openai` client and the scripted engine.

Nobody imports it; it imports `servers` and `model`. Begin with `__main__`, then `round_trips`.
"""
