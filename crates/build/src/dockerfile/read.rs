//! One instruction from one line.

use std::time::Duration;

use super::{
    Command, Declared, Healthcheck, Instruction, Mount, Reach, Run, Transfer,
    flags::Flags,
    heredoc::{self, Heredoc},
    words,
};
use crate::problem::{Fault, meant};

/// All instructions.
pub(super) const NAMES: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

/// `FROM`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct From {
    pub(super) base: String,
    pub(super) platform: Option<String>,
    pub(super) name: Option<String>,
}

/// The name of an instruction in capitals, and the rest of the line.
pub(super) fn head(line: &str) -> Result<(&'static str, &str), Fault> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if let Some(name) = NAMES.iter().find(|name| name.eq_ignore_ascii_case(word)) {
        return Ok((name, rest.trim()));
    }
    let help = match meant(word, &NAMES) {
        Some(name) => format!("did you mean {name}?"),
        None => "a line begins with one such as RUN or COPY, and goes on in the next if it \
                 ends with \\"
            .to_owned(),
    };
    Err(Fault::new(format!("there is no instruction {}: {help}", crate::problem::shown(word))))
}

/// Whether an instruction may be followed by texts, and which ones this line begins.
pub(super) fn documents(name: &str, rest: &str, escape: char) -> Result<Vec<Heredoc>, Fault> {
    match name {
        "ADD" | "COPY" | "RUN" => {
            let (_, arguments) = Flags::split(rest, escape)?;
            if array(arguments)?.is_some() {
                return Ok(Vec::new());
            }
            heredoc::begun(arguments)
        }
        "ONBUILD" => {
            let (name, rest) = head(rest)?;
            if name == "ONBUILD" { Ok(Vec::new()) } else { documents(name, rest, escape) }
        }
        _ => Ok(Vec::new()),
    }
}

/// Reads any instruction but `FROM`.
pub(super) fn instruction(
    name: &'static str,
    rest: &str,
    inline: Vec<Heredoc>,
    escape: char,
) -> Result<Instruction, Fault> {
    let (mut flags, text) = match name {
        // What they say is not looked into for flags.
        "ONBUILD" | "MAINTAINER" => (Flags::split("", escape)?.0, rest),
        _ => Flags::split(rest, escape)?,
    };
    if text.is_empty() && name != "CMD" && name != "ENTRYPOINT" {
        return Err(Fault::new(format!("{name} says nothing: {}", usage(name))));
    }
    let read = match name {
        "ADD" => Instruction::Add(transfer(name, &mut flags, text, inline)?),
        "ARG" => Instruction::Arg(declared(text, escape)?),
        "CMD" => Instruction::Cmd(command(name, text)?),
        "COPY" => Instruction::Copy(transfer(name, &mut flags, text, inline)?),
        "ENTRYPOINT" => Instruction::Entrypoint(command(name, text)?),
        "ENV" => Instruction::Env(pairs(name, text, escape)?),
        "EXPOSE" => Instruction::Expose(words::blank(text)),
        "HEALTHCHECK" => Instruction::Healthcheck(healthcheck(&mut flags, text)?),
        "LABEL" => Instruction::Label(pairs(name, text, escape)?),
        "MAINTAINER" => Instruction::Maintainer(text.to_owned()),
        "ONBUILD" => Instruction::Onbuild(trigger(text, &inline, escape)?),
        "RUN" => Instruction::Run(run(&mut flags, text, inline)?),
        "SHELL" => Instruction::Shell(shell(text)?),
        "STOPSIGNAL" => Instruction::Stopsignal(single(name, text)?),
        "USER" => Instruction::User(single(name, text)?),
        "VOLUME" => Instruction::Volume(array(text)?.unwrap_or_else(|| words::blank(text))),
        _ => Instruction::Workdir(text.to_owned()),
    };
    flags.end(name)?;
    Ok(read)
}

