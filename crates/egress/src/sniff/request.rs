//! The head of a request of HTTP/1.

use super::{Said, Seen};

/// What is between words to servers that are not strict.
const BLANKS: &[u8] = b" \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f";

pub(super) fn read(bytes: &[u8]) -> Seen {
    // Servers pass over empty lines in front of a request, and some over blanks.
    let empty = bytes.iter().take_while(|byte| BLANKS.contains(byte)).count();
    let bytes = bytes.get(empty..).unwrap_or_default();
    let line_end = bytes.iter().position(|byte| *byte == b'\n');
    let line = bytes.get(..line_end.unwrap_or(bytes.len())).unwrap_or_default();
    // That is in no request. The protocol of git has it, and lines that do not end.
    if line.contains(&0) {
        return Seen::Nobody;
    }
    let line = line.strip_suffix(b"\r").filter(|_| line_end.is_some()).unwrap_or(line);
    match line.iter().position(|byte| !is_token(*byte)) {
        None if line_end.is_none() => return Seen::Undecided,
        Some(method @ 1..) => match line.get(method) {
            Some(b' ') => {}
            // The end of the line, perhaps.
            Some(b'\r') if method + 1 == line.len() => return Seen::Undecided,
            Some(blank) if BLANKS.contains(blank) => return Seen::Ambiguous,
            _ => return Seen::Nobody,
        },
        _ => return Seen::Nobody,
    }
    let Some(line_end) = line_end else { return Seen::Undecided };
    // HTTP/2 begins with a line of the same form, and names its hosts where only it can read them.
    if line == b"PRI * HTTP/2.0" {
        return Seen::Nobody;
    }
    // Other blanks than the one that belongs there.
    let odd = line.iter().any(|byte| *byte != b' ' && BLANKS.contains(byte));
    if odd && line.to_ascii_uppercase().windows(5).any(|part| part == b"HTTP/") {
        return Seen::Ambiguous;
    }
    let words: Vec<_> = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
    let begins = |word: Option<&&[u8]>, with: &[u8]| {
        word.and_then(|word| word.get(..with.len())).is_some_and(|it| it.eq_ignore_ascii_case(with))
    };
    let (target, third, last) = (words.get(1).copied(), words.get(2), words.get(2..));
    let last = last.and_then(<[_]>::last);
    if !begins(last, b"HTTP/1.") {
        // Some servers read it all the same, whatever stands behind, or guess a version.
        let alike = begins(third, b"HTTP/") || begins(last, b"HTTP/");
        return if alike { Seen::Ambiguous } else { Seen::Nobody };
    }
    let rest = bytes.get(line_end + 1..).unwrap_or_default();
    let mut hosts = target.and_then(of_target).into_iter().collect::<Vec<_>>();
    match of_headers(rest) {
        Headers::Incomplete => return Seen::Undecided,
        Headers::Ambiguous => return Seen::Ambiguous,
        Headers::Host(host) => hosts.push(host),
        Headers::None => {}
    }
    let mut said = hosts.into_iter().map(parse);
    match (said.next(), said.next()) {
        (None, _) => Seen::Nobody,
        (Some(Some(first)), None) => Seen::Host(first),
        (Some(Some(first)), Some(Some(second))) if first == second => Seen::Host(first),
        _ => Seen::Ambiguous,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

enum Headers<'a> {
    Incomplete,
    None,
    Host(&'a [u8]),
    Ambiguous,
}

/// The host in the headers, all of which must be there: a second one could follow.
fn of_headers(mut rest: &[u8]) -> Headers<'_> {
    let mut found = None;
    loop {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Headers::Incomplete;
        };
        let line = rest.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        rest = rest.get(end + 1..).unwrap_or_default();
        if line.is_empty() {
            return found.map_or(Headers::None, Headers::Host);
        }
        // Some servers see a line continued here, or ended.
        if line.starts_with(b" ") || line.starts_with(b"\t") || line.contains(&b'\r') {
            return Headers::Ambiguous;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        // What one server takes for part of a name, such as a blank at its end, another does not.
        if value.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Headers::Ambiguous;
        }
        if !name.eq_ignore_ascii_case(b"host") {
            continue;
        }
        if found.is_some() {
            return Headers::Ambiguous;
        }
        found = Some(value.get(1..).unwrap_or_default().trim_ascii());
    }
}

/// The host in a target that has one: `http://host/…`, or `host:port` of CONNECT.
fn of_target(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") || target == b"*" {
        return None;
    }
    let after = target.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
    let authority = target.get(after..)?.split(|byte| b"/?#".contains(byte)).next()?;
    authority.rsplit(|byte| *byte == b'@').next()
}

fn parse(authority: &[u8]) -> Option<Said> {
    let text = std::str::from_utf8(authority).ok()?;
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => text,
    };
    Said::parse(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    fn host(text: &str) -> Seen {
        Seen::Host(Said::parse(text).unwrap())
    }

    #[test]
    fn the_host_of_a_request_is_read_once_its_head_is_complete() {
        let whole = "GET /x HTTP/1.1\r\nAccept: */*\r\nHOST: Api.Example.com:8080\r\n\r\nbody";
        assert_eq!(read(whole.as_bytes()), host("api.example.com"));
        let head = whole.len() - "body".len();
        for end in 0..head {
            assert_eq!(read(&whole.as_bytes()[..end]), Seen::Undecided, "{end}");
        }
        assert_eq!(read(b"GET / HTTP/1.1\nHost: a.test\n\n"), host("a.test"));
        assert_eq!(read(b"GET / HTTP/1.1\r\nHost: [fd53::1]:80\r\n\r\n"), host("fd53::1"));
        assert_eq!(read(b"GET / HTTP/1.0\r\n\r\n"), Seen::Nobody);
        assert_eq!(read(b"\r\n\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), host("a.test"));
        assert_eq!(read(b" \tGET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), host("a.test"));
        let long = format!("{} / HTTP/1.1\r\nHost: a.test\r\n\r\n", "M".repeat(99));
        assert_eq!(read(long.as_bytes()), host("a.test"));
    }

    #[test]
    fn a_target_names_its_host_too() {
        assert_eq!(read(b"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n"), host("a.test"));
        assert_eq!(read(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n"), host("a.test"));
        let other = b"GET http://u@b.test:80?x HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert_eq!(read(other), Seen::Ambiguous);
    }

    #[test]
    fn what_two_servers_would_read_differently_is_ambiguous() {
        for head in [
            "GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test\r\n\tb.test\r\n\r\n",
            "GET / HTTP/1.1\r\nX: y\rHost: b.test\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.test/b.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1 x\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/3.0\r\nHost: a.test\r\n\r\n",
            "GET / \u{1f}HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET\r/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost\u{b}: b.test\r\nHost: a.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost b.test\r\nHost: a.test\r\n\r\n",
        ] {
            assert_eq!(read(head.as_bytes()), Seen::Ambiguous, "{head:?}");
        }
    }

    #[test]
    fn other_protocols_are_not_held_up() {
        for bytes in [
            "SSH-2.0-OpenSSH_9.2 x\r\n",
            "EHLO me\r\n",
            "\0\0\0\u{8}",
            "*1\r\n",
            "PING\r\n",
            "{\"a",
            "0032git-upload-pack /a.git\0host=a.test\0",
            "192.0.2.1 - - [x] \"GET / HTTP/1.1\" 200\n",
        ] {
            assert_eq!(read(bytes.as_bytes()), Seen::Nobody, "{bytes:?}");
        }
        assert_eq!(read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Seen::Nobody);
        assert!(Name::parse("a.test").is_ok());
    }
}
