//! The ways in which servers may read a request.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, request::Parts};
use percent_encoding::percent_decode;

use crate::vault::path::{DEEPEST, LONGEST, is_doubtful, undotted};

/// What some servers take for the method instead, and for the path.
const OTHER_METHOD: [&str; 7] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-method",
    "x-method",
    "x-forwarded-method",
    "x-override-method",
];
const OTHER_PATH: [&str; 10] = [
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
    "x-rewrite-uri",
    "x-forwarded-uri",
    "x-original-path",
    "x-envoy-original-path",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-override-url",
];
/// Nobody honest says it more often.
const MOST_OTHERS: usize = 4;
/// A path that is longer in all its readings together was made to be.
const MOST_BYTES: usize = 32 << 10;

/// A request in every way in which a server may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readings {
    /// `None` if nobody can be sure what it asks for.
    pub(super) methods: Option<Vec<String>>,
    pub(super) paths: Option<Vec<Vec<u8>>>,
    /// The names of the headers that some servers take for the method or for the path.
    headers: Vec<String>,
    /// What they ask for.
    other_methods: Vec<String>,
    other_paths: Vec<String>,
}

impl Readings {
    pub fn of(request: &Parts) -> Self {
        let path = request.uri.path_and_query().map_or("/", http::uri::PathAndQuery::path);
        Self::new(request.method.as_str(), path, &request.headers)
    }

    pub fn new(method: &str, path: &str, headers: &HeaderMap) -> Self {
        let other_methods = said(headers, &OTHER_METHOD)
            .and_then(|others| others.into_iter().map(other_method).collect::<Option<Vec<_>>>());
        let other_paths = said(headers, &OTHER_PATH)
            .and_then(|others| others.into_iter().map(other_path).collect::<Option<Vec<_>>>());
        let methods =
            other_methods.as_ref().map(|others| [&[method.to_owned()], &**others].concat());
        let paths = other_paths.as_ref().and_then(|others| {
            let all = [path].into_iter().chain(others.iter().map(String::as_str));
            all.map(readings).collect::<Option<Vec<_>>>().map(|all| all.concat())
        });
        let is_other = |name: &&HeaderName| is_override(name);
        let names = headers.keys().filter(is_other).take(MOST_OTHERS);
        Self {
            methods,
            paths,
            headers: names.map(ToString::to_string).collect(),
            other_methods: other_methods.unwrap_or_default(),
            other_paths: other_paths.unwrap_or_default(),
        }
    }

    /// The names of the headers that ask for another method or path.
    pub(crate) fn headers(&self) -> &[String] {
        &self.headers
    }

    pub(crate) fn other_methods(&self) -> &[String] {
        &self.other_methods
    }

    /// Without their queries.
    pub(crate) fn other_paths(&self) -> &[String] {
        &self.other_paths
    }

    /// Whether it is the same in every way in which it may be read, as a method and a path.
    pub(crate) fn all(&self, is_it: impl Fn(&str, &[u8]) -> bool) -> bool {
        self.methods.as_ref().zip(self.paths.as_ref()).is_some_and(|(methods, paths)| {
            methods.iter().all(|method| paths.iter().all(|path| is_it(method, path)))
        })
    }

    /// Whether nobody can be sure what it asks for.
    pub fn is_ambiguous(&self) -> bool {
        self.methods.is_none() || self.paths.is_none()
    }
}

/// Removes what some servers would take for the method or the path. Trailers come too late to be
/// judged, and some servers add them to the headers.
pub(crate) fn remove_overrides(trailers: &mut HeaderMap) {
    let names: Vec<HeaderName> = trailers.keys().cloned().collect();
    for name in names {
        if is_override(&name) {
            trailers.remove(name);
        }
    }
}

