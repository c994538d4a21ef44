"""Locust users, which drive any derender server over HTTP.

Only locust loads them; they import nothing of the project. Begin with `users`.
"""
