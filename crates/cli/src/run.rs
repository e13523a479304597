//! `osb run`: one command in a sandbox of its own.

mod aftermath;

use std::{pin::pin, time::Duration};

use opensandbox::{
    ClientError, Lifecycle, Sandbox,
    api::lifecycle::{CreateSandboxRequest, CreateSandboxResponse},
};
use osb_core::{Clock, SystemClock};
use tokio::{task::JoinSet, time::sleep};

use self::aftermath::Aftermath;
use crate::{
    ending,
    env::Environment,
    failure::Failure,
    invocation::Invocation,
    output::Output,
    signals::{Interrupts, Signal, Signals},
    spec::{Content, Spec},
    start,
    target::Target,
};

/// How long the sandbox outlives an `osb` that was killed. It is renewed while `osb` lives, so a
/// run may last as long as it likes.
const LEASE: Duration = Duration::from_mins(5);

#[derive(Debug, clap::Args)]
#[command(after_help = ending::HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    spec: Spec,
    #[command(flatten)]
    invocation: Invocation,
    #[command(flatten)]
    aftermath: Aftermath,
    #[command(flatten)]
    target: Target,
}

impl Args {
    #[cfg(test)]
    pub(crate) fn words(&self) -> &[String] {
        self.invocation.words()
    }
}

pub(crate) async fn main(
    args: Args,
    environment: &Environment,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    // Whoever is asked for standard input and interrupts is not listened for yet.
    let content = args.spec.read()?;
    let lifecycle = args.target.lifecycle(environment)?;
    run(&args, &content, &lifecycle, &mut Signals::listen()?, output).await
}

async fn run(
    args: &Args,
    content: &Content,
    lifecycle: &Lifecycle,
    interrupts: &mut impl Interrupts,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    let around = tokio::select! {
        around = args.spec.surroundings(lifecycle) => around?,
        signal = interrupts.next() => return Ok(signal.exit_code()),
    };
    if !args.aftermath.is_quiet() {
        args.spec.warn(around.as_ref(), output);
    }
    let lease = i64::try_from(LEASE.as_secs()).ok();
    let request = args.spec.request(content, around.as_ref(), lease);
    let mut talk = (!args.aftermath.is_quiet()).then_some(&mut *output);
    let created = match create(&request, lifecycle, interrupts, talk.as_deref_mut()).await? {
        Created::Wanted(created) => created,
        Created::Unwanted(created, signal) => {
            remove(lifecycle, &created.id, interrupts, output).await;
            return Ok(signal.exit_code());
        }
        Created::Abandoned(signal) => {
            output.say("gave up on a sandbox that was still starting; it ends by itself");
            return Ok(signal.exit_code());
        }
    };
    let mut keeper = JoinSet::new();
    keeper.spawn(keep(lifecycle.clone(), created.id.clone()));
    let waited = tokio::select! {
        sandbox = start::wait(lifecycle, &created, talk) => sandbox.map_err(Failure::from),
        signal = interrupts.next() => {
            remove(lifecycle, &created.id, interrupts, output).await;
            return Ok(signal.exit_code());
        }
    };
    let sandbox = match waited {
        Ok(sandbox) => sandbox,
        Err(failure) => {
            remove(lifecycle, &created.id, interrupts, output).await;
            return Err(failure);
        }
    };
    let ended = tokio::select! {
        ended = work(args, content, &sandbox, output) => ended,
        signal = interrupts.next() => Ok(signal.exit_code()),
    };
    keeper.abort_all();
    let told = args.aftermath.tell(lifecycle, sandbox.id(), interrupts, output).await;
    remove(lifecycle, sandbox.id(), interrupts, output).await;
    let code = ended?;
    told?;
    Ok(code)
}

async fn work(
    args: &Args,
    content: &Content,
    sandbox: &Sandbox,
    output: &mut Output<'_>,
) -> Result<u8, Failure> {
    Spec::furnish(content, sandbox).await?;
    args.invocation.start(sandbox.execd()).await?.follow(output).await
}

enum Created {
    Wanted(CreateSandboxResponse),
    /// Interrupted meanwhile, but here, and to be removed.
    Unwanted(CreateSandboxResponse, Signal),
    /// Interrupted twice: nobody waits for it any more.
    Abandoned(Signal),
}

