//! The configuration file as text: every key is known, or somebody hears of it.

use std::{collections::BTreeMap, fmt, ops::Range};

use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    File,
    nearest::nearest,
    published::{self, Fate},
    shape::{Shape, join},
};

type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;

/// A file that was understood.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) file: File,
    /// What it says, under the names of this server.
    pub(super) values: toml::Table,
    /// The lines in which settings are, by their paths.
    pub(super) lines: BTreeMap<String, usize>,
    pub(super) warnings: Vec<String>,
}

/// What is wrong, with its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) line: usize,
    pub(super) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl Document {
    /// Reads all of it, or says everything that is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader { text, ..Reader::default() };
        let whole = DeTable::parse(text).map_err(|error| vec![reader.problem_of(&error)])?;
        let span = whole.span();
        let table = reader.table(whole.into_inner(), &Shape::of_file(), "");
        if !reader.problems.is_empty() {
            reader.problems.sort();
            return Err(reader.problems);
        }
        let read = || toml::Deserializer::from(Spanned::new(span.clone(), table.clone()));
        let file = File::deserialize(read()).map_err(|error| vec![reader.problem_of(&error)])?;
        let values =
            toml::Table::deserialize(read()).map_err(|error| vec![reader.problem_of(&error)])?;
        reader.warnings.sort();
        let warnings = reader.warnings.iter().map(ToString::to_string).collect();
        Ok(Self { file, values, lines: reader.lines, warnings })
    }
}

/// What was found on the way.
#[derive(Default)]
struct Reader<'i> {
    text: &'i str,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    lines: BTreeMap<String, usize>,
}