pub(super) fn from(rest: &str, escape: char) -> Result<From, Fault> {
    let (mut flags, text) = Flags::split(rest, escape)?;
    let platform = flags.one("platform")?;
    flags.end("FROM")?;
    let words = words::blank(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (base, name) = match words.as_slice() {
        [base] => (base, None),
        [base, word, name] if word.eq_ignore_ascii_case("as") => (base, Some(stage_name(name)?)),
        _ => return Err(Fault::new(format!("FROM cannot be understood: {}", usage("FROM")))),
    };
    Ok(From { base: (*base).to_owned(), platform, name })
}

fn stage_name(name: &str) -> Result<String, Fault> {
    let name = name.to_ascii_lowercase();
    let is_fine = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_fine {
        return Err(Fault::new(format!(
            "{} cannot be the name of a stage: it begins with a letter and has letters, digits, \
             - _ and . only",
            crate::problem::shown(&name)
        )));
    }
    if name == "scratch" || name == "context" {
        return Err(Fault::new(format!(
            "the name {name} has a meaning of its own: choose another"
        )));
    }
    Ok(name)
}

/// A command in its JSON form, if it is one. What is not JSON is for the shell: `[ -e x ] && y`.
pub(super) fn array(text: &str) -> Result<Option<Vec<String>>, Fault> {
    if !text.trim_start().starts_with('[') {
        return Ok(None);
    }
    let Ok(values) = serde_json::from_str::<Vec<serde_json::Value>>(text.trim()) else {
        return Ok(None);
    };
    let strings = values.into_iter().map(|value| {
        let wrong = || Fault::new(format!("{value} in the JSON form is no string: quote it"));
        value.as_str().map(str::to_owned).ok_or_else(wrong)
    });
    strings.collect::<Result<_, _>>().map(Some)
}

fn command(name: &str, text: &str) -> Result<Command, Fault> {
    if text.is_empty() {
        return Err(Fault::new(format!("{name} says nothing: {}", usage(name))));
    }
    Ok(match array(text)? {
        Some(words) => Command::Exec(words),
        None => Command::Shell(text.to_owned()),
    })
}

fn declared(text: &str, escape: char) -> Result<Vec<Declared>, Fault> {
    let one = |word: &String| {
        let (name, default) = match word.split_once('=') {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (word.as_str(), None),
        };
        if name.is_empty() {
            return Err(Fault::new(format!("{word} has no name before the =")));
        }
        Ok(Declared { name: name.to_owned(), default })
    };
    words::split(text, escape).iter().map(one).collect()
}

fn pairs(name: &str, text: &str, escape: char) -> Result<Vec<(String, String)>, Fault> {
    let words = words::split(text, escape);
    // The old form: everything after the name is the value.
    if words.first().is_some_and(|first| !first.contains('=')) {
        let Some((key, value)) = text.trim().split_once(char::is_whitespace) else {
            return Err(Fault::new(format!("{text} gets no value: {}", usage(name))));
        };
        return Ok(vec![(key.to_owned(), value.trim().to_owned())]);
    }
    let pair = |word: &String| match word.split_once('=') {
        Some(("", _)) => Err(Fault::new(format!("{word} has no name before the ="))),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Fault::new(format!(
            "{word} has no =: a value with blanks has to be quoted, as in {name} a=\"b c\""
        ))),
    };
    words.iter().map(pair).collect()
}

fn single(name: &str, text: &str) -> Result<String, Fault> {
    if text.contains(char::is_whitespace) {
        return Err(Fault::new(format!("{name} takes one word: {}", usage(name))));
    }
    Ok(text.to_owned())
}

fn shell(text: &str) -> Result<Vec<String>, Fault> {
    match array(text)? {
        Some(words) if !words.is_empty() => Ok(words),
        _ => Err(Fault::new(format!("SHELL takes the JSON form: {}", usage("SHELL")))),
    }
}

fn trigger(text: &str, inline: &[Heredoc], escape: char) -> Result<String, Fault> {
    let (name, rest) = head(text)?;
    if matches!(name, "ONBUILD" | "FROM" | "MAINTAINER") {
        return Err(Fault::new(format!("ONBUILD {name} is not possible")));
    }
    if !inline.is_empty() {
        return Err(Fault::new("ONBUILD cannot keep here-documents: use a file of the context"));
    }
    // So that whoever writes it learns of a mistake, and not whoever builds on the image.
    instruction(name, rest, Vec::new(), escape)?;
    Ok(text.to_owned())
}

fn run(flags: &mut Flags, text: &str, inline: Vec<Heredoc>) -> Result<Run, Fault> {
    let mounts = flags.all("mount")?;
    let mounts = mounts.iter().map(|mount| Mount::read(mount)).collect::<Result<_, _>>()?;
    let network = match flags.one("network")?.as_deref() {
        None | Some("default") => Reach::Policy,
        Some("none") => Reach::Nothing,
        Some("host") => {
            return Err(Fault::new(
                "--network=host is not possible: a step runs in a sandbox, which reaches what the \
                 policy of the build allows; leave the flag out",
            ));
        }
        Some(other) => {
            return Err(Fault::new(format!("--network is default or none, not {other}")));
        }
    };
    match flags.one("security")?.as_deref() {
        None | Some("sandbox") => {}
        Some(other) => {
            return Err(Fault::new(format!(
                "--security={other} is not possible: a step always runs in a sandbox; leave the \
                 flag out"
            )));
        }
    }
    Ok(Run { command: command("RUN", text)?, inline, mounts, network })
}

