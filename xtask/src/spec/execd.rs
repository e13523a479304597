use osb_api::{execd as wire, headers};
use utoipa::openapi::{Required, Type};

use super::{
    api::Api,
    operation::{Operation, bytes, delete, form, get, list, map, one, patch, post, put, text},
};

const STATUSES: &[u16] = &[400, 401, 404, 500, 501];
const EVENTS: &str = "text/event-stream";

pub(crate) fn api() -> Api {
    let mut operations =
        vec![get("ping", "/ping", "Whether execd answers").tag("health").empty(200, "It does.")];
    operations.extend(commands());
    operations.extend(sessions());
    operations.extend(code());
    operations.extend(files());
    operations.extend(directories());
    operations.extend(metrics());
    operations.extend(entrypoint());
    operations.extend(terminals());
    operations.extend(proxy());
    operations.extend(isolated());
    Api {
        name: "execd",
        title: "OpenSandbox execd API",
        description: "What the daemon in every sandbox does: commands, sessions, code, files, \
                      terminals. Streams are one JSON object per event, each followed by a blank \
                      line. Empty answers carry `Content-Length: 0`. The file routes also exist \
                      below `/v1/filesystem/{uid}/{gid}`, where they act as that user.",
        server: (
            "http://127.0.0.1:8080/v1/sandboxes/{sandboxId}/proxy/44772",
            "The endpoint that the lifecycle API names for port 44772.",
        ),
        key: (headers::EXECD_TOKEN, "The sandbox's own token, from the endpoint's headers."),
        tags: vec![
            ("health", "The daemon itself."),
            ("commands", "Programs, in the foreground or not."),
            ("sessions", "Shells that remember."),
            ("code", "Code in contexts that remember."),
            ("files", "Files and directories."),
            ("metrics", "What the sandbox uses."),
            ("entrypoint", "The program that the sandbox is for."),
            ("terminals", "Shells with a terminal, over WebSocket."),
            ("proxy", "Services in the sandbox."),
            ("isolated", "Shells in a sandbox within the sandbox."),
        ],
        operations: operations.into_iter().map(|operation| operation.errors(STATUSES)).collect(),
    }
}

fn commands() -> Vec<Operation> {
    [
        post("runCommand", "/command", "Run a program")
            .describe(
                "The stream begins with `init`, whose text is the command's id, and ends with \
                 either `execution_complete` or `error`, whose value is the exit code.",
            )
            .body(one::<wire::RunCommand>())
            .answers_as(EVENTS, 200, "What it prints and how it ends.", one::<wire::Event>()),
        delete("interruptCommand", "/command", "End a command")
            .needs("id", "The command's id.")
            .empty(200, "It has ended."),
        get("commandStatus", "/command/status/{id}", "Whether a command runs, and how it ended")
            .answers(200, "The status.", one::<wire::CommandStatus>()),
        get("commandLogs", "/command/{id}/logs", "What a background command printed")
            .may("cursor", "The byte to begin at.", Type::Integer)
            .answers_log(headers::COMMAND_CURSOR),
    ]
    .map(|operation| operation.tag("commands"))
    .into()
}

fn sessions() -> Vec<Operation> {
    [
        post("createSession", "/session", "Start a shell that remembers")
            .optional_body(one::<wire::CreateSession>())
            .answers(200, "Its id.", one::<wire::SessionCreated>()),
        post("runInSession", "/session/{sessionId}/run", "Run in it")
            .body(one::<wire::RunInSession>())
            .answers_as(EVENTS, 200, "What it prints and how it ends.", one::<wire::Event>()),
        delete("deleteSession", "/session/{sessionId}", "End it").empty(200, "It has ended."),
    ]
    .map(|operation| operation.tag("sessions"))
    .into()
}

fn code() -> Vec<Operation> {
    [
        post("runCode", "/code", "Run code")
            .describe("Without a context, in the one that its language has by default.")
            .body(one::<wire::RunCode>())
            .answers_as(EVENTS, 200, "What it prints and gives.", one::<wire::Event>()),
        delete("interruptCode", "/code", "Interrupt the code that runs")
            .needs("id", "The context's id.")
            .empty(200, "It was interrupted."),
        post("createContext", "/code/context", "Start a context")
            .body(one::<wire::CreateContext>())
            .answers(200, "The context.", one::<wire::CodeContext>()),
        get("listContexts", "/code/contexts", "List contexts")
            .may("language", "Only those of this language.", Type::String)
            .answers(200, "The contexts.", list::<wire::CodeContext>()),
        delete("deleteContexts", "/code/contexts", "End all contexts of a language")
            .needs("language", "The language.")
            .empty(200, "They have ended."),
        get("getContext", "/code/contexts/{contextId}", "Describe a context").answers(
            200,
            "The context.",
            one::<wire::CodeContext>(),
        ),
        delete("deleteContext", "/code/contexts/{contextId}", "End a context")
            .empty(200, "It has ended."),
    ]
    .map(|operation| operation.tag("code"))
    .into()
}

