//! Instructions that only say something about the image.

use std::time::Duration;

use osb_image::Healthcheck as Check;

use super::{SHELL, Scope, absolute};
use crate::{
    dockerfile::{Command, Healthcheck, Instruction},
    expand,
    problem::Fault,
};

/// How many ports `EXPOSE 1-65535` may be in all.
const MOST_PORTS: usize = 1 << 17;

impl Scope<'_> {
    pub(super) fn note(&mut self, what: &Instruction) -> Result<(), Fault> {
        match what {
            Instruction::Cmd(command) => {
                self.configuration.config.cmd = self.command_line(command);
                self.has_cmd = true;
            }
            Instruction::Entrypoint(command) => {
                self.configuration.config.entrypoint = self.command_line(command);
                // That of the base was meant for the entrypoint of the base.
                if !self.has_cmd {
                    self.configuration.config.cmd.clear();
                }
            }
            Instruction::Label(pairs) => {
                for (name, value) in pairs {
                    let (name, value) = (self.word(name)?, self.word(value)?);
                    self.configuration.config.labels.insert(name, value);
                }
            }
            Instruction::Expose(ports) => self.expose(ports)?,
            Instruction::Healthcheck(check) => {
                self.configuration.config.healthcheck = Some(Self::check(check));
            }
            Instruction::Maintainer(author) => self.configuration.author = Some(author.clone()),
            Instruction::Onbuild(trigger) => {
                self.configuration.config.on_build.push(trigger.clone());
            }
            Instruction::Shell(shell) => self.configuration.config.shell.clone_from(shell),
            Instruction::Stopsignal(signal) => {
                self.configuration.config.stop_signal = signal_name(&self.word(signal)?)?;
            }
            Instruction::User(user) => {
                let user = self.word(user)?;
                if user.is_empty() || user.contains(char::is_whitespace) {
                    return Err(Fault::new(format!("USER {user:?} names nobody")));
                }
                self.configuration.config.user = user;
            }
            Instruction::Volume(paths) => {
                for path in paths {
                    let path = self.word(path)?;
                    if path.is_empty() {
                        return Err(Fault::new("VOLUME has an empty path"));
                    }
                    let path = absolute(self.workdir(), &path)?;
                    self.configuration.config.volumes.insert(path);
                }
            }
            // They are more than what an image says.
            Instruction::Add(_)
            | Instruction::Arg(_)
            | Instruction::Copy(_)
            | Instruction::Env(_)
            | Instruction::Run(_)
            | Instruction::Workdir(_) => {}
        }
        Ok(())
    }

    /// The shell of the stage.
    pub(super) fn shell(&self) -> Vec<String> {
        match self.run().shell.as_slice() {
            [] => SHELL.map(str::to_owned).to_vec(),
            shell => shell.to_vec(),
        }
    }

    fn command_line(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(line) => self.shell().into_iter().chain([line.clone()]).collect(),
        }
    }

    fn check(check: &Healthcheck) -> Check {
        let Healthcheck::Check {
            command,
            interval,
            timeout,
            start_period,
            start_interval,
            retries,
        } = check
        else {
            return Check { test: vec!["NONE".to_owned()], ..Check::default() };
        };
        let test = match command {
            Command::Exec(words) => ["CMD".to_owned()].into_iter().chain(words.clone()).collect(),
            Command::Shell(line) => vec!["CMD-SHELL".to_owned(), line.clone()],
        };
        let time = |time: &Option<Duration>| {
            time.map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
        };
        Check {
            test,
            interval: time(interval),
            timeout: time(timeout),
            start_period: time(start_period),
            start_interval: time(start_interval),
            retries: retries.map(i64::from),
        }
    }

    fn expose(&mut self, ports: &[String]) -> Result<(), Fault> {
        for text in ports {
            for word in expand::words(text, self.escape(), self)? {
                for port in read_ports(&word)? {
                    self.configuration.config.exposed_ports.insert(port);
                }
                if self.configuration.config.exposed_ports.len() > MOST_PORTS {
                    return Err(Fault::new(format!("there are more than {MOST_PORTS} ports")));
                }
            }
        }
        Ok(())
    }
}

/// `80`, `80/udp` or `8000-8010/tcp`
fn read_ports(word: &str) -> Result<Vec<String>, Fault> {
    let wrong = || Fault::new(format!("{word} is no port: write 8080, 53/udp or 8000-8010"));
    let (ports, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") {
        return Err(wrong());
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(wrong());
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}

fn signal_name(word: &str) -> Result<String, Fault> {
    let upper = word.to_ascii_uppercase();
    let is_number = upper.parse::<u8>().is_ok_and(|number| (1..=64).contains(&number));
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c));
    match (is_number, is_name) {
        (true, _) => Ok(upper),
        (_, true) => Ok(format!("SIG{name}")),
        _ => Err(Fault::new(format!("{word} is no signal: write SIGTERM or a number to 64"))),
    }
}