/// What headers of these names say; `None` if that is too much, or no text.
fn said<'a>(headers: &'a HeaderMap, names: &[&str]) -> Option<Vec<&'a str>> {
    let values = headers.iter().filter(|(name, _)| is_one_of(name, names));
    let values = values.take(MOST_OTHERS + 1).map(|(_, value)| value.to_str().ok().map(str::trim));
    values.collect::<Option<Vec<_>>>().filter(|values| values.len() <= MOST_OTHERS)
}

fn is_override(name: &HeaderName) -> bool {
    is_one_of(name, &OTHER_METHOD) || is_one_of(name, &OTHER_PATH)
}

/// To many servers `_` in a name is `-`, and to some every other sign is.
fn is_one_of(name: &HeaderName, names: &[&str]) -> bool {
    let same = |one: u8, other: u8| one == other || other == b'-' && !one.is_ascii_alphanumeric();
    let is_it = |known: &&str| {
        let name = name.as_str();
        name.len() == known.len() && name.bytes().zip(known.bytes()).all(|(a, b)| same(a, b))
    };
    names.iter().any(is_it)
}

/// A list, or something in quotes, servers read differently.
fn other_method(value: &str) -> Option<String> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (is_plain && !value.is_empty()).then(|| value.to_ascii_uppercase())
}

/// Servers read differently what is no path alone: an address with its host, a list, something in
/// quotes, a path that is relative to another.
fn other_path(value: &str) -> Option<String> {
    let path = value.split(['?', '#']).next().unwrap_or_default();
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && !b",\"'".contains(&byte));
    let is_whole = path.starts_with('/') && !path.starts_with("//");
    (is_plain && is_whole).then(|| path.to_owned())
}

/// The ways in which a path may be read; `None` if it was made to be read differently.
fn readings(written: &str) -> Option<Vec<Vec<u8>>> {
    // `*`, and whatever else is not a path from the root, is one to some.
    if written.len() > LONGEST || !written.starts_with('/') {
        return None;
    }
    let path = &*undotted(written);
    if is_doubtful(path) || is_malformed(path) {
        return None;
    }
    let once = decoded(path.as_bytes()).into_owned();
    let mut wholly = once.clone();
    for _ in 0..DEEPEST {
        let Cow::Owned(shorter) = decoded(&wholly) else { break };
        wholly = shorter;
    }
    if matches!(decoded(&wholly), Cow::Owned(_)) {
        return None;
    }
    let text = std::str::from_utf8(&wholly).ok()?;
    if text.chars().any(char::is_control) || is_doubtful(text) {
        return None;
    }
    let folded = folded(text)?;
    if folded != text && (folded.contains('%') || is_doubtful(&folded)) {
        return None;
    }
    let mut all = vec![normal(written), normal(path), once, folded.into_bytes(), wholly];
    let hostless: Vec<_> = all.iter().filter_map(|reading| without_host(reading)).collect();
    all.extend(hostless);
    let simpler: Vec<_> = all.iter().map(|reading| simple(reading)).collect();
    all.extend(simpler);
    let shorter: Vec<_> = all.iter().filter_map(|reading| trimmed(reading)).collect();
    all.extend(shorter);
    all.sort_unstable();
    all.dedup();
    // They are kept as long as the request is under way.
    let is_much = all.iter().map(Vec::len).sum::<usize>() > MOST_BYTES;
    (!is_much).then_some(all)
}

/// What follows two slashes is a host to some, and the path begins after it.
fn without_host(path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(b"//")?;
    let host = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
    let rest = rest.get(host..).unwrap_or_default();
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let rest = rest.get(end..).unwrap_or_default();
    Some(if rest.starts_with(b"/") { rest.to_vec() } else { [b"/", rest].concat() })
}

/// Without what some servers overlook: parameters, slashes that repeat, and all that follows what
/// ends a path.
fn simple(path: &[u8]) -> Vec<u8> {
    let path = path.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    let mut simple = Vec::with_capacity(path.len());
    let mut parameter = false;
    for &byte in path {
        match byte {
            b'/' if simple.last() == Some(&b'/') => parameter = false,
            b'/' => {
                parameter = false;
                simple.push(byte);
            }
            b';' => parameter = true,
            _ if parameter => {}
            _ => simple.push(byte),
        }
    }
    simple
}

