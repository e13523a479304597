//! Commands that need no shell, beside the same commands with one.

use std::{os::unix::fs::symlink, path::Path};

use osb_api::execd::{Event, EventKind};
use osb_sys::fs;
use serde_json::{Value, json};

use crate::daemon::{Daemon, is_root, outcome, stdout, texts};

/// All that a client can tell about how a command went. Variables and descriptors have no order.
fn told(events: &[Event]) -> Value {
    let mut lines = stdout(events);
    lines.sort_unstable();
    let last = events.last().unwrap();
    json!([lines, texts(events, EventKind::Stderr), outcome(events), last.kind, last.error])
}

/// Runs a command as a client would, and by a shell that is named; both must look the same.
async fn compare(daemon: &Daemon, text: &str, with: &Value) -> Vec<Event> {
    let ask = |key: &str, value: Value| {
        let mut asked = with.clone();
        asked.as_object_mut().unwrap().insert(key.to_owned(), value);
        daemon.run(asked)
    };
    let direct = ask("command", json!(text)).await;
    let shell = ask("argv", json!(["bash", "-c", text])).await;
    assert_eq!(told(&direct), told(&shell), "{text:?} {with}");
    direct
}

/// A directory with files of all kinds that somebody may want to execute.
fn place() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::set_mode(top.path(), 0o755).unwrap();
    let make = |name: &str, mode, content: &str| {
        fs::write(top.path().join(name), content).unwrap();
        fs::set_mode(top.path().join(name), mode).unwrap();
    };
    make("script", 0o755, "#!/bin/sh\necho \"$0\" \"$@\" \"$PWD\"; exit 3\n");
    make("echo", 0o755, "#!/bin/sh\necho not the one of bash\n");
    make("headless", 0o755, "echo \"$0\" \"$@\" $SHLVL; exit 4\n");
    make("inert", 0o644, "#!/bin/sh\necho never\n");
    make("private", 0o700, "#!/bin/sh\necho mine\n");
    make("lost", 0o755, "#!/no/such/interpreter\n");
    make("broken", 0o755, "\x7fELF");
    make("empty", 0o755, "");
    make("suicide", 0o755, "#!/bin/sh\nkill -TERM $$\n");
    make("if", 0o755, "#!/bin/sh\necho never\n");
    fs::create_dir(top.path().join("ls"), 0o755).unwrap();
    symlink("script", top.path().join("link")).unwrap();
    symlink("nothing", top.path().join("dangling")).unwrap();
    top
}

#[tokio::test]
async fn a_command_without_a_shell_is_as_with_one() {
    let (daemon, place) = (Daemon::start(), place());
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    let with = json!({"cwd": place.path(), "envs": {"PATH": path}});
    for text in [
        "env",
        " \tenv  ",
        "/usr/bin/env",
        "/usr/bin//env",
        "../../usr/bin/env",
        "env A=b env",
        "A=b env",
        "env -i",
        "echo hello",
        "echo",
        "echo a  b\tc a=b %1 +x , @",
        "echo -n a",
        "echo -e a",
        "/bin/echo -n a",
        "true",
        "false",
        "false a",
        "true --help",
        "true a --version",
        "pwd",
        "printf %s a",
        "test -e a",
        "cat /proc/self/cmdline",
        "cat /nowhere",
        "cat",
        "ls",
        "ls -d /",
        "ls /proc/self/fd",
        "grep -e Sig -e Shd -e Groups -e NoNew -e Seccomp /proc/self/status",
        "cat /proc/self/limits",
        "bash",
        "bash -c env",
        "sh -c env",
        "script",
        "script a b",
        "./script a",
        "link a",
        "./link",
        "headless a",
        "./headless a",
        "inert",
        "./inert",
        "private",
        "lost",
        "./lost",
        "broken",
        "empty",
        "./empty",
        "suicide",
        "dangling",
        "./dangling",
        "./ls",
        "script/",
        "./script/",
        "/",
        ".",
        "..",
        ":",
        "if",
        "if a",
        "time true",
        "exit 7",
        "-l",
        "-x true",
        "+x true",
        "%1",
        "=",
        "a=b",
        "no-such-program-here",
        "/no/such/program",
        "command env",
        "exec env",
        "nice env",
        "sleep 0",
        "echo a;",
        "echo a\n",
        "\n",
        "echo $0 $SHLVL",
        "echo ~ {a,b} *",
        "echo a # b",
        "mkdir",
    ] {
        compare(&daemon, text, &with).await;
    }
    let long = format!("echo {}", "a ".repeat(40_000));
    compare(&daemon, &long, &with).await;
    let long = format!("echo {}", "a".repeat(60_000));
    assert_eq!(stdout(&compare(&daemon, &long, &with).await).concat().len(), 60_000);
}