/// Makes the sandbox. An interrupt does not cut this short, for only then is its id known and it
/// can be removed; a second one does.
async fn create(
    request: &CreateSandboxRequest,
    lifecycle: &Lifecycle,
    interrupts: &mut impl Interrupts,
    output: Option<&mut Output<'_>>,
) -> Result<Created, ClientError> {
    let mut creation = pin!(start::create(lifecycle, request, output));
    let signal = tokio::select! {
        created = &mut creation => return created.map(Created::Wanted),
        signal = interrupts.next() => signal,
    };
    tokio::select! {
        created = creation => created.map(|created| Created::Unwanted(created, signal)),
        signal = interrupts.next() => Ok(Created::Abandoned(signal)),
    }
}

/// Moves the sandbox's end ahead of us for as long as this task lives.
async fn keep(lifecycle: Lifecycle, id: String) {
    loop {
        sleep(LEASE / 4).await;
        if let Ok(end) = SystemClock.now().checked_add(LEASE) {
            // There are two more attempts before the lease is up.
            drop(lifecycle.renew(&id, end).await);
        }
    }
}

/// Removes the sandbox; says so if it could not.
async fn remove(
    lifecycle: &Lifecycle,
    id: &str,
    interrupts: &mut impl Interrupts,
    output: &mut Output<'_>,
) {
    let left = tokio::select! {
        removed = lifecycle.delete(id) => {
            let failed = removed.err().filter(|error| !error.is_not_found());
            failed.map(|error| error.to_string())
        }
        _ = interrupts.next() => Some("interrupted".to_owned()),
    };
    if let Some(reason) = left {
        output.say(&format!("sandbox {id} was not removed ({reason}): try osb sandbox rm {id}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use http::Method;
    use opensandbox::testkit::{FakeBackend, Then};

    use super::*;
    use crate::{
        failure::Role,
        signals::scripted::{After, Never},
    };

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    async fn run_line(
        backend: &FakeBackend,
        line: &[&str],
        interrupts: &mut impl Interrupts,
    ) -> (Result<u8, Failure>, String, String) {
        let args = Line::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let lifecycle = Lifecycle::new(backend.connection());
        let mut output = Output::new(&mut out, &mut err);
        let code = match args.spec.read() {
            Ok(content) => run(&args, &content, &lifecycle, interrupts, &mut output).await,
            Err(failure) => Err(failure),
        };
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    const OUT: &str = "{\"type\":\"stdout\",\"text\":\"out\",\"timestamp\":1}\n\n";
    const ERR: &str = "{\"type\":\"stderr\",\"text\":\"err\",\"timestamp\":1}\n\n";
    const COMPLETE: &str = "{\"type\":\"execution_complete\",\"timestamp\":1}\n\n";
    const SEVEN: &str = "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"7\"},\"timestamp\":1}\n\n";
    const KILLED: &str = "{\"type\":\"error\",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"-1\",\"traceback\":[\"signal: killed\"]},\"timestamp\":1}\n\n";

    #[tokio::test]
    async fn output_goes_where_it_belongs_and_nothing_is_left() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[OUT, ERR, COMPLETE], Then::End);
        let line = ["run", "--env", "A=1", "--cpu", "500m", "--disk", "1Gi", "--", "echo", "$A"];
        let (code, out, err) = run_line(&backend, &line, &mut Never).await;
        assert_eq!((code.unwrap(), out.as_str(), err.as_str()), (0, "out\n", "err\n"));
        assert!(backend.sandboxes().is_empty());
        let request = backend.bodies(&Method::POST, "/sandboxes").remove(0);
        let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request["image"]["uri"], "host");
        assert_eq!(request["env"]["A"], "1");
        assert_eq!(request["resourceLimits"]["cpu"], "500m");
        assert_eq!(request["resourceLimits"]["disk"], "1Gi");
        assert_eq!(request["timeout"], 300);
        let command = backend.bodies(&Method::POST, "/command").remove(0);
        assert_eq!(command, r#"{"argv":["echo","$A"]}"#);
    }

    #[tokio::test]
    async fn the_exit_code_is_the_commands() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[SEVEN], Then::End);
        assert_eq!(run_line(&backend, &["run", "--", "x"], &mut Never).await.0.unwrap(), 7);
        backend.next_command(&[KILLED], Then::End);
        assert_eq!(run_line(&backend, &["run", "--", "x"], &mut Never).await.0.unwrap(), 137);
    }

    #[tokio::test]
    async fn shell_text_goes_to_the_shell() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[COMPLETE], Then::End);
        let line = ["run", "--shell", "--timeout", "2m", "-w", "/tmp", "--", "ls | wc", "-l"];
        run_line(&backend, &line, &mut Never).await.0.unwrap();
        let command = backend.bodies(&Method::POST, "/command").remove(0);
        assert_eq!(command, r#"{"command":"ls | wc -l","cwd":"/tmp","timeout":120000}"#);
    }

    #[tokio::test]
    async fn an_interrupt_removes_the_sandbox() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[OUT], Then::Hang);
        let mut interrupts = After::call(&backend, "/command");
        let (code, ..) = run_line(&backend, &["run", "--", "x"], &mut interrupts).await;
        assert_eq!(code.unwrap(), 130);
        assert!(backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn an_interrupt_during_creation_removes_the_sandbox() {
        let backend = FakeBackend::start().await;
        let mut interrupts = After::call(&backend, "/sandboxes");
        let (code, ..) = run_line(&backend, &["run", "--", "x"], &mut interrupts).await;
        assert_eq!(code.unwrap(), 130);
        assert!(backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn an_interrupt_while_an_image_is_pulled_removes_the_sandbox() {
        let backend = FakeBackend::start().await;
        backend.hold_starts(&["pulling debian"; 1000]);
        let mut interrupts = After::call(&backend, "/sandboxes/sandbox-1");
        let line = ["run", "--image", "debian", "--", "x"];
        let (code, _, err) = run_line(&backend, &line, &mut interrupts).await;
        assert_eq!(code.unwrap(), 130);
        assert!(backend.sandboxes().is_empty());
        assert!(err.contains("osb: pulling debian\n"), "{err}");
    }

    #[tokio::test]
    async fn an_image_that_does_not_come_is_the_reason() {
        let backend = FakeBackend::start().await;
        backend.hold_starts(&["pulling debian"; 2]);
        backend.fail_starts("the registry does not have it");
        let line = ["run", "--quiet", "--image", "debian", "--", "x"];
        let (result, _, err) = run_line(&backend, &line, &mut Never).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.exit_code(Role::StandIn), err.as_str()), (125, ""));
        assert!(failure.report().unwrap().contains("the registry does not have it"));
        assert!(backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn the_time_limit_has_a_code_of_its_own() {
        let backend = FakeBackend::start().await;
        let never_reached = ["run", "--timeout", "1h", "--", "x"];
        backend.next_command(&[KILLED], Then::End);
        assert_eq!(run_line(&backend, &never_reached, &mut Never).await.0.unwrap(), 137);
        backend.delay_commands(Duration::from_millis(1050));
        let reached = ["run", "--timeout", "1s", "--", "x"];
        let (code, _, err) = run_line(&backend, &reached, &mut Never).await;
        assert_eq!(code.unwrap(), 124);
        assert!(err.contains("time limit"), "{err}");
    }

    const LOG: &str = r#"{"decisions":[
        {"number":1,"at":"2030-01-01T00:00:00Z","protocol":"dns","name":"a.test","port":53,"action":"deny","reason":"default","times":2},
        {"number":2,"at":"2030-01-01T00:00:00Z","protocol":"tcp","name":"b.test","address":"192.0.2.1","port":443,"action":"allow","reason":"default","times":1},
        {"number":3,"at":"2030-01-01T00:00:00Z","protocol":"tcp","address":"10.0.0.1","port":22,"action":"deny","reason":"guard","guarded":"private","times":1}]}"#;

    #[tokio::test]
    async fn what_the_network_refused_is_told_at_the_end() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[SEVEN], Then::End);
        backend.set_egress_log(LOG);
        let (code, out, err) = run_line(&backend, &["run", "--", "x"], &mut Never).await;
        assert_eq!((code.unwrap(), out.as_str()), (7, ""));
        assert!(err.starts_with("osb: the network refused: a.test (no rule allows it)\n"), "{err}");
        assert!(
            err.contains("refused: 10.0.0.1:22 (it is a private address: only a rule"),
            "{err}"
        );
        assert!(err.contains("--learn FILE") && !err.contains("b.test"), "{err}");
        let (_, _, err) = run_line(&backend, &["run", "--quiet", "--", "x"], &mut Never).await;
        assert_eq!(err, "");
        backend.set_egress_log(r#"{"decisions":[]}"#);
        let (_, _, err) = run_line(&backend, &["run", "--", "x"], &mut Never).await;
        assert_eq!(err, "");
        assert!(backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn a_run_leaves_the_policy_that_would_allow_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.json");
        let line = ["run", "--learn", file.to_str().unwrap(), "--", "x"];
        let backend = FakeBackend::start().await;
        backend.next_command(&[OUT], Then::Hang);
        backend.set_egress_log(LOG);
        // What runs until it is interrupted is learnt from, too.
        let mut interrupts = After::call(&backend, "/command");
        let (code, _, err) = run_line(&backend, &line, &mut interrupts).await;
        assert_eq!(code.unwrap(), 130);
        assert!(err.contains("left out: 10.0.0.1 ("), "{err}");
        assert!(err.ends_with("policy.json with 2 rules\n"), "{err}");
        let policy = crate::network::parse(&osb_sys::fs::read_to_string(&file).unwrap()).unwrap();
        let targets: Vec<_> = policy.egress.iter().map(|rule| rule.target.as_str()).collect();
        assert_eq!(targets, ["a.test", "b.test"]);
    }

    #[tokio::test]
    async fn credentials_are_there_before_the_command_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vault.json");
        osb_sys::fs::write(
            &file,
            r#"{"credentials":[{"name":"gh","source":{"value":"s"}}],"bindings":[]}"#,
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let backend = FakeBackend::start().await;
        backend.next_command(&[COMPLETE], Then::End);
        let line = ["run", "--allow", "a.test", "--vault", file, "--", "x"];
        assert_eq!(run_line(&backend, &line, &mut Never).await.0.unwrap(), 0);
        let request = backend.bodies(&Method::POST, "/sandboxes").remove(0);
        let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request["credentialProxy"]["enabled"], true);
        let vault = backend.bodies(&Method::POST, "/credential-vault").remove(0);
        let vault: serde_json::Value = serde_json::from_slice(&vault).unwrap();
        assert_eq!(vault["credentials"][0]["source"]["value"], "s");
        let calls = backend.calls();
        let at = |end: &str| calls.iter().position(|call| call.ends_with(end)).unwrap();
        assert!(at("/credential-vault") < at("/command"), "{calls:?}");
        backend.fail_vaults("no");
        let (result, ..) = run_line(&backend, &line, &mut Never).await;
        assert_eq!(result.unwrap_err().exit_code(Role::StandIn), 125);
        assert!(backend.sandboxes().is_empty());
        let without_policy = ["run", "--vault", file, "--", "x"];
        let (result, ..) = run_line(&backend, &without_policy, &mut Never).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.exit_code(Role::StandIn), 125);
        assert!(failure.report().unwrap().contains("add --allow HOST"));
    }

    #[tokio::test]
    async fn whoever_wants_to_learn_hears_that_it_failed() {
        let nowhere = ["run", "--learn", "/nonexistent/policy.json", "--", "x"];
        let backend = FakeBackend::start().await;
        backend.next_command(&[COMPLETE], Then::End);
        assert!(Line::try_parse_from(nowhere).is_err(), "nothing could be kept there");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.json");
        // A server that keeps no log.
        let line = ["run", "--learn", file.to_str().unwrap(), "--", "x"];
        let (result, ..) = run_line(&backend, &line, &mut Never).await;
        assert_eq!(result.unwrap_err().exit_code(Role::StandIn), 125);
        assert!(!file.exists() && backend.sandboxes().is_empty());
    }

    #[tokio::test]
    async fn a_failure_removes_the_sandbox() {
        let backend = FakeBackend::start().await;
        backend.next_command(&[OUT], Then::End);
        let (result, out, _) = run_line(&backend, &["run", "--", "x"], &mut Never).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.exit_code(Role::StandIn), 125);
        assert_eq!(out, "out\n");
        assert!(backend.sandboxes().is_empty());
    }
}
