"""Every route of the gateway: the table that serves, refuses and documents."""

from gateway.routes import derender, docs, front_door, models, ops, render

_DOCUMENTED = (
    *front_door.ROUTES,
    *derender.ROUTES,
    *render.ROUTES,
    *models.ROUTES,
    *ops.ROUTES,
)
ROUTES = (*_DOCUMENTED, *docs.routes(_DOCUMENTED))
"""In the order of the document."""
