"""What the routes work with: settings, the model that is served, and one HTTP request.

Imported by the routes and the front door. Begin with `services` and `served_model`.
"""
