use osb_api::{
    egress as wire, headers,
    lifecycle::{NetworkPolicy, NetworkRule},
};

use super::{
    api::Api,
    operation::{Operation, delete, get, list, list_of_text, one, patch, post, put, text},
};

pub(crate) fn api() -> Api {
    let mut operations = vec![
        get("healthz", "/healthz", "Whether the policy is enforced")
            .tag("policy")
            .open()
            .answers_as("text/plain", 200, "It is.", text())
            .errors(&[404, 501, 503]),
    ];
    operations.extend(policy());
    operations.extend(vault());
    Api {
        name: "egress",
        title: "OpenSandbox egress API",
        description: "What one sandbox may reach, and which secrets are put into its requests \
                      after they have left it.",
        server: (
            "http://127.0.0.1:8080/v1/sandboxes/{sandboxId}/proxy/18080",
            "The endpoint that the lifecycle API names for port 18080.",
        ),
        key: (headers::EGRESS_TOKEN, "The sandbox's own token, from the endpoint's headers."),
        tags: vec![
            ("policy", "Destinations, allowed and denied."),
            ("vault", "Secrets that never enter the sandbox."),
        ],
        operations,
    }
}

fn policy() -> Vec<Operation> {
    let path = "/policy";
    let replace = "Replace the policy";
    [
        get("getPolicy", path, "The policy as it is"),
        post("resetPolicy", path, replace)
            .describe("Without a body, nothing may be reached any more.")
            .optional_body(one::<NetworkPolicy>())
            .errors(&[413]),
        put("replacePolicy", path, replace).body(one::<NetworkPolicy>()).errors(&[413]),
        patch("mergeRules", path, "Add rules, or replace those with the same target")
            .body(list::<NetworkRule>())
            .errors(&[413]),
        delete("deleteRules", path, "Take away the rules of these targets").body(list_of_text()),
    ]
    .map(|operation| {
        operation
            .tag("policy")
            .answers(200, "How it stands now.", one::<wire::PolicyStatus>())
            .errors(&[400, 401, 404, 409, 500, 501])
    })
    .into()
}

fn vault() -> Vec<Operation> {
    let path = "/credential-vault";
    [
        post("createVault", path, "Make the vault")
            .body(one::<wire::CreateVaultRequest>())
            .answers(201, "What can be read of it.", one::<wire::VaultState>())
            .errors(&[400, 409, 412, 426]),
        get("getVault", path, "What can be read of the vault").answers(
            200,
            "Names and rules, no secret.",
            one::<wire::VaultState>(),
        ),
        patch("patchVault", path, "Change the vault, all at once or not at all")
            .body(one::<wire::PatchVaultRequest>())
            .answers(200, "What can be read of it now.", one::<wire::VaultState>())
            .errors(&[400, 409, 412, 426]),
        delete("deleteVault", path, "Forget the vault and its secrets")
            .empty(204, "Forgotten.")
            .errors(&[412, 426]),
        get("listCredentials", "/credential-vault/credentials", "List credentials by name")
            .answers(200, "Names, no secret.", one::<wire::CredentialList>()),
        get("getCredential", "/credential-vault/credentials/{name}", "Describe a credential")
            .answers(200, "Its name, no secret.", one::<wire::CredentialSummary>()),
        get("listBindings", "/credential-vault/bindings", "List bindings by name").answers(
            200,
            "Where which credential is used.",
            one::<wire::BindingList>(),
        ),
        get("getBinding", "/credential-vault/bindings/{name}", "Describe a binding").answers(
            200,
            "Where which credential is used.",
            one::<wire::BindingSummary>(),
        ),
    ]
    .map(|operation| operation.tag("vault").errors(&[401, 404]))
    .into()
}
