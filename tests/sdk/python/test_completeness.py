"""Every public method that the published clients have for the daemon, code, the vault and the policy
has been called by a test.

This runs last and asks the packages themselves what they offer, so a method that a newer client
brings fails here until it has a test. It needs the whole directory: alone it cannot succeed.
"""

from __future__ import annotations

import pytest
from clients import CALLED, KINDS, Box, public_methods


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "service",
    ["commands", "files", "files as another user", "metrics", "vault", "codes", "interpreter"],
)
def test_no_method_is_without_a_test(server, kind: str, service: str):
    box = Box(server, kind, "direct")
    try:
        offered = public_methods(getattr(box, service.split()[0]).service)
    finally:
        box.close()
    if service == "files as another user":
        # Making the client for the other user is a method of the plain one.
        offered.remove("with_identity")
    if service == "vault":
        # One service of the client has both. What is about the policy, the sandbox itself offers.
        offered -= {"get_policy", "patch_rules", "delete_rules"}
    called = {method for who, what, method in CALLED if (who, what) == (kind, service)}
    assert len(offered) > 0
    assert offered - called == set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "method",
    ["files_with_identity", "get_metrics", "is_healthy"]
    + ["get_egress_policy", "patch_egress_rules", "delete_egress_rules"],
)
def test_what_the_sandbox_itself_offers(kind: str, method: str):
    assert (kind, "sandbox", method) in CALLED
