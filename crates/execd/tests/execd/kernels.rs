//! Code in Jupyter kernels, with one that needs nothing but Python. What real kernels do is tested
//! in the environment that has them.

use std::{path::Path, time::Duration};

use http::{Method, StatusCode};
use osb_api::execd::{CodeContext, ContextKind, Event, EventKind, Failure, enames};
use osb_core::Account;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    daemon::{Daemon, bytes, error, events, is_root, kinds, request, texts, wait_for},
    sandbox::Sandbox,
};

/// An execd with kernels, which are below a directory of their own.
struct Image {
    daemon: Daemon,
    directory: TempDir,
}

impl Image {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_str().unwrap();
        let own = [("JUPYTER_PATH", place), ("TMPDIR", place), ("EXECD_CODE_KIND", "")];
        let daemon = Daemon::with(&[], &[&own[..], variables].concat());
        let place = directory.path();
        install(place, "java", "signal", &json!({}));
        install(place, "go", "message", &json!({}));
        install(place, "bash", "signal", &json!({"FAILS": "1"}));
        Self { daemon, directory }
    }

    async fn create(&self, body: Value) -> Result<CodeContext, String> {
        let asked = request(Method::POST, "/code/context", body.to_string());
        let response = self.daemon.connect().await.send(asked).await;
        if response.status() != StatusCode::OK {
            return Err(error(response).await.1.message);
        }
        Ok(serde_json::from_slice(&bytes(response).await).unwrap())
    }

    async fn kernel(&self, language: &str) -> CodeContext {
        let context = self.create(json!({ "language": language, "kind": "jupyter" }));
        let context = context.await.unwrap();
        assert_eq!(context.kind, Some(ContextKind::Jupyter));
        context
    }

    async fn run(&self, context: &CodeContext, code: &str) -> Vec<Event> {
        self.run_within(context, code, 0).await
    }

    async fn run_within(&self, context: &CodeContext, code: &str, timeout: u32) -> Vec<Event> {
        let body = json!({"code": code, "context": {"id": context.id}, "timeout": timeout});
        let asked = request(Method::POST, "/code", body.to_string());
        events(self.daemon.connect().await.send(asked).await).await
    }

    /// Waits until a kernel has ended and execd has seen it.
    async fn until_dead(&self, context: &CodeContext) {
        let path = format!("/code/contexts/{}", context.id);
        loop {
            let context: CodeContext =
                serde_json::from_slice(&bytes(self.daemon.get(&path).await).await).unwrap();
            if context.memory.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many connection files there are.
    fn files(&self) -> usize {
        let names = osb_sys::fs::names(self.directory.path()).unwrap();
        names.iter().filter(|name| name.starts_with("kernel-")).count()
    }
}

/// Has a kernel below a directory, where everybody can read it.
fn install(place: &Path, name: &str, interrupt: &str, env: &Value) {
    let directory = place.join("kernels").join(name);
    osb_sys::fs::create_dir_all(&directory).unwrap();
    osb_sys::fs::write(directory.join("kernel.py"), include_str!("kernel.py")).unwrap();
    let content = json!({
        "argv": ["python3", "{resource_dir}/kernel.py", "{connection_file}"],
        "language": name, "interrupt_mode": interrupt, "env": env,
    });
    osb_sys::fs::write(directory.join("kernel.json"), content.to_string()).unwrap();
}

fn printed(events: &[Event]) -> String {
    texts(events, EventKind::Stdout).concat()
}

fn failures(events: &[Event]) -> Vec<&Failure> {
    events.iter().filter_map(|event| event.error.as_ref()).collect()
}

#[tokio::test]
async fn a_kernel_keeps_its_state_and_tells_all_that_comes_of_a_cell() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let first = image.run(&context, "x = 20\nprint('hello')\nvalue = x + 1").await;
    let expected = [
        EventKind::Init,
        EventKind::Ping,
        EventKind::Stdout,
        EventKind::Stdout,
        EventKind::ExecutionCount,
        EventKind::Result,
        EventKind::ExecutionComplete,
    ];
    assert_eq!(kinds(&first), expected, "{first:?}");
    assert_eq!(printed(&first), "hello\n");
    assert_eq!(first[5].results.as_ref().unwrap()["text"], "21");
    let failed = image.run(&context, "x.missing").await;
    assert_eq!(failures(&failed)[0].ename, "AttributeError");
    assert_eq!(kinds(&failed).last(), Some(&EventKind::ExecutionComplete));
    assert_eq!(printed(&image.run(&context, "print(x, end='')").await), "20");
}

