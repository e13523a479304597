use std::fmt::Write as _;

use super::*;
use crate::{
    dockerfile::{Dockerfile, Reach},
    plan::{Source, Wanted},
};

fn plan(text: &str, args: &[(&str, &str)]) -> Plan {
    let args = args.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let wanted = Wanted { args, ..Wanted::new() };
    let file = Dockerfile::parse("Dockerfile", text.as_bytes()).unwrap_or_else(|p| panic!("{p}"));
    Plan::new(file, wanted).unwrap_or_else(|problem| panic!("{problem}"))
}

/// All steps of the last stage, and what is known at its end.
fn run(plan: &Plan) -> Result<(Vec<Step>, Scope<'_>), Fault> {
    let mut scope = Scope::scratch(plan, plan.target());
    let stage = &plan.file.stages[plan.target()];
    let steps = stage.steps.iter().map(|said| scope.take(said)).collect::<Result<_, _>>()?;
    Ok((steps, scope))
}

fn last(text: &str) -> Step {
    let plan = plan(&format!("FROM scratch AS other\nFROM scratch\n{text}"), &[]);
    run(&plan).unwrap_or_else(|fault| panic!("{text}: {fault}")).0.pop().unwrap()
}

fn refused(text: &str) -> String {
    let plan = plan(&format!("FROM scratch AS other\nFROM scratch\n{text}"), &[]);
    match run(&plan) {
        Ok((steps, _)) => panic!("{text} is possible: {steps:?}"),
        Err(Fault(what)) => what,
    }
}

fn order(text: &str) -> Order {
    let Step::Run(order) = last(text) else { panic!("{text}") };
    order
}

fn moved(text: &str) -> Moved {
    let Step::Transfer(moved) = last(text) else { panic!("{text}") };
    moved
}

#[test]
fn variables_live_in_their_stage_and_kept_ones_win() {
    let text = "ARG G=global U\nFROM scratch\nARG A=1 G U B=$A\nENV E=$A-$G A=env F=$E\nENV H=$A$F\nRUN x\n";
    let plan = plan(text, &[("U", "given"), ("HTTP_PROXY", "p"), ("UNKNOWN", "x")]);
    let (steps, scope) = run(&plan).unwrap();
    let Some(Step::Run(order)) = steps.last() else { panic!() };
    let seen: BTreeMap<&str, &str> =
        order.environment.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(seen["E"], "1-global");
    // The values from before the instruction.
    assert_eq!((seen["A"], seen["F"], seen["H"]), ("env", "", "env"));
    assert_eq!((seen["G"], seen["U"], seen["B"], seen["PATH"]), ("global", "given", "", PATH));
    assert!(!seen.contains_key("UNKNOWN") && !seen.contains_key("HTTP_PROXY"));
    assert_eq!(order.beside, [("HTTP_PROXY".to_owned(), "p".to_owned())]);
    let kept = &scope.configuration.config.env;
    assert_eq!(
        kept,
        &[format!("PATH={PATH}"), "E=1-global".into(), "A=env".into(), "F=".into(), "H=env".into()]
    );
}

#[test]
fn commands_go_through_the_shell_of_the_stage() {
    assert_eq!(order("RUN a && b").arguments, ["/bin/sh", "-c", "a && b"]);
    assert_eq!(order("SHELL [\"/bin/bash\", \"-ec\"]\nRUN a").arguments, ["/bin/bash", "-ec", "a"]);
    assert_eq!(order("RUN [\"a\", \"$b\"]").arguments, ["a", "$b"]);
    assert_eq!(order("RUN <<-EOF\n\ta\n\tb\nEOF\n").arguments[2], "a\nb\n");
    assert_eq!(
        order("RUN cat <<A <<'B' >x\n1\nA\n2\nB\n").arguments[2],
        "cat <<A <<'B' >x\n1\nA\n2\nB\n"
    );
    let script = order("RUN <<EOF\n#!/usr/bin/python3\nprint(1)\nEOF\n");
    assert_eq!(script.arguments, ["/.opensandbox-build/EOF"]);
    assert!(script.script.unwrap().content.starts_with("#!/usr/bin/python3\n"));
    let order = order("USER app:web\nWORKDIR /a\nWORKDIR b/../c\nRUN --network=none x");
    assert_eq!((order.user.as_deref(), order.workdir.as_str()), (Some("app:web"), "/a/c"));
    assert_eq!(order.network, Reach::Nothing);
    for text in ["RUN []", "RUN [\"\"]", "RUN [\"a\\u0000\"]", "RUN <<a/b\n#!/bin/sh\na/b\n"] {
        refused(text);
    }
}

