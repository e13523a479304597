use osb_api::{egress, headers, lifecycle as wire};

use super::{
    api::Api,
    images,
    operation::{Operation, delete, get, list, list_of_text, merge_patch, one, patch, post, put},
};

pub(crate) fn api() -> Api {
    let mut operations = service();
    operations.extend(sandboxes());
    operations.extend(endpoints());
    operations.extend(proxy());
    operations.extend(snapshots());
    operations.extend(volumes());
    operations.extend(images::operations());
    operations.extend(network_policy());
    operations.push(no_policy());
    operations.push(egress_log());
    operations.extend(pools());
    operations.extend(templates());
    Api {
        name: "lifecycle",
        title: "OpenSandbox lifecycle API",
        description: "Make, find, keep and end sandboxes. Every path exists with and without the \
                      prefix `/v1`, except where it says otherwise. Every answer carries \
                      `X-Request-ID`; optional fields that are absent are left out, never null.",
        // Relative, because every server hands this document out.
        server: ("/v1", "The server that this comes from; by default http://127.0.0.1:8080."),
        key: (headers::API_KEY, "The server's API key."),
        tags: vec![
            ("sandboxes", "Sandboxes and their lives."),
            ("endpoints", "Ways into a sandbox."),
            ("snapshots", "Files of sandboxes, kept."),
            ("volumes", "Storage that is kept under names."),
            ("images", "Images on the server's machine."),
            ("network", "What a sandbox may reach."),
            ("pools", "Sandboxes that are started before anybody needs them."),
            ("templates", "Sandboxes that are prepared once and started many times."),
            ("service", "The server itself."),
        ],
        operations,
    }
}

fn service() -> Vec<Operation> {
    vec![
        get("health", "/health", "Whether the server answers")
            .describe("Only without the prefix `/v1`.")
            .at_root()
            .tag("service")
            .open()
            .answers(200, "It does.", one::<wire::Health>()),
        get("version", "/version", "The server's version")
            .describe("Only without the prefix `/v1`.")
            .at_root()
            .tag("service")
            .open()
            .answers(200, "The version.", one::<wire::Version>()),
        post("recordMetricsEvent", "/metrics/events", "Take a client's measurement")
            .describe("Only with the prefix `/v1`. Clients send it after every create.")
            .tag("service")
            .body(one::<wire::MetricsEvent>())
            .empty(204, "Taken.")
            .errors(&[400, 401]),
    ]
}

fn sandboxes() -> Vec<Operation> {
    vec![
        post("createSandbox", "/sandboxes", "Make a sandbox")
            .describe(
                "Answers once it runs; one that needs longer than 25 seconds is answered as \
                 `Pending`. A sandbox that cannot be started leaves nothing behind, and neither \
                 does one whose client went away.",
            )
            .tag("sandboxes")
            .body(one::<wire::CreateSandboxRequest>())
            .answers_with_location(202, "The sandbox.", one::<wire::CreateSandboxResponse>())
            .errors(&[400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503]),
        get("listSandboxes", "/sandboxes", "List sandboxes, newest first")
            .tag("sandboxes")
            .query::<wire::ListSandboxesQuery>()
            .answers(200, "One page of them.", one::<wire::ListSandboxesResponse>())
            .errors(&[400, 401, 500]),
        get("getSandbox", "/sandboxes/{sandboxId}", "Describe a sandbox")
            .tag("sandboxes")
            .answers(200, "The sandbox.", one::<wire::Sandbox>())
            .errors(&[401, 403, 404, 500]),
        delete("deleteSandbox", "/sandboxes/{sandboxId}", "End a sandbox and remove its traces")
            .describe(
                "Answers once it is gone. A removal that fails is tried again until it succeeds; \
                 until then the sandbox is `Stopping`.",
            )
            .tag("sandboxes")
            .empty(204, "Nothing of it is left.")
            .errors(&[401, 403, 404, 409, 500]),
        patch("patchMetadata", "/sandboxes/{sandboxId}/metadata", "Change metadata")
            .describe("A value sets its key, null takes it away, other keys stay.")
            .tag("sandboxes")
            .body(merge_patch())
            .answers(200, "The sandbox as it now is.", one::<wire::Sandbox>())
            .errors(&[400, 401, 403, 404, 409, 500]),
        get("getSandboxUsage", "/sandboxes/{sandboxId}/usage", "What it uses")
            .describe(
                "Of a sandbox that runs or is paused. An extension of this server: other servers \
                 do not have it.",
            )
            .tag("sandboxes")
            .answers(200, "What it uses now.", one::<wire::SandboxUsage>())
            .errors(&[401, 403, 404, 409, 500, 501]),
        post("renewExpiration", "/sandboxes/{sandboxId}/renew-expiration", "Move the expiry")
            .tag("sandboxes")
            .body(one::<wire::RenewExpirationRequest>())
            .answers(200, "When it ends now.", one::<wire::RenewExpirationResponse>())
            .errors(&[400, 401, 403, 404, 409, 500]),
        post("pauseSandbox", "/sandboxes/{sandboxId}/pause", "Stop it and keep its memory")
            .describe("Every process stops; the time until the expiry does not.")
            .tag("sandboxes")
            .empty(202, "It stops.")
            .errors(&[401, 403, 404, 409, 500, 501]),
        post("resumeSandbox", "/sandboxes/{sandboxId}/resume", "Let it go on")
            .tag("sandboxes")
            .empty(202, "It goes on.")
            .errors(&[401, 403, 404, 409, 500, 501]),
    ]
}