#[tokio::test]
async fn an_interrupt_reaches_a_kernel_in_the_way_that_it_wants() {
    let image = Image::start();
    for language in ["java", "go"] {
        let context = image.kernel(language).await;
        image.run(&context, "x = 1").await;
        let slow = "import time; time.sleep(100)";
        let ended = image.run_within(&context, slow, 300).await;
        let names: Vec<_> = failures(&ended).iter().map(|failure| failure.ename.as_str()).collect();
        assert_eq!(names, ["KeyboardInterrupt", enames::TIMEOUT], "{language}");
        assert_eq!(printed(&image.run(&context, "print(x, end='')").await), "1");
    }
}

#[tokio::test]
async fn what_others_say_in_the_name_of_a_kernel_is_dropped() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let code = "
say('stream', {'name': 'stdout', 'text': 'forged'}, key=b'other')
say('stream', {'name': 'stdout', 'text': ['no', 'text']})
say('execute_result', 'no object')
say('display_data', {'data': {'text/plain': 'of another'}}, parent={'msg_id': 'other'})
say('stream', {'name': 'stdout', 'text': 'thread'}, parent={'msg_id': 'other'})
";
    let events = image.run(&context, code).await;
    assert_eq!(printed(&events), "thread");
    assert!(!kinds(&events).contains(&EventKind::Result), "{events:?}");
}

#[tokio::test]
async fn a_message_that_is_too_long_is_said_to_be_and_the_next_is_heard() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let code =
        "say('stream', {'name': 'stdout', 'text': 'x' * (33 << 20)}); print('after', end='')";
    let events = image.run(&context, code).await;
    assert_eq!(printed(&events), "after");
    assert!(texts(&events, EventKind::Stderr).concat().contains("too long to be passed on"));
}

#[tokio::test]
async fn a_kernel_that_speaks_nonsense_is_ended_and_started_anew() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let events = image.run(&context, "iopub.stream.sendall(b'\\xff' * 100)").await;
    assert_eq!(failures(&events)[0].ename, enames::INTERPRETER);
    let after = image.run(&context, "print('new', end='')").await;
    assert_eq!(printed(&after), "new");
    assert!(texts(&after, EventKind::Stderr).concat().contains("what it knew is gone"));
}

#[tokio::test]
async fn a_kernel_that_ends_is_told_of_with_its_last_words() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let events = image.run(&context, "print('last', end=''); import os; os._exit(3)").await;
    assert_eq!(printed(&events), "last");
    assert!(failures(&events)[0].evalue.contains("exit status 3"), "{events:?}");
    assert_eq!(kinds(&events).last(), Some(&EventKind::Error));
    let idle = image.kernel("java").await;
    image
        .run(&idle, "import os, threading; threading.Timer(0.1, lambda: os._exit(0)).start()")
        .await;
    image.until_dead(&idle).await;
    let after = image.run(&idle, "print('new', end='')").await;
    assert!(texts(&after, EventKind::Stderr).concat().contains("what it knew is gone"));
}

#[tokio::test]
async fn a_kernel_that_never_stops_speaking_stops_nobody_else() {
    let image = Image::start();
    install(image.directory.path(), "typescript", "signal", &json!({"CHATTERS": "1"}));
    let before_all = image.kernel("typescript").await;
    let late = image.run_within(&before_all, "1", 500).await;
    assert_eq!(failures(&late)[0].ename, enames::TIMEOUT, "{late:?}");
    let again = "send = iopub.stream.sendall\nwhile True: send";
    let nothing = "{'name': 'stdout', 'text': ''}";
    let signed = format!(
        "sent = []\nsend, iopub.stream = iopub.stream, type('', (), {{'sendall': sent.append}})\n\
         say('stream', {nothing}); iopub.stream = send\nwhile True: send.sendall(sent[0] * 1000)"
    );
    let codes = [
        format!("{again}(b'\\0\\0' * 30_000)"),
        format!("{again}(b'\\4\\5\\4PING' * 10_000)"),
        signed,
        "import os\nwhile True: os.write(1, b'x' * 65536)".to_owned(),
    ];
    for code in codes {
        let context = image.kernel("java").await;
        let (ended, other) = tokio::join!(image.run_within(&context, &code, 1000), async {
            let other = image.kernel("java").await;
            image.run(&other, "print('here', end='')").await
        });
        let timeout = failures(&ended).iter().any(|failure| failure.ename == enames::TIMEOUT);
        assert!(timeout, "{code}: {:?}", failures(&ended));
        assert_eq!(printed(&other), "here");
    }
}

