"""A server whose whole world is a small Internet in namespaces of its own."""

from clients import client, hosts, provider, shopper
from company import authority, echo
from fixtures import log, policy, server_at_home, world

__all__ = [
    "authority",
    "client",
    "echo",
    "hosts",
    "log",
    "policy",
    "provider",
    "server_at_home",
    "shopper",
    "world",
]
