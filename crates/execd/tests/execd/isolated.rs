//! Isolated sessions, made by an execd that is root of this machine.

use std::path::Path;

use http::{Method, StatusCode};
use osb_api::execd::{
    Event, IsolatedCapabilities, IsolatedCreated, IsolatedList, IsolatedRun, IsolatedRunStarted,
    IsolatedSession, Work,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{Daemon, bytes, error, events, is_root, outcome, request, stdout, wait_for};

/// A session, and what it works on.
struct Isolated {
    daemon: Daemon,
    id: String,
    work: TempDir,
}

impl Isolated {
    async fn open(more: Value) -> Self {
        let work = work();
        let daemon = Daemon::with(&[], &[("SOME_TOKEN", "secret"), ("EDITOR", "ed")]);
        let id = open(&daemon, &wish(&work, more)).await;
        Self { daemon, id, work }
    }

    async fn in_mode(mode: &str) -> Self {
        Self::open(json!({"mode": mode})).await
    }

    async fn run(&self, code: &str) -> Vec<Event> {
        run(&self.daemon, &self.id, code).await
    }

    /// What a run prints, in one line.
    async fn says(&self, code: &str) -> String {
        stdout(&self.run(code).await).join(" ")
    }

    async fn works(&self, code: &str) -> bool {
        outcome(&self.run(code).await) == "0"
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.work.path().join(name)
    }
}

fn work() -> TempDir {
    let work = tempfile::tempdir().unwrap();
    osb_sys::fs::write(work.path().join("old"), "old").unwrap();
    work
}

/// A request for a session with a workspace and whatever else `others` says; `mode` is for the
/// workspace.
fn wish(work: &TempDir, mut others: Value) -> Value {
    let mode = others.as_object_mut().unwrap().remove("mode");
    let mut wish = json!({"workspace": {"path": work.path(), "mode": mode}});
    wish.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    wish
}

async fn open(daemon: &Daemon, wish: &Value) -> String {
    let response = daemon.send(request(Method::POST, SESSION, wish.to_string())).await;
    let status = response.status();
    let answer = bytes(response).await;
    assert_eq!(status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&answer));
    let made: IsolatedCreated = serde_json::from_slice(&answer).unwrap();
    made.session_id.to_string()
}

async fn refused(daemon: &Daemon, wish: &Value) -> (StatusCode, String) {
    let response = daemon.send(request(Method::POST, SESSION, wish.to_string())).await;
    let (status, body) = error(response).await;
    (status, body.message)
}

async fn run(daemon: &Daemon, id: &str, code: &str) -> Vec<Event> {
    let body = json!({"code": code}).to_string();
    events(daemon.send(request(Method::POST, &format!("{SESSION}/{id}/run"), body)).await).await
}

async fn read<T: serde::de::DeserializeOwned>(daemon: &Daemon, path: &str) -> T {
    serde_json::from_slice(&bytes(daemon.get(path).await).await).unwrap()
}

fn read_text(path: impl AsRef<Path>) -> Option<String> {
    osb_sys::fs::read_to_string(path).ok()
}

const SESSION: &str = "/v1/isolated/session";

#[tokio::test]
async fn writes_to_an_overlay_stay_in_the_session() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("overlay").await;
    let changed = "echo new > old; echo more > added; mkdir d; mv added d/; rm -f gone; cat old";
    assert_eq!(session.says(changed).await, "new");
    assert_eq!(
        session.says("cat old d/added; pwd").await,
        format!("new more {}", session.work.path().display())
    );
    assert_eq!(read_text(session.path("old")).unwrap(), "old");
    assert!(!session.path("d").exists());
}

#[tokio::test]
async fn a_workspace_is_written_to_or_not_as_was_asked() {
    if !is_root() {
        return;
    }
    let writable = Isolated::in_mode("rw").await;
    assert!(writable.works("echo new > old").await);
    assert_eq!(read_text(writable.path("old")).unwrap(), "new\n");
    let read_only = Isolated::in_mode("ro").await;
    assert!(!read_only.works("echo new > old").await);
    assert!(!read_only.works("touch added").await);
    assert_eq!(read_only.says("cat old").await, "old");
}