impl<'i> Reader<'i> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or_default();
        1 + before.matches('\n').count()
    }

    fn problem_of(&self, error: &toml::de::Error) -> Problem {
        let line = error.span().map_or(1, |span| self.line(&span));
        Problem { line, text: error.message().replace('\n', ", ") }
    }

    fn problem(&mut self, span: &Range<usize>, text: String) {
        let line = self.line(span);
        self.problems.push(Problem { line, text });
    }

    fn idle(&mut self, span: &Range<usize>, name: &str, why: &str) {
        let line = self.line(span);
        self.warnings.push(Problem { line, text: format!("{name} has no effect: {why}") });
    }

    fn value(
        &mut self,
        value: Spanned<DeValue<'i>>,
        shape: &Shape,
        path: &str,
    ) -> Spanned<DeValue<'i>> {
        let span = value.span();
        let read = match (value.into_inner(), shape) {
            (DeValue::Table(table), Shape::Table(_)) => {
                DeValue::Table(self.table(table, shape, path))
            }
            (DeValue::Table(table), Shape::Named(entry)) => {
                let each = |(key, value): (Key<'i>, _)| {
                    let below = join(path, key.get_ref());
                    let value = self.value(value, entry, &below);
                    (key, value)
                };
                DeValue::Table(table.into_iter().map(each).collect())
            }
            (DeValue::Array(list), Shape::List(item)) => {
                let each = |value| self.value(value, item, path);
                DeValue::Array(list.into_iter().map(each).collect())
            }
            // What does not fit is for the type to say.
            (value, _) => value,
        };
        Spanned::new(span, read)
    }

    /// The table with the keys of this server alone, under the names that they have here.
    fn table(&mut self, table: DeTable<'i>, shape: &Shape, path: &str) -> DeTable<'i> {
        let mut read = DeTable::new();
        let (mut host, mut port) = (None, None);
        for (key, value) in table {
            let span = key.span();
            let spelled = key.get_ref().replace('_', "-");
            let name = join(path, key.get_ref()).replace('-', "_");
            if shape.field(&spelled).is_some() {
                self.put(&mut read, (spelled, span), value, shape, path);
                continue;
            }
            match published::fate(&name) {
                Some(Fate::Is(ours)) => {
                    self.put(&mut read, (ours.to_owned(), span), value, shape, path);
                }
                Some(Fate::Host) => host = Some((span, value)),
                Some(Fate::Port) => port = Some((span, value)),
                Some(Fate::Promise(is_so, why) | Fate::Bound(is_so, _, why))
                    if !is_so(value.get_ref()) =>
                {
                    self.problem(&span, format!("{name} cannot be as it is written: {why}"));
                }
                Some(Fate::Promise(..)) => {}
                Some(Fate::Idle(why) | Fate::Bound(_, why, _)) => self.idle(&span, &name, why),
                None if published::is_table(&name) => {
                    if let DeValue::Table(theirs) = value.into_inner() {
                        self.table(theirs, &Shape::Table(Vec::new()), &name);
                    } else {
                        self.problem(&span, format!("{name} is a table"));
                    }
                }
                None => self.unknown(&span, &key, shape, path),
            }
        }
        self.listen(&mut read, shape, host.as_ref(), port.as_ref());
        read
    }

    /// Takes a setting over under the name that it has here.
    fn put(
        &mut self,
        table: &mut DeTable<'i>,
        (key, span): (String, Range<usize>),
        value: Spanned<DeValue<'i>>,
        shape: &Shape,
        path: &str,
    ) {
        let Some(field) = shape.field(&key) else { return };
        let below = join(path, &key);
        if table.keys().any(|known| known.get_ref() == &key) {
            let text = format!("{below} is there twice, under two names: leave one of them out");
            return self.problem(&span, text);
        }
        self.lines.insert(below.clone(), self.line(&span));
        let value = self.value(value, &field.shape, &below);
        table.insert(Spanned::new(span, key.into()), value);
    }

    /// What the published server calls an address and a port is one setting here.
    fn listen(&mut self, server: &mut DeTable<'i>, shape: &Shape, host: Part<'_>, port: Part<'_>) {
        let Some(span) = host.or(port).map(|(span, _)| span.clone()) else { return };
        let host = match host.map(|(_, value)| value.get_ref().as_str()) {
            // As without a file, though the published server would be open to the network.
            None | Some(Some("localhost")) => "127.0.0.1".to_owned(),
            Some(Some(host)) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]"),
            Some(Some(host)) if host.parse::<std::net::Ipv4Addr>().is_ok() => host.to_owned(),
            Some(_) => {
                return self
                    .problem(&span, "server.host must be an address of this host".to_owned());
            }
        };
        let number = |value: &Spanned<DeValue<'_>>| {
            let number = value.get_ref().as_integer()?;
            let digits = number.as_str().replace('_', "");
            u16::from_str_radix(&digits, number.radix()).ok().filter(|port| *port != 0)
        };
        let port = match port.map(|(_, value)| number(value)) {
            None => 8080,
            Some(Some(port)) => port,
            Some(None) => {
                return self
                    .problem(&span, "server.port must be a number of 1 to 65535".to_owned());
            }
        };
        let value = DeValue::String(format!("{host}:{port}").into());
        let value = Spanned::new(span.clone(), value);
        self.put(server, ("listen".to_owned(), span), value, shape, "server");
    }

    fn unknown(&mut self, span: &Range<usize>, key: &Key<'_>, shape: &Shape, path: &str) {
        let key = key.get_ref();
        let ours = shape.fields().iter().map(|field| field.key);
        let theirs = published::keys_of(path);
        let meant = nearest(key, ours.chain(theirs));
        let elsewhere = || {
            let spelled = key.replace('_', "-");
            let leaves = Shape::of_file().leaves();
            let leaf = leaves.into_iter().find(|leaf| leaf.rsplit('.').next() == Some(&spelled));
            leaf.filter(|leaf| !leaf.contains(['[', '*']))
        };
        let hint = match meant {
            Some(meant) => format!(": did you mean `{meant}`?"),
            None => elsewhere()
                .map(|leaf| format!(": did you mean `{leaf}`, in another table?"))
                .unwrap_or_default(),
        };
        let name = join(path, key);
        self.problem(span, format!("{} is no setting{hint}", name.escape_debug()));
    }
}

type Part<'a> = Option<&'a (Range<usize>, Spanned<DeValue<'a>>)>;