#[tokio::test]
async fn variables_arrive_as_from_a_shell() {
    let (daemon, place) = (Daemon::start(), place());
    let script = place.path().join("script");
    let values = ["", "5", "/usr", "xx_YY.UTF-8", "C", "() { echo a; }"];
    for name in [
        "A",
        "a.b",
        "1",
        "BASHOPTS",
        "BASH_ENV",
        "BASH_FUNC_env%%",
        "BASH_COMPAT",
        "COLUMNS",
        "CDPATH",
        "ENV",
        "EUID",
        "HISTFILE",
        "HOME",
        "HOSTNAME",
        "IFS",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LINES",
        "MAIL",
        "OLDPWD",
        "OPTIND",
        "POSIXLY_CORRECT",
        "PPID",
        "PROMPT_COMMAND",
        "PS1",
        "PS3",
        "PS4",
        "PWD",
        "SHELL",
        "SHELLOPTS",
        "SHLVL",
        "SSH_CLIENT",
        "TERM",
        "TMPDIR",
        "TZ",
        "UID",
        "USER",
        "_",
    ] {
        for value in values {
            let with = json!({"cwd": "/usr", "envs": {name: value}});
            compare(&daemon, "/usr/bin/env", &with).await;
        }
    }
    let with = json!({"envs": {"BASH_ENV": script}});
    let events = compare(&daemon, "env", &with).await;
    assert_eq!(outcome(&events), "3", "bash reads what it is told to");
}

#[tokio::test]
async fn a_directory_and_a_path_are_told_as_by_a_shell() {
    let (daemon, place) = (Daemon::start(), place());
    let top = place.path();
    symlink("/usr", top.join("usr")).unwrap();
    for cwd in ["/", "//", "/usr/", "/usr/../usr/bin", "usr"].map(Path::new) {
        compare(&daemon, "env", &json!({"cwd": cwd})).await;
    }
    compare(&daemon, "env", &json!({"cwd": top.join("usr/bin")})).await;
    compare(&daemon, "./env", &json!({"cwd": top.join("usr/bin")})).await;
    let top = top.to_str().unwrap();
    for path in [
        format!("{top}:/usr/bin"),
        format!("{top}/:/usr/bin"),
        format!("{top}//usr/bin/:/usr/bin"),
        format!("{top}/script:{top}/nothing:/usr/bin"),
        format!(":{top}:/usr/bin"),
        format!(".:{top}:/usr/bin"),
        format!("~:{top}:/usr/bin"),
        format!("{top}:/usr/bin:"),
    ] {
        for text in ["env", "script", "ls /", "echo a", "inert", "if"] {
            compare(&daemon, text, &json!({"envs": {"PATH": path}, "cwd": top})).await;
        }
    }
}

#[tokio::test]
async fn another_user_is_told_what_a_shell_would_say() {
    if !is_root() {
        return;
    }
    let (daemon, place) = (Daemon::start(), place());
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    let with = json!({"uid": 65534, "gid": 7, "cwd": place.path(), "envs": {"PATH": path}});
    for text in ["id", "env", "echo a", "private", "./private", "script", "headless", "ls /root"] {
        compare(&daemon, text, &with).await;
    }
    let closed = json!({"uid": 65534, "cwd": "/root"});
    compare(&daemon, "env", &closed).await;
    fs::set_mode(place.path(), 0o700).unwrap();
    for text in ["env", "script", "./script", "ls"] {
        compare(&daemon, text, &with).await;
    }
}

#[tokio::test]
async fn input_limits_and_ends_are_those_of_any_command() {
    let daemon = Daemon::start();
    compare(&daemon, "cat", &json!({"stdin": "a\nb"})).await;
    compare(&daemon, "sleep 5", &json!({"timeout": 50})).await;
    compare(&daemon, "seq 1 9", &json!({"output_limit": 6})).await;
    compare(&daemon, "timeout -s INT 0.1 sleep 5", &json!({})).await;
}