#[test]
fn mounts_are_understood_or_refused() {
    let mounts = order(
        "ARG T=/t\nWORKDIR /w\nRUN --mount=type=cache,target=$T,sharing=locked,uid=7 \
         --mount=target=rel,from=other,src=/a/../b,rw --mount=type=tmpfs,target=/m,size=64m \
         --mount=type=secret,id=key,env=KEY --mount=type=secret,id=pw,required=true x",
    )
    .mounts;
    let id = "/t".to_owned();
    assert_eq!(
        mounts[0],
        Mounted::Cache {
            target: id.clone(),
            id,
            read_only: false,
            sharing: Sharing::Locked,
            mode: 0o755,
            user: 7,
            group: 0
        }
    );
    assert_eq!(
        mounts[1],
        Mounted::Bind {
            from: Source::Stage(0),
            source: "/b".to_owned(),
            target: "/w/rel".to_owned()
        }
    );
    assert_eq!(mounts[2], Mounted::Tmpfs { target: "/m".to_owned(), size: Some(64 << 20) });
    assert_eq!(mounts[3].target(), None);
    assert_eq!(mounts[4].target(), Some("/run/secrets/pw"));
    for mount in [
        "type=ssh",
        "type=bnid,target=/x",
        "type=cache",
        "target=/",
        "type=tmpfs,target=/x,uid=1",
        "type=secret",
        "type=secret,id=a,source=b",
        "type=cache,target=/x,from=other",
        "type=cache,target=/x,sharing=often",
        "type=tmpfs,target=/x,size=many",
        "target=/x,mode=9",
        "type=secret,id=x,required=perhaps",
        "type=cache,target",
        "target=/x,id=y",
    ] {
        refused(&format!("RUN --mount={mount} x"));
    }
}

#[test]
fn a_mount_is_for_somebody_whom_a_sandbox_has() {
    for mount in ["type=secret,id=x,uid", "type=secret,id=x,gid", "type=cache,target=/x,uid"] {
        let said = refused(&format!("RUN --mount={mount}=65536 x"));
        assert!(said.ends_with("=65536 of a mount is none that a sandbox has: they go to 65535"));
        order(&format!("RUN --mount={mount}=65535 x"));
    }
}

#[test]
fn transfers_know_where_they_go() {
    let found = moved("ARG D=d\nWORKDIR /w\nCOPY --chown=a:b --chmod=u+x a /b/../c $D/");
    assert_eq!((found.destination.as_str(), found.into_directory), ("/w/d", true));
    let path = |pattern: &str| Content::Path { base: String::new(), pattern: pattern.to_owned() };
    assert_eq!(found.contents, [path("a"), path("c")]);
    assert_eq!((found.owner.as_deref(), found.unpack), (Some("a:b"), Unpack::Nothing));
    let found = moved("COPY --parents a/./b/*.c ../../e /d/");
    assert_eq!(
        found.contents[0],
        Content::Path { base: "a".to_owned(), pattern: "b/*.c".to_owned() }
    );
    assert_eq!(found.contents[1], path("e"));
    let found = moved("ARG x=1\nCOPY <<a <<'b' /d/\n$x\na\n$x\nb\n");
    let inline =
        |name: &str, text: &str| Content::Inline { name: name.to_owned(), text: text.to_owned() };
    assert_eq!(found.contents, [inline("a", "1\n"), inline("b", "$x\n")]);
    let found = moved("ADD --unpack https://a.test/b/c.tar?x=y#z /d");
    assert!(
        matches!(&found.contents[0], Content::Fetched { name, unpack: true, .. } if name == "c.tar")
    );
    assert_eq!(moved("ADD a /").unpack, Unpack::Archives);
    assert_eq!(moved("ADD --unpack=false a /").unpack, Unpack::Nothing);
    for text in [
        "COPY https://a.test/b /",
        "ADD https://a.test/ /",
        "ADD https://a.test/b.git /",
        "ADD git@a:b /",
        "ADD --checksum=sha256:1 https://a.test/b /",
        "ADD --checksum=sha256:1 a /",
        "COPY --link --chown=a a /",
        "COPY --chmod=9 a /",
        "COPY a $NOTHING",
        "COPY --from=other --exclude=[ a /",
        "COPY 'a /",
    ] {
        refused(text);
    }
}

