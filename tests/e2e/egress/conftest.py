"""A server whose whole world is a small Internet in namespaces of its own."""

from fixtures import log, policy, server_at_home, world

__all__ = ["log", "policy", "server_at_home", "world"]
