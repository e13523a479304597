use std::{io::Read as _, path::Path};

use bytes::Bytes;
use clap::Parser as _;
use opensandbox::testkit::{ScriptedServer, Then, reply, stream_reply};
use osb_image::{Contained, Limits as ImageLimits, Parcel};
use osb_sys::fs;

use super::*;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

const BUILT: [&str; 5] = [
    "{\"type\":\"began\",\"step\":\"0.1\",\"title\":\"[1/2] FROM debian\"}\n",
    "{\"type\":\"cached\",\"step\":\"0.1\"}\n",
    "{\"type\":\"began\",\"step\":\"0.2\",\"title\":\"[2/2] COPY . .\"}\n",
    "{\"type\":\"done\",\"step\":\"0.2\",\"milliseconds\":20}\n",
    "{\"type\":\"image\",\"digest\":\"sha256:a\",\"names\":[\"x\"]}\n",
];

async fn run(words: &[&str]) -> (Result<u8, Failure>, String, String, Option<Bytes>) {
    let server = ScriptedServer::start(|request| match request.uri().path() {
        "/v1/images/build" => stream_reply(BUILT, Then::End),
        _ => reply(404, r#"{"code":"GENERAL::NOT_FOUND","message":"no such route"}"#),
    })
    .await;
    let domain = server.address().to_string();
    let first = ["build", "--domain", &domain];
    let line = first.iter().chain(words);
    let args = Line::try_parse_from(line).unwrap().args;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output::new(&mut out, &mut err);
    let code = main(args, &Environment::default(), &mut output).await;
    let body = server.seen().pop().map(http::Request::into_body);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), body)
}

/// What the archive says is to be built, and the paths of its files with their content.
fn unpack(archive: &[u8]) -> (BuildRequest, Vec<(String, String)>) {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, archive).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let mut parcel = Parcel::open(file, ImageLimits::default()).unwrap();
    let (mut request, mut found) = (None, Vec::new());
    while let Some(piece) = parcel.piece().unwrap() {
        let mut content = String::new();
        match &piece.what {
            Contained::File { .. } => drop(parcel.content().read_to_string(&mut content).unwrap()),
            Contained::Symlink(to) => content = format!("-> {}", String::from_utf8_lossy(to)),
            Contained::Directory => content = "directory".to_owned(),
            Contained::Link(_) | Contained::Fifo | Contained::Device => panic!("{piece:?}"),
        }
        if request.is_none() {
            assert_eq!(piece.path, Path::new("build.json"));
            request = Some(serde_json::from_str(&content).unwrap());
        } else {
            found.push((piece.path.to_str().unwrap().to_owned(), content));
        }
    }
    (request.unwrap(), found)
}

fn paths(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(path, _)| path.as_str()).collect()
}

#[tokio::test]
async fn a_directory_is_built_without_what_is_ignored() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
    for directory in ["src", "node_modules/x", "kept/deep"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    write("Dockerfile", "FROM debian\nCOPY . .\n");
    write(".dockerignore", "node_modules\nDockerfile\nkept\n!kept/deep/b\n*.log\n");
    write("src/a", "hello");
    write("node_modules/x/y", "no");
    write("kept/a", "no");
    write("kept/deep/b", "yes");
    write("x.log", "no");
    fs::symlink("src/a", root.path().join("link")).unwrap();
    let secret = root.path().join("x.log");
    let secret = format!("id=token,src={}", secret.display());
    let context = root.path().to_str().unwrap();
    let words = [
        "-t",
        "x",
        "-t",
        "y:1",
        "--build-arg",
        "A=b=c",
        "--label",
        "k=v",
        "--target",
        "last",
        "--secret",
        &secret,
        "--memory",
        "1Gi",
        "--allow",
        "pypi.org",
        "--no-cache",
        context,
    ];
    let (code, out, err, body) = run(&words).await;
    assert_eq!((code.unwrap(), out.as_str()), (0, "sha256:a\n"));
    assert!(
        err.contains("osb: CACHED [1/2] FROM debian\nosb: DONE 0.0s [2/2] COPY . .\n"),
        "{err}"
    );
    let (request, found) = unpack(&body.unwrap());
    assert_eq!(request.names, ["x", "y:1"]);
    assert_eq!(request.dockerfile.as_deref(), Some("Dockerfile"));
    assert_eq!((request.args["A"].as_str(), request.labels["k"].as_str()), ("b=c", "v"));
    assert_eq!(request.secrets["token"].reveal(), "bm8=");
    assert_eq!(request.resource_limits.unwrap()["memory"], "1Gi");
    assert_eq!(request.network_policy.unwrap().egress[0].target, "pypi.org");
    assert!(request.no_cache && request.content.is_none());
    assert_eq!(
        paths(&found),
        [
            "context",
            "context/.dockerignore",
            "context/Dockerfile",
            "context/kept",
            "context/kept/deep",
            "context/kept/deep/b",
            "context/link",
            "context/src",
            "context/src/a",
        ]
    );
    assert_eq!(found[6].1, "-> src/a");
    assert_eq!(found[8].1, "hello");
}

