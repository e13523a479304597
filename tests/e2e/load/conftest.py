"""A server whose whole world is a small Internet in namespaces of its own."""

from fixtures import server_at_home, world

__all__ = ["server_at_home", "world"]