#[tokio::test]
async fn everything_else_is_read_only() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    for path in ["/x", "/etc/passwd", "/root/x", "/usr/x", "/var/tmp/x", "/dev/x", "/sys/x"] {
        assert!(!session.works(&format!("echo >> {path}")).await, "{path}");
    }
    for path in ["/tmp/x", "/run/x", "/dev/shm/x", "/dev/null"] {
        assert!(session.works(&format!("echo >> {path}")).await, "{path}");
    }
    assert!(!Path::new("/run/x").exists() && !Path::new("/dev/shm/x").exists());
}

#[tokio::test]
async fn the_strict_profile_has_its_own_tmp_and_the_balanced_one_shares_it() {
    if !is_root() {
        return;
    }
    let shared = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let look = format!("test -e {}", shared.path().display());
    let strict = Isolated::open(json!({"profile": "strict"})).await;
    assert!(!strict.works(&look).await);
    assert_eq!(strict.says("echo $SOME_TOKEN-$EDITOR").await, "-ed");
    let balanced = Isolated::open(json!({"profile": "balanced"})).await;
    assert!(balanced.works(&look).await);
    assert_eq!(balanced.says("echo $SOME_TOKEN-$EDITOR").await, "secret-ed");
    let allow = json!({"env_passthrough": {"mode": "allow", "keys": ["SOME_TOKEN"]}});
    assert_eq!(Isolated::open(allow).await.says("echo $SOME_TOKEN-$EDITOR").await, "secret-");
}

#[tokio::test]
async fn a_session_sees_and_reaches_only_its_own_processes() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    let outer = std::process::id();
    assert!(!session.works(&format!("kill -0 {outer} || test -e /proc/{outer}/status")).await);
    assert_eq!(session.says("cat /proc/1/comm").await, "execd");
    // Its first process cannot be killed from within, and whoever kills everything kills itself.
    session.run("kill -9 1; kill -TERM 1; kill -9 -1").await;
    assert!(session.works("true").await);
    for secret in ["environ", "mem", "root/etc/passwd", "fd/3", "fd/4"] {
        assert!(!session.works(&format!("head -c 1 /proc/1/{secret}")).await, "{secret}");
    }
    assert_eq!(session.says("ipcs -q | grep -c 0x; hostname other; true").await, "0");
}

#[tokio::test]
async fn a_session_has_no_power_over_its_view() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("ro").await;
    for attempt in [
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /",
        "mount --bind /tmp /etc",
        "umount /proc",
        "umount -l /tmp",
        "chroot / mount -o remount,rw /",
        "nsenter --target 1 --mount true",
        "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk",
        "mknod /dev/shm/mem c 1 1 && head -c 1 /dev/shm/mem",
        "unshare --mount true",
        "swapoff -a && dmesg",
    ] {
        assert!(!session.works(attempt).await, "{attempt}");
    }
    let powers = session.says("grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status").await;
    assert_eq!(powers, "CapBnd:\t00000000a80425fb NoNewPrivs:\t1 Seccomp:\t2");
}