fn files() -> Vec<Operation> {
    [
        get("fileInfo", "/files/info", "Describe paths")
            .repeats("path", "A path; the answer has it as its key, as it was asked.")
            .answers(200, "What is there, by path.", map::<wire::FileInfo>()),
        delete("deleteFiles", "/files", "Delete files")
            .repeats("path", "A path; one that is not there is no error.")
            .empty(200, "They are gone."),
        post("setPermissions", "/files/permissions", "Change modes and owners")
            .body(map::<wire::Ownership>())
            .empty(200, "Changed."),
        post("moveFiles", "/files/mv", "Move files")
            .body(list::<wire::Rename>())
            .empty(200, "Moved."),
        get("searchFiles", "/files/search", "Find files by name")
            .needs("path", "The directory to look in.")
            .may("pattern", "A pattern for names; all files without it.", Type::String)
            .answers(200, "The files.", list::<wire::FileInfo>()),
        post("replaceInFiles", "/files/replace", "Replace text in files")
            .may("verbose", "Answer how often, by path.", Type::Boolean)
            .body(map::<wire::Replacement>())
            .answers(200, "How often, if that was asked.", map::<wire::Replaced>()),
        post("uploadFiles", "/files/upload", "Write files")
            .request("multipart/form-data", form::<wire::UploadMetadata>(), Required::True)
            .empty(200, "Written."),
        get("downloadFile", "/files/download", "Read a file")
            .describe(
                "The header `Range` asks for bytes; `offset` and `limit` for lines, and then the \
                 answer is text.",
            )
            .needs("path", "The file.")
            .may("offset", "The first line, counted from 1.", Type::Integer)
            .may("limit", "How many lines.", Type::Integer)
            .answers_as("application/octet-stream", 200, "The file.", bytes())
            .answers_as("application/octet-stream", 206, "The part that was asked for.", bytes())
            .empty(304, "The caller has the file as it is: its `ETag` or its time says so.")
            .errors(&[416]),
        get("watchFiles", "/files/watch", "Hear of changes to files")
            .describe(
                "The stream begins with `ready` and ends with the client, or with the path itself. \
                 What happens while a new directory joins may be told twice.",
            )
            .needs("path", "The file or directory.")
            .may("recursive", "Watch all directories below, too.", Type::Boolean)
            .answers_as(EVENTS, 200, "The changes.", one::<wire::Change>()),
    ]
    .map(|operation| operation.tag("files"))
    .into()
}

fn directories() -> Vec<Operation> {
    [
        get("listDirectory", "/directories/list", "List a directory")
            .needs("path", "The directory.")
            .may("depth", "How many levels; 1 without it.", Type::Integer)
            .answers(200, "What is in it.", list::<wire::FileInfo>()),
        post("createDirectories", "/directories", "Make directories")
            .body(map::<wire::Ownership>())
            .empty(200, "They are there."),
        delete("deleteDirectories", "/directories", "Delete directories and all below")
            .repeats("path", "A path; one that is not there is no error.")
            .empty(200, "They are gone."),
    ]
    .map(|operation| operation.tag("files"))
    .into()
}

fn metrics() -> Vec<Operation> {
    [
        get("metrics", "/metrics", "What the sandbox uses now").answers(
            200,
            "Processor and memory.",
            one::<wire::Metrics>(),
        ),
        get("watchMetrics", "/metrics/watch", "What the sandbox uses, again and again").answers_as(
            EVENTS,
            200,
            "One JSON object per line.",
            one::<wire::Metrics>(),
        ),
        get("work", "/work", "How much is at work")
            .describe("By this the server finds out whether the sandbox is idle.")
            .answers(200, "A count.", one::<wire::Work>()),
    ]
    .map(|operation| operation.tag("metrics"))
    .into()
}

