"""A server whose whole world is a small Internet in namespaces of its own."""

from clients import client, hosts, provider, shopper
from fixtures import log, policy, server_at_home, world

__all__ = ["client", "hosts", "log", "policy", "provider", "server_at_home", "shopper", "world"]