#[tokio::test]
async fn a_session_without_the_network_has_only_itself_to_talk_to() {
    if !is_root() {
        return;
    }
    let alone = Isolated::open(json!({"share_net": false})).await;
    assert_eq!(alone.says("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo");
    let port = alone.daemon.port();
    let dial = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    assert!(!alone.works(&dial).await);
    let shared = Isolated::open(json!({"share_net": true})).await;
    let dial = format!("exec 3<>/dev/tcp/127.0.0.1/{}", shared.daemon.port());
    assert!(shared.works(&dial).await);
}

#[tokio::test]
async fn a_session_runs_as_who_was_asked_for() {
    if !is_root() {
        return;
    }
    let other = Isolated::open(json!({"uid": 1234, "gid": 2345, "uid_mode": "setpriv"})).await;
    assert_eq!(
        other.says("id -u; id -g; grep CapEff /proc/self/status").await,
        "1234 2345 CapEff:\t0000000000000000"
    );
    assert!(!other.works("echo new > old").await);
    let state: IsolatedSession = read(&other.daemon, &format!("{SESSION}/{}", other.id)).await;
    assert_eq!((state.request.uid, state.request.gid), (Some(1234), Some(2345)));
}

#[tokio::test]
async fn a_layer_is_kept_when_asked_and_found_by_the_next_session() {
    if !is_root() {
        return;
    }
    let work = work();
    let daemon = Daemon::start();
    let wish = |persist| json!({"overlays": [{"path": work.path(), "persist": persist}]});
    let first = open(&daemon, &wish(json!(true))).await;
    run(&daemon, &first, "echo kept > kept; rm old").await;
    let (status, why) = refused(&daemon, &wish(json!(true))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{why}");
    assert!(why.contains("another session"), "{why}");
    let other = open(&daemon, &wish(json!(null))).await;
    assert_eq!(stdout(&run(&daemon, &other, "ls").await), ["old"]);
    let gone = daemon.send(request(Method::DELETE, &format!("{SESSION}/{first}"), "")).await;
    assert_eq!(gone.status(), StatusCode::OK);
    let again = open(&daemon, &wish(json!(true))).await;
    assert_eq!(stdout(&run(&daemon, &again, "ls").await), ["kept"]);
    assert!(work.path().join("old").exists());
}

#[tokio::test]
async fn what_is_bound_appears_where_it_was_asked_for() {
    if !is_root() {
        return;
    }
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    osb_sys::fs::write(other.path().join("file"), "content").unwrap();
    let extra = tempfile::tempdir_in("/var/tmp").unwrap();
    let session = Isolated::open(json!({
        "binds": [
            {"source": other.path(), "dest": "/tmp/a/b", "readonly": true},
            {"source": other.path().join("file"), "dest": "/run/one"},
        ],
        "extra_writable": [extra.path()],
    }))
    .await;
    assert_eq!(session.says("cat /tmp/a/b/file /run/one").await, "contentcontent");
    assert!(!session.works("touch /tmp/a/b/file").await);
    assert!(session.works("echo changed > /run/one").await);
    assert_eq!(read_text(other.path().join("file")).unwrap(), "changed\n");
    assert!(session.works(&format!("touch {}/x", extra.path().display())).await);
    assert!(extra.path().join("x").exists());
}

#[tokio::test]
async fn nothing_leads_a_bind_out_of_the_sandbox() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let work = work();
    let at = |name: &str| work.path().join(name);
    osb_sys::fs::symlink("/proc/1/root/etc", at("magic")).unwrap();
    osb_sys::fs::symlink("/proc/self/fd", at("descriptors")).unwrap();
    osb_sys::fs::symlink("loop", at("loop")).unwrap();
    osb_sys::fs::symlink("/proc/sys", at("kernel")).unwrap();
    let made = daemon.run(json!({"argv": ["mkfifo", at("fifo")]})).await;
    assert_eq!(outcome(&made), "0");
    osb_sys::fs::symlink("/", at("root")).unwrap();
    osb_sys::fs::symlink("/dev", at("devices")).unwrap();
    for source in ["magic", "loop", "fifo", "nowhere", "root", "devices", "kernel", "descriptors"] {
        let bind = json!({"binds": [{"source": at(source), "dest": "/tmp/x"}]});
        let (status, why) = refused(&daemon, &wish(&work, bind)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{source}: {why}");
    }
    for lower in ["kernel", "fifo"] {
        let overlay = json!({"overlays": [{"path": at(lower)}]});
        let (status, why) = refused(&daemon, &overlay).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{lower}: {why}");
    }
    // And after all that it still makes sessions.
    for _ in 0..3 {
        let id = open(&daemon, &wish(&work, json!({"mode": "overlay"}))).await;
        assert_eq!(outcome(&run(&daemon, &id, "rm old").await), "0");
    }
}

#[tokio::test]
async fn what_cannot_be_a_session_is_refused_with_a_reason() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start();
    let many: Vec<_> = (0..17).map(|n| json!({"path": format!("/p{n}")})).collect();
    for (body, word) in [
        (json!({}), "workspace"),
        (json!({"overlays": []}), "workspace"),
        (json!({"workspace": {"path": "relative"}}), "absolute"),
        (json!({"workspace": {"path": "/a/../b"}}), "clean"),
        (json!({"workspace": {"path": "/"}}), "place"),
        (json!({"workspace": {"path": "/proc/1"}}), "place"),
        (json!({"workspace": {"path": "/no/such/place"}}), "/no/such/place"),
        (json!({"workspace": {"path": "/usr"}, "overlays": [{"path": "/usr"}]}), "twice"),
        (json!({"overlays": many}), "16"),
        (json!({"overlays": [{"path": "/usr", "mode": "rw", "persist": true}]}), "persist"),
        (json!({"workspace": {"path": "/usr", "mode": "wo"}}), "mode"),
        (json!({"workspace": {"path": "/usr"}, "uid": u32::MAX}), "no user"),
        (json!({"workspace": {"path": "/usr"}, "binds": [{"source": "x"}]}), "absolute"),
    ] {
        let (status, why) = refused(&daemon, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {why}");
        assert!(why.contains(word) || word == "mode", "{body}: {why}");
    }
}

#[tokio::test]
async fn files_are_those_that_the_session_sees() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("overlay").await;
    assert!(session.works("echo inside > added").await);
    let path = session.path("added");
    let route = format!("{SESSION}/{}/files/download?path={}", session.id, path.display());
    assert_eq!(bytes(session.daemon.get(&route).await).await, "inside\n");
    let outside = format!("/files/download?path={}", path.display());
    assert_eq!(session.daemon.get(&outside).await.status(), StatusCode::NOT_FOUND);
    let absent = format!("{SESSION}/{}/files/info?path=/none", session.id);
    let (status, body) = error(session.daemon.get(&absent).await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::NOT_FOUND, "FILE_NOT_FOUND"));
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_all_that_runs_in_it() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    let daemon = &session.daemon;
    let started = session.run("setsid sleep 1000 & touch started").await;
    assert_eq!(outcome(&started), "0");
    let listed: IsolatedList = read(daemon, "/v1/isolated/sessions").await;
    assert_eq!(listed.sessions.len(), 1);
    let one = format!("{SESSION}/{}", session.id);
    let inside = children(daemon);
    assert!(!inside.is_empty());
    assert_eq!(daemon.send(request(Method::DELETE, &one, "")).await.status(), StatusCode::OK);
    wait_for("its processes end", || !inside.iter().any(|pid| crate::daemon::is_alive(pid))).await;
    assert_eq!(daemon.get(&one).await.status(), StatusCode::NOT_FOUND);
    let run = request(Method::POST, &format!("{one}/run"), r#"{"code":"true"}"#);
    assert_eq!(daemon.send(run).await.status(), StatusCode::NOT_FOUND);
    let listed: IsolatedList = read(daemon, "/v1/isolated/sessions").await;
    assert!(listed.sessions.is_empty());
}

/// The first processes of all sessions of this execd, as they are numbered out here.
fn children(daemon: &Daemon) -> Vec<String> {
    let of = |pid: &str| {
        let children = read_text(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut own = of(&daemon.pid().to_string());
    own.retain(|pid| read_text(format!("/proc/{pid}/comm")).as_deref() == Some("isolator\n"));
    own.iter().flat_map(|isolator| of(isolator)).collect()
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends() {
    if !is_root() {
        return;
    }
    let session = Isolated::open(json!({"idle_timeout_seconds": 1})).await;
    let one = format!("{SESSION}/{}", session.id);
    let mut status = String::from("active");
    while status == "active" {
        let state: Value = read(&session.daemon, &one).await;
        assert!(state["idle_remaining_seconds"].as_u64().is_none_or(|left| left <= 1));
        status = state["status"].as_str().unwrap().to_owned();
        tokio::task::yield_now().await;
    }
    assert_eq!(status, "destroyed");
    let run = request(Method::POST, &format!("{one}/run"), r#"{"code":"true"}"#);
    assert_eq!(session.daemon.send(run).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_session_whose_first_process_dies_is_dead_and_its_run_says_so() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    let running = session.run("touch started; sleep 1000");
    let kill = async {
        wait_for("the run begins", || session.path("started").exists()).await;
        for pid in children(&session.daemon) {
            session.daemon.run(json!({"argv": ["kill", "-9", pid]})).await;
        }
    };
    let (events, ()) = tokio::join!(running, kill);
    assert_eq!(outcome(&events), "-1");
    let one = format!("{SESSION}/{}", session.id);
    let mut status = String::from("active");
    while status == "active" {
        let state: Value = read(&session.daemon, &one).await;
        status = state["status"].as_str().unwrap().to_owned();
    }
    assert_eq!(status, "dead");
}

#[tokio::test]
async fn what_this_execd_can_do_is_told() {
    let daemon = Daemon::start();
    let told: IsolatedCapabilities = read(&daemon, "/v1/isolated/capabilities").await;
    assert_eq!(told.available, told.message.is_none());
    if is_root() {
        assert!(told.available && told.hardening.is_some_and(|hardening| hardening.signal_shield));
    }
    let unknown = format!("{SESSION}/7d1b2c2e-92b5-4c3c-8f3e-7a1e3c1d6f10");
    let (status, body) = error(daemon.get(&unknown).await).await;
    assert_eq!((status, body.code.as_str()), (StatusCode::NOT_FOUND, "CONTEXT_NOT_FOUND"));
    let without = Daemon::under(&["setpriv", "--bounding-set=-sys_admin"]);
    let told: IsolatedCapabilities = read(&without, "/v1/isolated/capabilities").await;
    assert!(!told.available && told.message.unwrap().contains("CAP_SYS_ADMIN"));
    let (status, _) = refused(&without, &json!({"workspace": {"path": "/usr"}})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_run_in_the_background_is_followed_by_its_id() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    let daemon = &session.daemon;
    let code = "echo $NAME; while ! test -e go; do sleep 0.01; done; echo over; exit 3";
    let body = json!({"code": code, "background": true, "envs": {"NAME": "a b"}}).to_string();
    let one = format!("{SESSION}/{}", session.id);
    let response = daemon.send(request(Method::POST, &format!("{one}/run"), body)).await;
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let started: IsolatedRunStarted = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!(started.session_id.to_string(), session.id);
    let route = format!("{one}/runs/{}", started.run_id);
    let status: IsolatedRun = read(daemon, &route).await;
    assert!(status.running && status.exit_code.is_none() && status.started_at.is_some());
    assert_eq!(read::<Work>(daemon, "/work").await.running, 1, "it is work of the sandbox");
    osb_sys::fs::write(session.path("go"), "").unwrap();
    let mut status: IsolatedRun = read(daemon, &route).await;
    while status.running {
        status = read(daemon, &route).await;
    }
    assert_eq!((status.exit_code, status.run_id), (Some(3), started.run_id));
    assert_eq!(read::<Work>(daemon, "/work").await.running, 0);
    let logs = daemon.get(&format!("{route}/logs")).await;
    assert_eq!(logs.headers()[osb_api::headers::ISOLATED_CURSOR], "9");
    assert_eq!(bytes(logs).await, "a b\nover\n");
    assert_eq!(bytes(daemon.get(&format!("{route}/logs?cursor=4")).await).await, "over\n");
    let unknown = format!("{one}/runs/7d1b2c2e-92b5-4c3c-8f3e-7a1e3c1d6f10");
    assert_eq!(daemon.get(&unknown).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_run_has_its_own_variables_and_limit() {
    if !is_root() {
        return;
    }
    let session = Isolated::in_mode("rw").await;
    let route = format!("{SESSION}/{}/run", session.id);
    let body = json!({"code": "echo \"$A\"; env | grep ^A=", "envs": {"A": "it's"}}).to_string();
    let ran = events(session.daemon.send(request(Method::POST, &route, body)).await).await;
    assert_eq!(stdout(&ran), ["it's", "A=it's"]);
    assert_eq!(session.says("echo \"<$A>\"").await, "<>");
    let body = json!({"code": "sleep 1000", "timeout_seconds": 1}).to_string();
    let ran = events(session.daemon.send(request(Method::POST, &route, body)).await).await;
    assert_ne!(outcome(&ran), "0");
}