#[tokio::test]
async fn what_the_process_itself_prints_is_output_of_the_cell() {
    let image = Image::start();
    let context = image.kernel("java").await;
    let code = "import os; os.write(1, b'out'); os.write(2, b'err')";
    let events = image.run(&context, code).await;
    assert_eq!(printed(&events), "out");
    assert_eq!(texts(&events, EventKind::Stderr), ["err"]);
}

#[tokio::test]
async fn a_kernel_that_does_not_start_says_why() {
    let image = Image::start();
    let context = image.kernel("bash").await;
    let events = image.run(&context, "1").await;
    let evalue = &failures(&events)[0].evalue;
    assert!(evalue.contains("the kernelspec \"bash\"") && evalue.contains("code 1"), "{evalue}");
    assert!(evalue.ends_with("there is no library for this"), "{evalue}");
}

#[tokio::test]
async fn whoever_asks_for_a_kind_gets_it_or_is_told() {
    let image = Image::start();
    for (language, kind) in [("bash", ContextKind::Builtin), ("java", ContextKind::Jupyter)] {
        let usual = image.create(json!({ "language": language })).await.unwrap();
        assert_eq!(usual.kind, Some(kind), "both have a kernel, but bash needs none");
    }
    let builtin = image.create(json!({"language": "bash", "kind": "builtin"})).await.unwrap();
    assert_eq!(builtin.kind, Some(ContextKind::Builtin));
    let refused = image.create(json!({"language": "java", "kind": "builtin"})).await.unwrap_err();
    assert!(refused.contains("java runs in a Jupyter kernel alone"), "{refused}");
    let missing = json!({"language": "typescript", "kind": "jupyter"});
    let refused = image.create(missing).await.unwrap_err();
    assert!(refused.contains("no kernelspec for typescript"), "{refused}");
    assert!(image.create(json!({"language": "java", "kind": "other"})).await.is_err());

    let image = Image::with(&[("EXECD_CODE_KIND", "builtin")]);
    let usual = image.create(json!({"language": "bash"})).await.unwrap();
    assert_eq!(usual.kind, Some(ContextKind::Builtin));
    let asked = image.create(json!({"language": "java", "kind": "jupyter"})).await.unwrap();
    assert_eq!(asked.kind, Some(ContextKind::Jupyter));
    let image = Image::with(&[("EXECD_CODE_KIND", "notebook")]);
    let refused = image.create(json!({"language": "java"})).await.unwrap_err();
    assert!(refused.contains("neither builtin nor jupyter"), "{refused}");
    let image = Image::with(&[("JUPYTER_PATH", "/nowhere"), ("HOME", "/nowhere")]);
    let refused = image.create(json!({"language": "java"})).await.unwrap_err();
    assert!(refused.contains("nothing to run java with: java needs a Jupyter kernel"), "{refused}");
}

#[tokio::test]
async fn a_context_that_is_deleted_leaves_nothing() {
    let image = Image::start();
    let context = image.kernel("java").await;
    image.run(&context, "1").await;
    assert_eq!(image.files(), 1);
    let path = format!("/code/contexts/{}", context.id);
    let deleted = image.daemon.connect().await.send(request(Method::DELETE, &path, "")).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    wait_for("its file is gone", || image.files() == 0).await;
}

#[tokio::test]
async fn a_kernel_runs_as_the_user_of_the_image_and_its_file_is_theirs() {
    if !is_root() {
        return;
    }
    let user = Account { uid: 4321, gid: 1234, groups: vec![], name: None, home: None };
    let sandbox = Sandbox::of_user(user, 15, &["sleep", "1000"]);
    let place = sandbox.directory();
    install(place, "java", "signal", &json!({}));
    let place = place.display();
    let variables = format!("JUPYTER_PATH={place}\nTMPDIR={place}\n");
    osb_sys::fs::write(sandbox.path("env"), variables).unwrap();
    let code =
        "import os, sys; s = os.stat(sys.argv[1]); print(os.getuid(), s.st_uid, oct(s.st_mode))";
    let body = json!({"code": code, "context": {"language": "java"}}).to_string();
    let events = events(sandbox.ask(Method::POST, "/code", &body).await).await;
    assert_eq!(printed(&events), "4321 4321 0o100600\n", "{events:?}");
}