/// Without the dots and spaces at the end of its segments, which some servers drop, if it has any.
fn trimmed(path: &[u8]) -> Option<Vec<u8>> {
    let segments = path.split(|byte| *byte == b'/').map(|segment| {
        let end = segment.iter().rposition(|byte| !b". ".contains(byte)).map_or(0, |last| last + 1);
        segment.get(..end).unwrap_or_default()
    });
    let trimmed = segments.collect::<Vec<_>>().join(&b'/');
    (trimmed != path).then_some(trimmed)
}

/// As servers read it that take signs for the plain ones that they look like or stand for (NFKC);
/// `None` if it has some that would become others than it seems.
fn folded(path: &str) -> Option<String> {
    let mut folded = String::with_capacity(path.len());
    for sign in path.chars() {
        match sign {
            '\0'..='\x7f' => folded.push(sign),
            // The wide forms are in the same order.
            '\u{ff01}'..='\u{ff5e}' => folded.extend(char::from_u32(u32::from(sign) - 0xfee0)),
            '\u{2024}'..='\u{2026}' => folded.push_str(match sign {
                '\u{2024}' => ".",
                '\u{2025}' => "..",
                _ => "...",
            }),
            // Nothing is seen of them.
            '\u{ad}'
            | '\u{34f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2060}'..='\u{2064}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' => {}
            // Letters and digits that are raised, in circles, joined or ornate, and slashes.
            'ª'
            | '²'
            | '³'
            | '¹'
            | 'º'
            | '¼'..='¾'
            | 'ſ'
            | '\u{132}'..='\u{133}'
            | '\u{1c4}'..='\u{1cc}'
            | '\u{1f1}'..='\u{1f3}'
            | '\u{2b0}'..='\u{2b8}'
            | '\u{2044}'
            | '\u{2070}'..='\u{209f}'
            | '\u{2100}'..='\u{218f}'
            | '\u{2215}'..='\u{2216}'
            | '\u{2460}'..='\u{24ff}'
            | '\u{29f5}'
            | '\u{29f8}'
            | '\u{3200}'..='\u{33ff}'
            | '\u{fb00}'..='\u{fb06}'
            | '\u{fe10}'..='\u{fe19}'
            | '\u{fe30}'..='\u{fe6f}'
            | '\u{1d400}'..='\u{1d7ff}'
            | '\u{1f100}'..='\u{1f1ff}'
            | '\u{1fbf0}'..='\u{1fbf9}' => return None,
            _ if sign.is_whitespace() => folded.push(' '),
            _ => folded.push(sign),
        }
    }
    Some(folded)
}

/// What every reading of a whole path comes to in the end.
pub(super) fn bare(path: &[u8]) -> Vec<u8> {
    let folded = std::str::from_utf8(path).ok().and_then(folded);
    let path = folded.map_or_else(|| path.to_vec(), String::into_bytes);
    trimmed(&path).unwrap_or(path)
}

/// With everything decoded that means the same in every path (RFC 3986, 6.2.2.2), and the rest in
/// capital letters.
pub(super) fn normal(path: &str) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let byte = if first == b'%' { after.get(..2).and_then(hexadecimal) } else { None };
        match byte {
            Some(byte) => {
                rest = after.get(2..).unwrap_or_default();
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    normal.push(byte);
                } else {
                    normal.extend_from_slice(format!("%{byte:02X}").as_bytes());
                }
            }
            None => normal.push(first),
        }
    }
    normal
}

pub(super) fn decoded(path: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(path).into()
}

pub(super) fn is_malformed(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| rest.as_bytes().get(..2).and_then(hexadecimal).is_none())
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok()?;
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    are_digits.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}