#[tokio::test]
async fn a_dockerfile_from_elsewhere_is_sent_along() {
    let root = tempfile::tempdir().unwrap();
    let context = root.path().join("context");
    fs::create_dir_all(context.join("docker")).unwrap();
    fs::write(context.join("a"), "").unwrap();
    fs::write(context.join("b"), "").unwrap();
    fs::write(context.join("docker/Dockerfile"), "FROM inside\n").unwrap();
    fs::write(context.join("docker/Dockerfile.dockerignore"), "a").unwrap();
    fs::write(root.path().join("Other"), "FROM outside\n").unwrap();
    fs::write(root.path().join("Other.dockerignore"), "b\ndocker").unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (inside, outside) = (context.join("docker/Dockerfile"), root.path().join("Other"));
    let (code, .., body) = run(&["-f", &text(&inside), &text(&context)]).await;
    code.unwrap();
    let (request, found) = unpack(&body.unwrap());
    assert_eq!(request.dockerfile.as_deref(), Some("docker/Dockerfile"));
    assert!(!paths(&found).contains(&"context/a") && paths(&found).contains(&"context/b"));
    assert!(paths(&found).contains(&"context/docker/Dockerfile.dockerignore"));
    let (code, .., body) = run(&["-f", &text(&outside), &text(&context)]).await;
    code.unwrap();
    let (request, found) = unpack(&body.unwrap());
    assert_eq!(request.content.as_deref(), Some("FROM outside\n"));
    // Errors name it so.
    assert_eq!(request.dockerfile.as_deref(), Some("Other"));
    assert_eq!(paths(&found), ["context", "context/a"]);
}

#[tokio::test]
async fn what_cannot_be_built_is_refused_before_anything_is_sent() {
    let root = tempfile::tempdir().unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let refused = async |words: &[&str]| {
        let (code, _, _, body) = run(words).await;
        assert_eq!(body, None);
        code.unwrap_err().report().unwrap()
    };
    let empty = refused(&[&text(root.path())]).await;
    assert!(empty.contains("no Dockerfile") && empty.contains("-f"), "{empty}");
    assert!(refused(&["/nonexistent"]).await.contains("/nonexistent"));
    assert!(refused(&["https://example.com/x.git"]).await.contains("no directory"));
    fs::write(root.path().join("Dockerfile"), "FROM x").unwrap();
    fs::write(root.path().join(".dockerignore"), "[a").unwrap();
    assert!(refused(&[&text(root.path())]).await.contains(".dockerignore:1"));
    fs::write(root.path().join(".dockerignore"), "").unwrap();
    let missing = ["--secret", "id=a,src=/nonexistent", &text(root.path())];
    assert!(refused(&missing).await.contains("/nonexistent"));
}

#[tokio::test]
async fn a_file_that_cannot_be_packed_is_named() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("Dockerfile"), "FROM x").unwrap();
    fs::write(root.path().join(".wh.odd"), "").unwrap();
    let (code, ..) = run(&[root.path().to_str().unwrap()]).await;
    let report = code.unwrap_err().report().unwrap();
    assert!(report.contains(".wh.odd"), "{report}");
}

#[test]
fn arguments_without_a_value_are_variables() {
    let args = build_args(&["A=1".to_owned(), "PATH".to_owned(), "NO_SUCH_VARIABLE".to_owned()]);
    assert_eq!(args["A"], "1");
    assert!(!args["PATH"].is_empty() && !args.contains_key("NO_SUCH_VARIABLE"));
}
