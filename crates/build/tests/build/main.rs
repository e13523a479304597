//! Whole builds: a real store, real files, real commands on real overlays.
#![expect(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod chroot;
mod shop;
mod small;

use shop::Shop;

#[tokio::test]
async fn a_file_becomes_an_image() {
    let Some(shop) = Shop::new() else { return };
    shop.file("src/main.c", "int main;").file("README.md", "read").file(".dockerignore", "*.md");
    let dockerfile = "\
FROM small AS build
ARG MODE=fast
ENV LEVEL=3
WORKDIR /src
COPY src/ ./
RUN cat main.c > /out && echo \"$MODE $LEVEL $FROM_BASE $PWD $HOME\" >> /out
FROM small
RUN rm /etc/issue && mkdir -p /var/lib/x && echo state > /var/lib/x/state
COPY --from=build --chown=app --chmod=640 /out /srv/app/out
COPY . /all/
USER app
WORKDIR /srv/app/work
RUN id > who && touch /tmp/mine
CMD [\"cat\", \"/srv/app/out\"]
LABEL a=b
";
    let outcome = shop.build(dockerfile).await;
    let digest = outcome.digest();
    insta::assert_snapshot!("steps", sorted(outcome.steps()).join("\n"));
    insta::assert_snapshot!("files", shop.files(&digest).join("\n"));
    assert_eq!(shop.content(&digest, "/srv/app/out").unwrap(), "int main;fast 3 yes /src /root\n");
    assert_eq!(
        shop.content(&digest, "/srv/app/work/who").unwrap(),
        "uid=1000(app) gid=1001(app) groups=1001(app),50(extra)\n"
    );
    let mut configuration = shop.configuration(&digest);
    assert_eq!(configuration.rootfs.diff_ids.len(), 6);
    configuration.rootfs.diff_ids.clear();
    insta::assert_json_snapshot!("configuration", configuration);
}

/// Stages go side by side, so their steps begin in no order.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[tokio::test]
async fn what_was_done_before_is_not_done_again() {
    let Some(shop) = Shop::new() else { return };
    shop.file("a", "1").file("b", "2");
    let dockerfile =
        "FROM small\nWORKDIR /w\nCOPY a .\nRUN cat a > c\nCOPY b .\nRUN cat b > d\nLABEL x=y\n";
    let first = shop.build(dockerfile).await;
    assert!(!first.steps().iter().any(|step| step.ends_with("CACHED")), "{:?}", first.steps());
    shop.clock.advance(std::time::Duration::from_hours(1));
    let again = shop.build(dockerfile).await;
    assert_eq!(again.steps().iter().filter(|step| step.ends_with("CACHED")).count(), 5);
    // It says that it was made when its steps were done, so it is the same image.
    assert_eq!(again.digest(), first.digest());
    // Only what depends on the change is done again.
    shop.file("b", "3");
    let changed = shop.build(dockerfile).await;
    let how: Vec<_> =
        changed.steps().iter().map(|step| step.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(how, ["DONE", "CACHED", "CACHED", "CACHED", "DONE", "DONE"]);
    assert_eq!(shop.content(&changed.digest(), "/w/d").unwrap(), "3");
    assert_ne!(changed.digest(), first.digest());
}

#[tokio::test]
async fn a_step_is_done_again_if_it_sees_something_else() {
    let Some(mut shop) = Shop::new() else { return };
    let dockerfile = "FROM small\nARG A=1\nRUN echo $A > /a\nARG B=1\nLABEL b=$B\nRUN true\n";
    let cached = |outcome: &shop::Outcome| {
        outcome.steps().iter().filter(|step| step.ends_with("CACHED")).count()
    };
    shop.build(dockerfile).await.digest();
    assert_eq!(cached(&shop.build(dockerfile).await), 2);
    shop.arg("HTTP_PROXY", "http://p.test");
    assert_eq!(cached(&shop.build(dockerfile).await), 2);
    shop.arg("B", "2");
    assert_eq!(cached(&shop.build(dockerfile).await), 1);
    shop.arg("A", "2");
    let outcome = shop.build(dockerfile).await;
    assert_eq!(cached(&outcome), 0);
    assert_eq!(shop.content(&outcome.digest(), "/a").unwrap(), "2\n");
    shop.caching = osb_build::Caching::Renew;
    assert_eq!(cached(&shop.build(dockerfile).await), 0);
}

#[tokio::test]
async fn what_is_mounted_is_none_of_the_image() {
    let Some(mut shop) = Shop::new() else { return };
    shop.secrets.insert("key".to_owned(), osb_build::Secret::new(b"hunter2".to_vec()));
    shop.file("list", "a b").file("dir/x", "x");
    let dockerfile = "\
FROM small AS other
RUN mkdir /made && echo o > /made/o
FROM small
RUN mkdir /mnt && echo hidden > /mnt/own
RUN --mount=type=bind,source=list,target=/list \\
    --mount=type=bind,source=dir,target=/mnt \\
    --mount=type=bind,from=other,source=/made,target=/new/made \\
    --mount=type=cache,target=/var/cache/pip \\
    --mount=type=tmpfs,target=/scratch,size=1m \\
    --mount=type=secret,id=key,uid=1000 --mount=type=secret,id=key,env=KEY --mount=type=secret,id=none \\
    cat /list && ls -A /mnt && cat /new/made/o && touch /var/cache/pip/c /scratch/s /mnt/w && \\
    cat /run/secrets/key && echo \" $KEY\" && stat -c %u:%a /run/secrets/key && echo kept > /kept
RUN --mount=type=cache,target=/var/cache/pip ls /var/cache/pip && cat /mnt/own
";
    let outcome = shop.build(dockerfile).await;
    let digest = outcome.digest();
    assert_eq!(outcome.said(), ["a bx", "o", "hunter2 hunter2", "1000:400", "c", "hidden"]);
    assert_eq!(shop.files(&digest), ["kept 644 5", "mnt/ 755", "mnt/own 644 7"]);
    let everything = format!("{:?}{:?}", shop.configuration(&digest), outcome.built);
    assert!(!everything.contains("hunter2"));
    let missing = shop.build("FROM small\nRUN --mount=type=secret,id=q,required x\n").await.error();
    assert!(missing.starts_with("Dockerfile:2: the secret q is needed"), "{missing}");
}

#[tokio::test]
async fn texts_become_scripts_and_files() {
    let Some(shop) = Shop::new() else { return };
    let dockerfile = "\
FROM small
ARG WHO=world
RUN <<EOF
echo hello > /a
echo \"$WHO\" >> /a
EOF
RUN <<-SCRIPT
\t#!/usr/bin/env -S sh -e
\techo $0 > /b
\tSCRIPT
RUN cat /proc/self/fd/3 - 3<<ONE <<'TWO' > /c
$WHO
ONE
$WHO
TWO
COPY <<x <<'y' /files/
\"$WHO\" \\$WHO
x
$WHO
y
COPY --chmod=755 <<run.sh /usr/local/bin/
#!/bin/sh
run.sh
SHELL [\"/bin/sh\", \"-ec\"]
RUN false || true; echo shell > /d
";
    let outcome = shop.build(dockerfile).await;
    let digest = outcome.digest();
    for (path, content) in [
        ("/a", "hello\nworld\n"),
        ("/b", "/.opensandbox-build/SCRIPT\n"),
        ("/c", "world\n$WHO\n"),
        ("/files/x", "\"world\" $WHO\n"),
        ("/files/y", "$WHO\n"),
        ("/usr/local/bin/run.sh", "#!/bin/sh\n"),
        ("/d", "shell\n"),
    ] {
        assert_eq!(shop.content(&digest, path).as_deref(), Some(content), "{path}");
    }
    assert!(!shop.files(&digest).iter().any(|line| line.contains("opensandbox-build")));
}

#[tokio::test]
async fn what_is_not_there_is_not_copied_in_silence() {
    let Some(shop) = Shop::new() else { return };
    shop.file("u1/y", "1");
    osb_sys::fs::symlink("nowhere", shop.path("context/abs")).unwrap();
    for (copy, expected) in [
        ("u*/x /", "u*/x is not in the directory that is built"),
        ("n* u*/x /d/", "n* u*/x is not in the directory that is built"),
        ("--parents **/x /", "**/x is not in the directory that is built"),
        ("abs /", "abs is not in the directory that is built: it is a link to what is not there"),
    ] {
        let error = shop.build(&format!("FROM small\nCOPY {copy}\n")).await.error();
        assert_eq!(error.lines().next(), Some(&*format!("Dockerfile:2: {expected}")));
    }
    // Beside something else a pattern may mean nothing.
    let built = shop.build("FROM small\nCOPY u1/y u*/x /d/\n").await;
    assert_eq!(shop.content(&built.digest(), "/d/y").unwrap(), "1");
}

#[tokio::test]
async fn what_the_runtime_puts_into_a_sandbox_is_none_of_the_image_wherever_links_lead() {
    let Some(shop) = Shop::new() else { return };
    let dockerfile = "\
FROM small
RUN mkdir /srv/opt && ln -s srv/opt /opt
RUN mkdir /opt/opensandbox && touch /opt/opensandbox/.env /opt/mine
";
    let digest = shop.build(dockerfile).await.digest();
    let files = shop.files(&digest);
    assert!(files.contains(&"srv/opt/mine 644 0".to_owned()), "{files:?}");
    assert!(!files.iter().any(|file| file.contains("opensandbox")), "{files:?}");
}

#[tokio::test]
async fn a_failure_names_the_line_and_shows_the_last_words() {
    let Some(shop) = Shop::new() else { return };
    let failing =
        "FROM small\n\n# why\nRUN echo begun && \\\n    echo wrong >&2 && exit 3\nRUN never\n";
    let outcome = shop.build(failing).await;
    let message = outcome.error();
    assert!(
        message.starts_with(
            "Dockerfile:4: the command ended with exit code 3\n   4 | RUN echo begun &&"
        ),
        "{message}"
    );
    assert!(message.contains("\n     > begun") && message.contains("\n     > wrong"), "{message}");
    assert!(outcome.steps()[1].ends_with("FAILED"));
    for (dockerfile, expected) in [
        (
            "FROM small\nCOPY nothing /\n",
            "Dockerfile:2: nothing is not in the directory that is built\n   2 | COPY nothing /",
        ),
        ("FROM nowhere\n", "Dockerfile:1: image nowhere is not known here"),
        (
            "FROM small\nCOPY --chown=nobody . /\n",
            "Dockerfile:2: there is no user nobody in the image's /etc/passwd",
        ),
        ("FROM scratch\nRUN x\n", "Dockerfile:2: there is no program in an empty image"),
        ("FROM host\n", "Dockerfile:1: host is no image to build on"),
        ("FROM small\nUSER nobody\nRUN x\n", "Dockerfile:3: there is no user nobody"),
        (
            "FROM --platform=linux/riscv64 small\nRUN x\n",
            "Dockerfile:2: a command for linux/riscv64 cannot run here",
        ),
        (
            "FROM small\nCOPY --from=small /nothing /\n",
            "Dockerfile:2: nothing is not in that image",
        ),
        ("FROM small\nWORKDIR /etc/passwd\n", "Dockerfile:2: /etc/passwd is to be a directory"),
        (
            "FROM small\nRUN nosuchprogram\n",
            "Dockerfile:2: the command ended with exit code 127: a program was not found",
        ),
    ] {
        let message = shop.build(dockerfile).await.error();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[tokio::test]
async fn only_what_is_needed_is_built_and_stages_go_side_by_side() {
    let Some(mut shop) = Shop::new() else { return };
    // Each of the two waits for the other, in a directory that both see.
    let meet = |own: &str, other: &str| {
        format!(
            "FROM small AS {own}\nRUN --mount=type=cache,target=/meet touch /meet/{own} /{own}; i=0; \
             while [ ! -e /meet/{other} ]; do i=$((i+1)); [ $i -lt 600 ] || exit 1; sleep 0.1; done\n"
        )
    };
    let dockerfile = format!(
        "{}{}FROM small AS never\nRUN false\nFROM scratch\nCOPY --from=one /one /\nCOPY --from=two /two /\n",
        meet("one", "two"),
        meet("two", "one"),
    );
    let outcome = shop.build(&dockerfile).await;
    outcome.digest();
    let layers = outcome.built.as_ref().unwrap().tree.layers.len();
    assert_eq!((layers, outcome.steps().len()), (2, 7));
    shop.wanted.target = Some("never".to_owned());
    assert!(shop.build(&dockerfile).await.error().contains("exit code 1"));
}

#[tokio::test]
async fn triggers_of_a_base_come_first() {
    let Some(shop) = Shop::new() else { return };
    let triggers =
        ["ARG A=1", "COPY app /app", "RUN echo $A > /app/arg", "COPY --from=0 /made /made"];
    small::put(&shop.images.intake(), "onbuild", &triggers);
    small::put(&shop.images.intake(), "broken", &["COPPY a b"]);
    shop.file("app/x", "x");
    let dockerfile =
        "FROM small\nRUN echo m > /made\nFROM onbuild\nRUN cat /app/arg /made > /all\n";
    let outcome = shop.build(dockerfile).await;
    assert_eq!(shop.content(&outcome.digest(), "/all").unwrap(), "1\nm\n");
    assert!(shop.configuration(&outcome.digest()).config.on_build.is_empty());
    assert!(
        shop.build("FROM broken\n")
            .await
            .error()
            .starts_with("trigger of broken:1: there is no instruction COPPY")
    );
    // A trigger must not make a stage wait for itself.
    let round = "FROM small AS a\nCOPY --from=b /x /\nFROM onbuild AS b\nFROM a\n";
    assert!(shop.build(round).await.error().contains("cannot be built"));
}

#[tokio::test]
async fn the_same_build_is_the_same_image_elsewhere() {
    let (Some(mut one), Some(mut other)) = (Shop::new(), Shop::new()) else { return };
    let dockerfile = "FROM small\nWORKDIR /w/x\nCOPY a b/\nADD d.tar .\nRUN echo 1 > /w/y && mkdir /w/z && rm /etc/issue\nCOPY <<t /w/\nx\nt\n";
    let mut digests = Vec::new();
    for shop in [&mut one, &mut other] {
        shop.arg("SOURCE_DATE_EPOCH", "1600000000");
        shop.file("a", "1");
        let mut archive = osb_image::Tarball::new(Vec::new());
        let none = std::collections::BTreeMap::new();
        let (path, what) = (std::path::Path::new("in/f"), osb_image::What::File { size: 2 });
        let entry = osb_image::Entry {
            path,
            what,
            mode: 0o600,
            user: 7,
            group: 7,
            modified: 99,
            extended: &none,
        };
        archive.add(&entry, &b"hi"[..]).unwrap();
        osb_sys::fs::write(shop.path("context/d.tar"), archive.finish().unwrap()).unwrap();
        let outcome = shop.build(dockerfile).await;
        let configuration = shop.configuration(&outcome.digest());
        assert_eq!(configuration.created.as_deref(), Some("2020-09-13T12:26:40Z"));
        assert_eq!(shop.content(&outcome.digest(), "/w/x/in/f").unwrap(), "hi");
        digests.push(outcome.digest());
        shop.clock.advance(std::time::Duration::from_hours(30));
    }
    assert_eq!(digests[0], digests[1]);
}

#[tokio::test]
async fn files_from_elsewhere_are_checked() {
    let Some(shop) = Shop::new() else { return };
    osb_sys::fs::write(shop.path("steps/served/f"), "content").unwrap();
    let right = osb_registry::Digest::of(b"content");
    let wrong = osb_registry::Digest::of(b"other");
    let outcome =
        shop.build(&format!("FROM small\nADD --checksum={right} http://a.test/f /d/\n")).await;
    assert_eq!(shop.files(&outcome.digest()), ["d/ 755", "d/f 600 7"]);
    let message = shop
        .build(&format!("FROM small\nADD --checksum={wrong} http://a.test/f /d/\n"))
        .await
        .error();
    assert!(message.contains("and not the one that is asked for"), "{message}");
    assert!(
        shop.build("FROM small\nADD http://a.test/none /d/\n")
            .await
            .error()
            .contains("is not there")
    );
    let cached = shop.build("FROM small\nADD http://a.test/f /d\n").await;
    cached.digest();
    osb_sys::fs::write(shop.path("steps/served/f"), "changed").unwrap();
    let changed = shop.build("FROM small\nADD http://a.test/f /d\n").await;
    assert_eq!(shop.content(&changed.digest(), "/d").unwrap(), "changed");
}

#[tokio::test]
async fn what_is_remembered_survives_collection_if_it_is_said_to_be_used() {
    let Some(shop) = Shop::new() else { return };
    let dockerfile = "FROM small\nRUN echo 1 > /a\nRUN echo 2 > /b\n";
    let first = shop.build(dockerfile).await.digest();
    let used = shop.cache.used().unwrap();
    assert_eq!(used.len(), 2);
    shop.images.collect(&used).unwrap();
    let again = shop.build(dockerfile).await;
    assert_eq!(again.digest(), first);
    assert_eq!(again.steps().iter().filter(|step| step.ends_with("CACHED")).count(), 2);
    // Whoever does not say so gets it built again, and nothing is wrong.
    let (bytes, age) = (u64::MAX, std::time::Duration::MAX);
    let nothing = osb_build::Bounds { steps: 0, bytes, age };
    shop.cache.trim(nothing, std::time::SystemTime::UNIX_EPOCH).unwrap();
    shop.images.unname(&osb_registry::Reference::parse("built").unwrap()).unwrap();
    let collected = shop.images.collect(&std::collections::BTreeSet::new()).unwrap();
    assert!(collected.layers >= 2, "{collected:?}");
    let anew = shop.build(dockerfile).await;
    assert!(!anew.steps().iter().any(|step| step.ends_with("CACHED")));
    assert_eq!(shop.content(&anew.digest(), "/b").unwrap(), "2\n");
}