fn transfer(
    name: &str,
    flags: &mut Flags,
    text: &str,
    inline: Vec<Heredoc>,
) -> Result<Transfer, Fault> {
    let mut transfer = Transfer {
        chown: flags.one("chown")?,
        chmod: flags.one("chmod")?,
        link: flags.switch("link")?.unwrap_or_default(),
        exclude: flags.all("exclude")?,
        ..Transfer::default()
    };
    if name == "COPY" {
        transfer.from = flags.one("from")?;
        transfer.parents = flags.switch("parents")?.unwrap_or_default();
    } else {
        transfer.checksum = flags.one("checksum")?;
        transfer.unpack = flags.switch("unpack")?;
        if flags.switch("keep-git-dir")?.is_some() {
            return Err(Fault::new(
                "--keep-git-dir is not possible, for ADD does not fetch from git: \
                                   write RUN git clone …",
            ));
        }
    }
    if transfer.from.as_deref().is_some_and(|from| from.contains('$')) {
        return Err(Fault::new(
            "--from takes no variables: give the image a name of its own with FROM … AS name and \
             use that",
        ));
    }
    let mut words = match array(text)? {
        Some(words) => words,
        None if inline.is_empty() => words::blank(text),
        None => words::shell(text, '\\')?,
    };
    transfer.destination = words.pop().unwrap_or_default();
    if words.is_empty() || heredoc::begins(&transfer.destination).is_some() {
        return Err(Fault::new(format!(
            "{name} needs a source and a destination: {}",
            usage(name)
        )));
    }
    transfer.sources =
        words.into_iter().filter(|w| inline.is_empty() || heredoc::begins(w).is_none()).collect();
    transfer.inline = inline;
    if transfer.sources.len() + transfer.inline.len() > 1
        && !transfer.destination.ends_with('/')
        && transfer.destination != "."
        && !transfer.destination.ends_with("/.")
    {
        return Err(Fault::new(format!(
            "several files go to {}, which has to be a directory then: write {0}/",
            transfer.destination
        )));
    }
    if transfer.from.is_some() && !transfer.inline.is_empty() {
        return Err(Fault::new("--from does not go with here-documents, which are from here"));
    }
    Ok(transfer)
}

fn healthcheck(flags: &mut Flags, text: &str) -> Result<Healthcheck, Fault> {
    let (kind, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let mut time = |name| flags.one(name)?.map(|text| duration(name, &text)).transpose();
    let (interval, timeout) = (time("interval")?, time("timeout")?);
    let (start_period, start_interval) = (time("start-period")?, time("start-interval")?);
    let retries = flags.one("retries")?.map(|text| {
        text.parse().map_err(|_| Fault::new(format!("--retries is a number, not {text}")))
    });
    let retries = retries.transpose()?;
    match kind.to_ascii_uppercase().as_str() {
        "NONE" if rest.trim().is_empty() => Ok(Healthcheck::None),
        "CMD" => Ok(Healthcheck::Check {
            command: command("HEALTHCHECK CMD", rest.trim())?,
            interval,
            timeout,
            start_period,
            start_interval,
            retries,
        }),
        _ => Err(Fault::new(format!("HEALTHCHECK cannot be understood: {}", usage("HEALTHCHECK")))),
    }
}

/// `1h30m`, `1.5s`, `100ms`
fn duration(name: &str, text: &str) -> Result<Duration, Fault> {
    let wrong = || Fault::new(format!("--{name} is a time such as 30s or 1m30s, not {text}"));
    let mut total = Duration::ZERO;
    let mut rest = text;
    if text.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at_checked(end).ok_or_else(wrong)?;
        let length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(length).ok_or_else(wrong)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if total > Duration::ZERO && total < Duration::from_millis(1) {
        return Err(Fault::new(format!("--{name} is less than a millisecond, the least there is")));
    }
    Ok(total)
}

/// What to write.
fn usage(name: &str) -> &'static str {
    match name {
        "ADD" => "write ADD file… /directory/",
        "ARG" => "write ARG name or ARG name=default",
        "CMD" | "ENTRYPOINT" | "HEALTHCHECK CMD" => {
            "write a command line, or [\"program\", \"argument\"]"
        }
        "COPY" => "write COPY file… /directory/",
        "ENV" | "LABEL" => "write name=value",
        "EXPOSE" => "write EXPOSE 8080 or EXPOSE 53/udp",
        "FROM" => "write FROM image or FROM image AS name",
        "HEALTHCHECK" => "write HEALTHCHECK CMD command, or HEALTHCHECK NONE",
        "MAINTAINER" => "write LABEL org.opencontainers.image.authors=…",
        "ONBUILD" => "write ONBUILD and an instruction",
        "RUN" => "write RUN and a command line",
        "SHELL" => "write SHELL [\"/bin/bash\", \"-c\"]",
        "STOPSIGNAL" => "write STOPSIGNAL SIGTERM",
        "USER" => "write USER name or USER 1000:1000",
        "VOLUME" => "write VOLUME /path",
        _ => "write WORKDIR /path",
    }
}