fn endpoints() -> Vec<Operation> {
    vec![
        get("getEndpoint", "/sandboxes/{sandboxId}/endpoints/{port}", "Where a port is reached")
            .describe(
                "Says what calls to the port must carry, too. All ports are reached through this \
                 server. Nothing is checked: the port may get its listener later. With `expires` \
                 the endpoint itself opens the port until then, without the token of the sandbox; \
                 execd and the egress API ask for theirs all the same. For a sandbox \
                 from a template the answer carries `OPEN-SANDBOX-ORIGIN: template`.",
            )
            .tag("endpoints")
            .query::<wire::EndpointQuery>()
            .answers(200, "The endpoint.", one::<wire::Endpoint>())
            .errors(&[400, 401, 403, 404, 500]),
    ]
}

fn proxy() -> Vec<Operation> {
    let path = "/sandboxes/{sandboxId}/proxy/{port}/{path}";
    let text = "The request goes to the port as it is, without the caller's key, and the answer \
                comes back as it is, streamed both ways. WebSocket upgrades pass. A port that is \
                signed has its signature behind it, as a signed endpoint says. A sandbox that is \
                paused because nobody used it is resumed.";
    [
        get("proxyGet", path, "Ask a service in the sandbox"),
        post("proxyPost", path, "Ask a service in the sandbox"),
        put("proxyPut", path, "Ask a service in the sandbox"),
        patch("proxyPatch", path, "Ask a service in the sandbox"),
        delete("proxyDelete", path, "Ask a service in the sandbox"),
    ]
    .map(|operation| {
        operation
            .describe(text)
            .tag("endpoints")
            .open()
            .passes_on("What the service answered.")
            .errors(&[400, 401, 404, 409, 500, 502, 504])
    })
    .into()
}

fn snapshots() -> Vec<Operation> {
    vec![
        post("createSnapshot", "/sandboxes/{sandboxId}/snapshots", "Keep a sandbox's files")
            .tag("snapshots")
            .optional_body(one::<wire::CreateSnapshotRequest>())
            .answers(
                202,
                "The snapshot: `Ready`, or `Creating` if it takes longer.",
                one::<wire::Snapshot>(),
            )
            .errors(&[400, 401, 403, 404, 409, 500, 501]),
        get("listSnapshots", "/snapshots", "List snapshots, newest first")
            .tag("snapshots")
            .query::<wire::ListSnapshotsQuery>()
            .answers(200, "One page of them.", one::<wire::ListSnapshotsResponse>())
            .errors(&[400, 401, 500, 501]),
        get("getSnapshot", "/snapshots/{snapshotId}", "Describe a snapshot")
            .tag("snapshots")
            .answers(200, "The snapshot.", one::<wire::Snapshot>())
            .errors(&[401, 403, 404, 500, 501]),
        delete("deleteSnapshot", "/snapshots/{snapshotId}", "Delete a snapshot")
            .tag("snapshots")
            .empty(204, "It is gone.")
            .errors(&[401, 403, 404, 409, 500, 501]),
    ]
}