fn entrypoint() -> Vec<Operation> {
    [
        get("entrypointStatus", "/entrypoint", "Whether the entrypoint runs, and how it ended")
            .answers(200, "Its state.", one::<wire::EntrypointStatus>()),
        get("entrypointLogs", "/entrypoint/logs", "What the entrypoint printed last")
            .describe("Both of its outputs, as they came. Only the last mebibyte is kept.")
            .may("cursor", "The byte to begin at.", Type::Integer)
            .may(
                "since",
                "Only what came later, in milliseconds since 1970; roughly.",
                Type::Integer,
            )
            .answers_log(headers::COMMAND_CURSOR),
    ]
    .map(|operation| operation.tag("entrypoint"))
    .into()
}

fn terminals() -> Vec<Operation> {
    [
        post("createTerminal", "/pty", "Prepare a terminal")
            .optional_body(one::<wire::CreatePty>())
            .answers(201, "Its id.", one::<wire::PtyCreated>())
            .errors(&[429]),
        get("getTerminal", "/pty/{sessionId}", "Describe a terminal").answers(
            200,
            "Its state.",
            one::<wire::PtyStatus>(),
        ),
        delete("deleteTerminal", "/pty/{sessionId}", "End a terminal").empty(200, "It has ended."),
        get("attachTerminal", "/pty/{sessionId}/ws", "Attach to a terminal over WebSocket")
            .describe(
                "Binary frames carry input after a byte 0, output after a byte 1 or 2, and after a \
                 byte 3 and an offset of eight bytes what was missed; text frames control. The \
                 shell goes on when the connection ends.",
            )
            .may("pty", "`0` for pipes in place of a terminal.", Type::Integer)
            .may("since", "The byte of the output to continue at.", Type::Integer)
            .may("takeover", "`1` to take the place of the client that is attached.", Type::Integer)
            .empty(101, "Attached.")
            .errors(&[409]),
    ]
    .map(|operation| operation.tag("terminals"))
    .into()
}

fn proxy() -> Vec<Operation> {
    let path = "/proxy/{port}/{path}";
    [
        get("proxyGet", path, "Ask a service in the sandbox"),
        post("proxyPost", path, "Ask a service in the sandbox"),
        put("proxyPut", path, "Ask a service in the sandbox"),
        patch("proxyPatch", path, "Ask a service in the sandbox"),
        delete("proxyDelete", path, "Ask a service in the sandbox"),
    ]
    .map(|operation| operation.tag("proxy").passes_on("What the service answered.").errors(&[502]))
    .into()
}

fn isolated() -> Vec<Operation> {
    let one_session = "/v1/isolated/session/{sessionId}";
    [
        get("isolationCapabilities", "/v1/isolated/capabilities", "What this sandbox can isolate")
            .answers(200, "What it can.", one::<wire::IsolatedCapabilities>()),
        post("createIsolated", "/v1/isolated/session", "Start an isolated shell")
            .body(one::<wire::CreateIsolated>())
            .answers(200, "Its id.", one::<wire::IsolatedCreated>()),
        get("listIsolated", "/v1/isolated/sessions", "List isolated shells").answers(
            200,
            "All of them.",
            one::<wire::IsolatedList>(),
        ),
        get("getIsolated", one_session, "Describe an isolated shell").answers(
            200,
            "Its state.",
            one::<wire::IsolatedSession>(),
        ),
        delete("deleteIsolated", one_session, "End an isolated shell").empty(200, "It has ended."),
        post("runIsolated", "/v1/isolated/session/{sessionId}/run", "Run in an isolated shell")
            .body(one::<wire::RunIsolated>())
            .answers_as(EVENTS, 200, "What it prints and how it ends.", one::<wire::Event>())
            .answers(202, "It runs in the background.", one::<wire::IsolatedRunStarted>()),
        get(
            "isolatedRun",
            "/v1/isolated/session/{sessionId}/runs/{runId}",
            "Whether a background run goes on, and how it ended",
        )
        .answers(200, "The status.", one::<wire::IsolatedRun>()),
        get(
            "isolatedRunLogs",
            "/v1/isolated/session/{sessionId}/runs/{runId}/logs",
            "What a background run printed",
        )
        .may("cursor", "The byte to begin at.", Type::Integer)
        .answers_log(headers::ISOLATED_CURSOR),
        get(
            "isolatedDiff",
            "/v1/isolated/session/{sessionId}/diff",
            "What an isolated shell changed",
        )
        .answers_as("text/plain", 200, "The changes.", text()),
        post(
            "isolatedCommit",
            "/v1/isolated/session/{sessionId}/commit",
            "Keep what an isolated shell changed",
        )
        .empty(200, "Kept."),
    ]
    .map(|operation| operation.tag("isolated").errors(&[503]))
    .into()
}
