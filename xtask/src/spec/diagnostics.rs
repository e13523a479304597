use osb_api::{diagnostics as wire, headers};

use super::{
    api::Api,
    operation::{Operation, get, one, text},
};

const STATUSES: &[u16] = &[400, 401, 403, 404, 500];

pub(crate) fn api() -> Api {
    Api {
        name: "diagnostics",
        title: "OpenSandbox diagnostics API",
        description: "What happened in and around a sandbox. It is served beside the lifecycle \
                      API, with the same key and the same errors.",
        server: (
            "http://127.0.0.1:8080/v1",
            "A server on this machine, as `osb server` starts it.",
        ),
        key: (headers::API_KEY, "The server's API key."),
        tags: vec![("diagnostics", "Logs, events and summaries.")],
        operations: operations(),
    }
}

fn operations() -> Vec<Operation> {
    let plain = "As plain text when no scope is given, which is deprecated.";
    [
        get("getLogs", "/sandboxes/{sandboxId}/diagnostics/logs", "What a sandbox printed")
            .query::<wire::LogsQuery>()
            .answers_or_text(200, "The logs.", one::<wire::Diagnostics>())
            .describe(plain),
        get("getEvents", "/sandboxes/{sandboxId}/diagnostics/events", "What happened to a sandbox")
            .query::<wire::EventsQuery>()
            .answers_or_text(200, "The events.", one::<wire::Diagnostics>())
            .describe(plain),
        get("inspect", "/sandboxes/{sandboxId}/diagnostics/inspect", "What a sandbox is made of")
            .answers_as("text/plain", 200, "A description for people.", text())
            .deprecated(),
        get("summarize", "/sandboxes/{sandboxId}/diagnostics/summary", "All of it in short")
            .query::<wire::SummaryQuery>()
            .answers_as("text/plain", 200, "A description for people.", text())
            .deprecated(),
    ]
    .map(|operation| operation.tag("diagnostics").errors(STATUSES))
    .into()
}