fn volumes() -> Vec<Operation> {
    let extension = "An extension of this server: other servers do not have it.";
    vec![
        get("listVolumes", "/volumes", "List the volumes that are kept, by name")
            .describe(extension)
            .tag("volumes")
            .query::<wire::ListVolumesQuery>()
            .answers(200, "One page of them.", one::<wire::ListVolumesResponse>())
            .errors(&[400, 401, 500, 501]),
        delete("deleteVolume", "/volumes/{name}", "Delete a volume with everything in it")
            .describe(extension)
            .tag("volumes")
            .empty(204, "It is gone.")
            .errors(&[401, 404, 409, 500, 501]),
    ]
}

fn egress_log() -> Operation {
    get("getEgressLog", "/sandboxes/{sandboxId}/egress/log", "What a sandbox tried to reach")
        .describe(
            "The latest 256 different ones. With `follow` the answer is one JSON object per line, \
             those to come too, with an empty line as a sign of life. An extension of this \
             server: other servers do not have it.",
        )
        .tag("network")
        .query::<egress::DecisionQuery>()
        .answers_also_as(
            "application/x-ndjson",
            200,
            "What was decided.",
            [one::<egress::DecisionLog>(), one::<egress::Decision>()],
        )
        .errors(&[400, 401, 403, 404, 500])
}

fn no_policy() -> Operation {
    get("getDefaultNetworkPolicy", "/networkpolicy", "What sandboxes without a policy may reach")
        .describe(
            "With the rules that the operator gives all sandboxes. An extension of this server: \
             other servers do not have it.",
        )
        .tag("network")
        .answers(200, "As if it were a policy.", one::<wire::NetworkPolicyStatus>())
        .errors(&[401, 500, 501])
}

fn network_policy() -> Vec<Operation> {
    let path = "/sandboxes/{sandboxId}/networkpolicy";
    [
        get("getNetworkPolicy", path, "What a sandbox may reach"),
        put("replaceNetworkPolicy", path, "Replace the policy").body(one::<wire::NetworkPolicy>()),
        patch("mergeNetworkRules", path, "Add rules, or replace those with the same target")
            .describe(
                "An object in place of the list changes `defaultAction`, if it has it, and puts \
                 its `egress` in front of the rules that are there, which all stay. An extension \
                 of this server.",
            )
            .body(list::<wire::NetworkRule>()),
        delete("deleteNetworkRules", path, "Take away the rules of these targets")
            .body(list_of_text()),
    ]
    .map(|operation| {
        operation
            .tag("network")
            .answers(200, "The policy as it now is.", one::<wire::NetworkPolicyStatus>())
            .errors(&[400, 401, 403, 404, 409, 413, 500, 501, 503])
    })
    .into()
}

fn pools() -> Vec<Operation> {
    [
        post("createPool", "/pools", "Make a pool").body(one::<wire::CreatePoolRequest>()).answers(
            201,
            "The pool.",
            one::<wire::Pool>(),
        ),
        get("listPools", "/pools", "List all pools").answers(
            200,
            "All of them.",
            one::<wire::ListPoolsResponse>(),
        ),
        get("getPool", "/pools/{name}", "Describe a pool").answers(
            200,
            "The pool.",
            one::<wire::Pool>(),
        ),
        put("updatePool", "/pools/{name}", "Change how much a pool holds")
            .body(one::<wire::UpdatePoolRequest>())
            .answers(200, "The pool as it now is.", one::<wire::Pool>()),
        delete("deletePool", "/pools/{name}", "End a pool").empty(204, "It is gone."),
    ]
    .map(|operation| operation.tag("pools").errors(&[400, 401, 404, 409, 500, 501]))
    .into()
}

fn templates() -> Vec<Operation> {
    [
        post("createTemplate", "/templates", "Build a template")
            .describe(
                "An image is started, and its files are kept when it is ready. Ask for the \
                 template until it is `Succeeded` or `Failed`.",
            )
            .body(one::<wire::CreateTemplateRequest>())
            .answers_with_location(
                201,
                "The template, about to be built.",
                one::<wire::Template>(),
            ),
        get("listTemplates", "/templates", "List templates, newest first")
            .query::<wire::ListTemplatesQuery>()
            .answers(200, "One page of them.", one::<wire::ListTemplatesResponse>()),
        get("getTemplate", "/templates/{templateId}", "Describe a template").answers(
            200,
            "The template.",
            one::<wire::Template>(),
        ),
        delete(
            "deleteTemplate",
            "/templates/{templateId}",
            "Delete a template that is not being built",
        )
        .empty(204, "It is gone."),
    ]
    .map(|operation| operation.tag("templates").errors(&[400, 401, 404, 409, 429, 500, 501]))
    .into()
}
