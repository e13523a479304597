use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Dockerfile {
    Dockerfile::parse("Dockerfile", text.as_bytes()).unwrap_or_else(|problem| panic!("{problem}"))
}

/// What a line says in a stage of its own.
fn said(line: &str) -> Instruction {
    let file = parse(&format!("FROM x\n{line}\n"));
    assert_eq!(file.stages[0].steps.len(), 1, "{line}");
    file.stages[0].steps[0].what.clone()
}

fn wrong(text: &str) -> String {
    match Dockerfile::parse("Dockerfile", text.as_bytes()) {
        Ok(file) => panic!("{text} was understood: {file:?}"),
        Err(problem) => problem.to_string(),
    }
}

fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn strings(given: &[&str]) -> Vec<String> {
    given.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn stages_have_a_base_a_platform_and_a_name() {
    let file = parse(
        "# syntax=docker/dockerfile:1\nARG V=1 W\nFROM --platform=$BUILDPLATFORM debian:$V AS Build\n\
         RUN make\nfrom build\ncopy --from=build /a /b\n",
    );
    assert_eq!(file.globals[0].1[0].default.as_deref(), Some("1"));
    assert_eq!(file.globals[0].1[1], Declared { name: "W".to_owned(), default: None });
    let [first, second] = file.stages.as_slice() else { panic!("{:?}", file.stages) };
    assert_eq!(first.name.as_deref(), Some("build"));
    assert_eq!(first.platform.as_deref(), Some("$BUILDPLATFORM"));
    assert_eq!((first.base.as_str(), second.base.as_str()), ("debian:$V", "build"));
    assert_eq!(first.place.first, 3);
    assert!(
        matches!(&second.steps[0].what, Instruction::Copy(copy) if copy.from.as_deref() == Some("build"))
    );
}

#[test]
fn values_are_given_in_two_ways() {
    assert_eq!(
        said("ENV a=1 b=\"2 3\" c=4\\ 5"),
        Instruction::Env(pairs(&[("a", "1"), ("b", "\"2 3\""), ("c", "4\\ 5")]))
    );
    assert_eq!(said("ENV a  1 = 2"), Instruction::Env(pairs(&[("a", "1 = 2")])));
    assert_eq!(said("LABEL \"a b\"=c"), Instruction::Label(pairs(&[("\"a b\"", "c")])));
    assert_eq!(parse("FROM x\nENV a 1").warnings.len(), 1);
}

#[test]
fn commands_are_for_a_shell_or_a_list() {
    let list = |words: &[&str]| Command::Exec(strings(words));
    assert_eq!(said("CMD [\"a\", \"b c\"]"), Instruction::Cmd(list(&["a", "b c"])));
    assert_eq!(said("CMD []"), Instruction::Cmd(list(&[])));
    assert_eq!(said("CMD echo $x"), Instruction::Cmd(Command::Shell("echo $x".to_owned())));
    let Instruction::Run(run) = said("RUN [ -e /x ] && echo yes") else { panic!() };
    assert_eq!(run.command, Command::Shell("[ -e /x ] && echo yes".to_owned()));
    assert_eq!(
        said("SHELL [\"/bin/bash\", \"-c\"]"),
        Instruction::Shell(strings(&["/bin/bash", "-c"]))
    );
    assert_eq!(parse("FROM x\nCMD ['a']").warnings.len(), 1);
}

#[test]
fn copies_know_their_flags() {
    let Instruction::Copy(copy) =
        said("COPY --chown=a:b --chmod=755 --link --parents --exclude=*.o --exclude=b a b c/")
    else {
        panic!()
    };
    assert_eq!(copy.sources, ["a", "b"]);
    assert_eq!((copy.destination.as_str(), copy.link, copy.parents), ("c/", true, true));
    assert_eq!(copy.exclude, ["*.o", "b"]);
    let Instruction::Add(add) = said("ADD --checksum=sha256:0 --unpack=false http://a/b /c") else {
        panic!()
    };
    assert_eq!((add.checksum.as_deref(), add.unpack), (Some("sha256:0"), Some(false)));
    let Instruction::Copy(copy) = said("COPY [\"a b\", \"c d\"]") else { panic!() };
    assert_eq!((copy.sources, copy.destination.as_str()), (strings(&["a b"]), "c d"));
}

#[test]
fn runs_know_their_mounts_and_network() {
    let Instruction::Run(run) =
        said("RUN --mount=type=cache,target=/c --mount=target=/b --network=none a --b")
    else {
        panic!()
    };
    assert_eq!((run.mounts.len(), run.network), (2, Reach::Nothing));
    assert_eq!(run.command, Command::Shell("a --b".to_owned()));
}

#[test]
fn texts_follow_the_line_that_begins_them() {
    let file = parse(
        "FROM x\nRUN <<EOF\n#!/bin/sh\n# kept \\\n  EOF\necho $x\nEOF\nRUN cat <<a 3<<-'b' | sh\n1\na\n\t2\n\tb\nCOPY <<x <<\"y\" z /d/\nX\nx\nY\ny\nUSER u\n",
    );
    let steps = &file.stages[0].steps;
    let Instruction::Run(run) = &steps[0].what else { panic!() };
    assert_eq!(run.inline[0].content, "#!/bin/sh\n# kept \\\n  EOF\necho $x\n");
    assert_eq!((steps[0].place.first, steps[0].place.last), (2, 7));
    let Instruction::Run(run) = &steps[1].what else { panic!() };
    assert_eq!((run.inline.len(), run.inline[1].text().as_str()), (2, "2\n"));
    let Instruction::Copy(copy) = &steps[2].what else { panic!() };
    assert_eq!((copy.sources.as_slice(), copy.destination.as_str()), (&strings(&["z"])[..], "/d/"));
    let expands: Vec<bool> = copy.inline.iter().map(|text| text.expands).collect();
    assert_eq!(expands, [true, false]);
    assert_eq!(steps[3].what, Instruction::User("u".to_owned()));
}

#[test]
fn health_is_checked_with_a_command_or_not_at_all() {
    let Instruction::Healthcheck(Healthcheck::Check { interval, retries, start_interval, .. }) =
        said("HEALTHCHECK --interval=1m30s --retries=4 --start-interval=1.5s CMD curl x")
    else {
        panic!()
    };
    assert_eq!(interval, Some(Duration::from_secs(90)));
    assert_eq!((retries, start_interval), (Some(4), Some(Duration::from_millis(1500))));
    assert_eq!(said("HEALTHCHECK none"), Instruction::Healthcheck(Healthcheck::None));
}

#[test]
fn the_rest_is_read_too() {
    assert_eq!(said("EXPOSE 80 53/udp"), Instruction::Expose(strings(&["80", "53/udp"])));
    assert_eq!(said("VOLUME [\"/a b\"]"), Instruction::Volume(strings(&["/a b"])));
    assert_eq!(said("VOLUME /a /b"), Instruction::Volume(strings(&["/a", "/b"])));
    assert_eq!(said("WORKDIR /a b"), Instruction::Workdir("/a b".to_owned()));
    assert_eq!(
        said("ONBUILD RUN --network=none x"),
        Instruction::Onbuild("RUN --network=none x".to_owned())
    );
    assert_eq!(said("stopsignal SIGINT"), Instruction::Stopsignal("SIGINT".to_owned()));
    assert_eq!(said("MAINTAINER Somebody"), Instruction::Maintainer("Somebody".to_owned()));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_write() {
    let cases = [
        "FROM a\nCOPPY . /app\n",
        "FROM a\n\nRUN a \\\n # b\n c\nNONSENSE\n",
        "RUN a\n",
        "",
        "FROM a b\n",
        "FROM a AS 1x\n",
        "FROM a AS scratch\n",
        "FROM --plattform=x a\n",
        "FROM a\nENV a=1 b\n",
        "FROM a\nENV\n",
        "FROM a\nCOPY a\n",
        "FROM a\nCOPY a b c\n",
        "FROM a\nCOPY --from=$x a b\n",
        "FROM a\nCOPY --chwon=x a b\n",
        "FROM a\nADD --keep-git-dir a b\n",
        "FROM a\nRUN <<EOF\necho\n",
        "FROM a\nRUN --network=host x\n",
        "FROM a\nRUN --security=insecure x\n",
        "FROM a\nRUN --mount=type=bind,taget=/x y\n",
        "FROM a\nSHELL /bin/sh\n",
        "FROM a\nCMD [1]\n",
        "FROM a\nHEALTHCHECK curl\n",
        "FROM a\nHEALTHCHECK --interval=5 CMD x\n",
        "FROM a\nONBUILD ONBUILD RUN x\n",
        "FROM a\nONBUILD CPY a b\n",
        "FROM a\nUSER a b\n",
        "# escape=x\nFROM a\n",
    ];
    let all: Vec<String> = cases.map(wrong).into();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn what_is_no_text_and_what_is_too_long_is_refused() {
    let problem = Dockerfile::parse("D", b"FROM a\nRUN \xff\n").unwrap_err();
    assert_eq!((problem.line, problem.what.contains("UTF-8")), (2, true));
    assert!(Dockerfile::parse("D", &vec![b'\n'; MOST_BYTES + 1]).is_err());
    assert!(wrong(&"FROM a\n".repeat(MOST_STAGES + 1)).contains("stages"));
    assert_eq!(parse("\u{feff}FROM a\r\nRUN b\r\n").stages[0].steps.len(), 1);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_line_that_exists(text in "(FROM a\n)?([A-Z]{0,6}[ -~\n\t\\\\<\"'$]{0,20}\n){0,8}") {
        let lines = text.lines().count().max(1);
        match Dockerfile::parse("D", text.as_bytes()) {
            Ok(file) => prop_assert!(!file.stages.is_empty()),
            Err(problem) => prop_assert!(problem.line >= 1 && problem.line <= lines, "{problem}"),
        }
    }

    /// However a line is broken, it says the same.
    #[test]
    fn lines_may_be_broken_between_words(
        words in proptest::collection::vec("[a-z$={}]{1,6}", 1..8),
        breaks in proptest::collection::vec(0..4_usize, 8),
    ) {
        let whole = format!("FROM x\nRUN {}\n", words.join(" "));
        let mut broken = "FROM x\nRUN".to_owned();
        for (word, how) in words.iter().zip(&breaks) {
            broken.push_str(["", " \\\n", " \\\n # why\n", " \\ \n\n  # why\n"][*how]);
            broken.push(' ');
            broken.push_str(word);
        }
        let squeezed = |file: &Dockerfile| {
            let Instruction::Run(run) = &file.stages[0].steps[0].what else { panic!("{file:?}") };
            let Command::Shell(line) = &run.command else { panic!("{run:?}") };
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        prop_assert_eq!(squeezed(&parse(&broken)), squeezed(&parse(&whole)));
    }

    #[test]
    fn a_text_comes_back_as_it_was_written(content in "([ -~\t]{0,12}\n){0,6}", tabs in any::<bool>()) {
        prop_assume!(!content.lines().any(|line| line.trim_start_matches('\t') == "END"));
        let dash = if tabs { "-" } else { "" };
        let file = parse(&format!("FROM x\nRUN <<{dash}END\n{content}END\nUSER u\n"));
        let Instruction::Run(run) = &file.stages[0].steps[0].what else { panic!() };
        prop_assert_eq!(&run.inline[0].content, &content);
        prop_assert_eq!(file.stages[0].steps.len(), 2);
    }
}