#[test]
fn what_an_image_says_about_itself_is_kept() {
    let text = "FROM scratch\nARG P=80\nEXPOSE $P 53/UDP 8000-8002\nVOLUME /a b\nLABEL \"a b\"=\"c d\" e=$P\n\
                USER u\nSTOPSIGNAL int\nHEALTHCHECK --interval=1s CMD x y\nCMD a\nENTRYPOINT [\"e\"]\n\
                MAINTAINER m\nONBUILD RUN x\n";
    let plan = plan(text, &[]);
    let configuration = run(&plan).unwrap().1.finish();
    let config = &configuration.config;
    let ports: Vec<&str> = config.exposed_ports.iter().map(String::as_str).collect();
    assert_eq!(ports, ["53/udp", "80/tcp", "8000/tcp", "8001/tcp", "8002/tcp"]);
    let volumes: Vec<&str> = config.volumes.iter().map(String::as_str).collect();
    assert_eq!(volumes, ["/a", "/b"]);
    assert_eq!((config.labels["a b"].as_str(), config.labels["e"].as_str()), ("c d", "80"));
    assert_eq!((config.user.as_str(), config.stop_signal.as_str()), ("u", "SIGINT"));
    assert_eq!(config.healthcheck.as_ref().unwrap().test, ["CMD-SHELL", "x y"]);
    assert_eq!(config.healthcheck.as_ref().unwrap().interval, Some(1_000_000_000));
    assert_eq!((config.cmd.len(), config.entrypoint.as_slice()), (3, &["e".to_owned()][..]));
    assert_eq!((configuration.author.as_deref(), config.on_build.len()), (Some("m"), 1));
    for text in [
        "EXPOSE 0",
        "EXPOSE 80/icmp",
        "EXPOSE 9-8",
        "EXPOSE 1:2",
        "STOPSIGNAL 99",
        "STOPSIGNAL -",
        "WORKDIR $X",
        "USER $X",
    ] {
        refused(text);
    }
}

#[test]
fn an_entrypoint_takes_the_command_of_the_base_away() {
    let text = "FROM scratch\nENTRYPOINT [\"e\"]\n";
    let plan = plan(text, &[]);
    let mut base = Configuration::default();
    base.config.cmd = vec!["old".to_owned()];
    base.config.on_build = vec!["RUN x".to_owned()];
    let mut scope = Scope::new(&plan, 0, base);
    scope.take(&plan.file.stages[0].steps[0]).unwrap();
    assert!(scope.configuration.config.cmd.is_empty());
    assert!(scope.configuration.config.on_build.is_empty());
}

#[test]
fn doubling_a_variable_comes_to_an_end() {
    let mut text = "FROM scratch\nENV a=xxxxxxxxxxxxxxxx\n".to_owned();
    for _ in 0..40 {
        text.push_str("ENV a=$a$a\n");
    }
    let doubled = plan(&text, &[]);
    assert!(run(&doubled).unwrap_err().0.contains("bytes"));
    let mut text = format!("FROM scratch\nENV a0={}\n", "x".repeat(100_000));
    for number in 1..40 {
        writeln!(text, "ENV a{number}=$a0").unwrap();
    }
    let many = plan(&text, &[]);
    assert!(run(&many).unwrap_err().0.contains("together"));
}
