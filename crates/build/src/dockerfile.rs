//! Dockerfiles as they are written. Nothing here reads or runs anything.

mod directives;
mod flags;
mod heredoc;
mod instruction;
mod lines;
mod mount;
mod read;
mod words;

pub(crate) use self::mount::check_kind;
pub use self::{
    directives::Directives,
    heredoc::Heredoc,
    instruction::{
        Command, Declared, Healthcheck, Instruction, Place, Reach, Run, Said, Stage, Transfer,
    },
    mount::Mount,
};

use self::lines::{Line, Lines};
use crate::problem::{Fault, Problem, Warning, shown};

/// The longest Dockerfile that is read.
const MOST_BYTES: usize = 1 << 20;
/// The most stages in one.
const MOST_STAGES: usize = 256;

/// A Dockerfile that can be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// What it is called in errors.
    pub name: String,
    pub directives: Directives,
    /// `ARG` before the first `FROM`.
    pub globals: Vec<(Place, Vec<Declared>)>,
    /// At least one.
    pub stages: Vec<Stage>,
    pub warnings: Vec<Warning>,
}

impl Dockerfile {
    /// Reads the content of a Dockerfile that is called `name`.
    pub fn parse(name: &str, content: &[u8]) -> Result<Self, Problem> {
        let problem = |line, text: &str, fault: &Fault| Problem::new(name, line, text, fault);
        if content.len() > MOST_BYTES {
            let fault = Fault::new(format!("a Dockerfile has at most {MOST_BYTES} bytes"));
            return Err(problem(1, "", &fault));
        }
        let text = str::from_utf8(content).map_err(|error| {
            let before = content.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.split(|byte| *byte == b'\n').count();
            problem(line, "", &Fault::new("this line is not UTF-8: save the file as UTF-8"))
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = Reader {
            lines: Lines::new(text),
            file: Self {
                name: name.to_owned(),
                directives: Directives::default(),
                globals: Vec::new(),
                stages: Vec::new(),
                warnings: Vec::new(),
            },
        };
        reader.directives()?;
        while let Some(line) = reader.lines.next() {
            reader.take(&line)?;
        }
        if reader.file.stages.is_empty() {
            let fault = Fault::new(
                "there is no FROM: a Dockerfile says what it builds on, such as \
                                    FROM debian:bookworm, or FROM scratch",
            );
            return Err(problem(reader.lines.read().max(1), "", &fault));
        }
        Ok(reader.file)
    }
}

/// An instruction that an image keeps for those who build on it.
pub(crate) fn trigger(image: &str, text: &str) -> Result<Said, Problem> {
    let read = || {
        let (name, rest) = read::head(text)?;
        if matches!(name, "FROM" | "ONBUILD" | "MAINTAINER") {
            return Err(Fault::new(format!("an image cannot keep {name} for others")));
        }
        read::instruction(name, rest, Vec::new(), '\\')
    };
    let file = format!("trigger of {image}");
    let what = read().map_err(|fault| Problem::new(&file, 1, text, &fault))?;
    Ok(Said { place: Place { first: 1, last: 1, text: shown(text) }, what })
}

struct Reader<'a> {
    lines: Lines<'a>,
    file: Dockerfile,
}

impl Reader<'_> {
    fn directives(&mut self) -> Result<(), Problem> {
        while let Some(line) = self.lines.peek() {
            let is_one = self.file.directives.take(line);
            let number = self.lines.read() + 1;
            if !is_one.map_err(|fault| Problem::new(&self.file.name, number, line, &fault))? {
                break;
            }
            self.lines.raw();
        }
        self.lines.set_escape(self.file.directives.escape);
        Ok(())
    }

    fn take(&mut self, line: &Line) -> Result<(), Problem> {
        let read = self.read(line);
        read.map_err(|fault| Problem::new(&self.file.name, line.first, &line.text, &fault))
    }

    fn read(&mut self, line: &Line) -> Result<(), Fault> {
        let escape = self.file.directives.escape;
        let (name, rest) = read::head(&line.text)?;
        let mut inline = read::documents(name, rest, escape)?;
        for document in &mut inline {
            document.content = self.lines.document(document).ok_or_else(|| {
                Fault::new(format!(
                    "the text <<{} is not ended: a line that says {0} and nothing else ends it",
                    shown(&document.name)
                ))
            })?;
        }
        let text = line.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let place = Place { first: line.first, last: self.lines.read(), text };
        if line.is_torn {
            self.warn(
                line.first,
                "an empty line within an instruction: end the line before it with \
                                   \\ or remove it",
            );
        }
        if name == "FROM" {
            let read::From { base, platform, name } = read::from(rest, escape)?;
            if self.file.stages.len() >= MOST_STAGES {
                return Err(Fault::new(format!("there are more than {MOST_STAGES} stages")));
            }
            let is_known = |stage: &Stage| name.is_some() && stage.name == name;
            if let Some(name) = &name
                && self.file.stages.iter().any(is_known)
            {
                let what = format!("a second stage {name}: from here on the name means this one");
                self.warn(line.first, &what);
            }
            self.file.stages.push(Stage { place, base, platform, name, steps: Vec::new() });
            return Ok(());
        }
        let what = read::instruction(name, rest, inline, escape)?;
        self.look_at(line.first, name, rest, &what);
        match (self.file.stages.last_mut(), what) {
            (Some(stage), what) => stage.steps.push(Said { place, what }),
            (None, Instruction::Arg(declared)) => self.file.globals.push((place, declared)),
            (None, _) => {
                return Err(Fault::new(format!(
                    "{name} before FROM: only ARG may come before the first FROM"
                )));
            }
        }
        Ok(())
    }

    /// Says what is hardly meant.
    fn look_at(&mut self, line: usize, name: &str, rest: &str, what: &Instruction) {
        if let Instruction::Cmd(Command::Shell(text))
        | Instruction::Entrypoint(Command::Shell(text)) = what
            && text.starts_with('[')
        {
            self.warn(
                line,
                "this is not JSON and is taken for a command line: strings have double quotes there",
            );
        }
        if let Instruction::Env(_) | Instruction::Label(_) = what
            && let Some(first) = words::split(rest, self.file.directives.escape).first()
            && !first.contains('=')
        {
            self.warn(line, &format!("the old form of {name}: write {name} name=value"));
        }
        if let Instruction::Maintainer(_) = what {
            self.warn(line, "MAINTAINER is old: write LABEL org.opencontainers.image.authors=…");
        }
    }

    fn warn(&mut self, line: usize, what: &str) {
        self.file.warnings.push(Warning { line, what: what.to_owned() });
    }
}

#[cfg(test)]
mod tests;
