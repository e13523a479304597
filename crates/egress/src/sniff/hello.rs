//! The first message of TLS.

use super::{Said, Seen};

/// The first byte of a record that is part of a handshake.
pub(super) const RECORD: u8 = 22;
/// That of records which do not come first. Some servers pass over them.
pub(super) const OTHER_RECORDS: [u8; 3] = [20, 21, 23];
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

pub(super) fn read(bytes: &[u8]) -> Seen {
    // Every version of the protocol says 3 here. Something else is no TLS.
    match bytes.get(1) {
        None => return Seen::Undecided,
        Some(3) => {}
        Some(_) => return Seen::Nobody,
    }
    let Some(message) = join(bytes) else { return Seen::Ambiguous };
    let mut message = Part(&message);
    match message.number::<1>() {
        None => return Seen::Undecided,
        Some(kind) if kind == u32::from(CLIENT_HELLO) => {}
        Some(_) => return Seen::Ambiguous,
    }
    let Some(length) = message.number::<3>() else { return Seen::Undecided };
    if length as usize > super::LONGEST {
        return Seen::Ambiguous;
    }
    let Some(hello) = message.take(length as usize) else { return Seen::Undecided };
    match host(Part(hello)) {
        None | Some(Err(())) => Seen::Ambiguous,
        Some(Ok(None)) => Seen::Nobody,
        Some(Ok(Some(name))) => match std::str::from_utf8(name).ok().and_then(Said::parse) {
            Some(said) => Seen::Host(said),
            None => Seen::Ambiguous,
        },
    }
}

/// What begins like a record, but not like one of a handshake.
pub(super) fn read_other(bytes: &[u8]) -> Seen {
    match bytes.get(1) {
        None => Seen::Undecided,
        Some(3) => Seen::Ambiguous,
        Some(_) => Seen::Nobody,
    }
}

/// The content of the records that are there up to the end of the first message, the last perhaps
/// in part; `None` if there is something else among them. What is behind it does not matter.
fn join(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(bytes.len());
    let mut rest = Part(bytes);
    while !Part(&content).whole()
        && let Some(kind) = rest.number::<1>()
    {
        if kind != u32::from(RECORD) {
            return None;
        }
        let (Some(_version), Some(length)) = (rest.number::<2>(), rest.number::<2>()) else {
            break;
        };
        // Records without content only serve to confuse.
        if length == 0 {
            return None;
        }
        let part = rest.0.get(..length as usize).unwrap_or(rest.0);
        content.extend_from_slice(part);
        rest.take(part.len())?;
    }
    Some(content)
}

/// The name of the host in a hello. `None` if it is cut off, an error if there are several.
fn host(mut hello: Part<'_>) -> Option<Result<Option<&[u8]>, ()>> {
    let _version = hello.number::<2>()?;
    let _random = hello.take(32)?;
    let _session = hello.list::<1>()?;
    let _ciphers = hello.list::<2>()?;
    let _compressions = hello.list::<1>()?;
    if hello.0.is_empty() {
        return Some(Ok(None));
    }
    let mut extensions = hello.list::<2>()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let mut content = extensions.list::<2>()?;
        if kind != u32::from(SERVER_NAME) {
            continue;
        }
        let mut names = content.list::<2>()?;
        let kind = names.number::<1>()?;
        let name = names.list::<2>()?;
        let strange = kind != u32::from(HOST_NAME) || !names.0.is_empty() || !content.0.is_empty();
        if strange || found.is_some() {
            return Some(Err(()));
        }
        found = Some(name.0);
    }
    hello.0.is_empty().then_some(Ok(found))
}

/// What is left to read.
struct Part<'a>(&'a [u8]);

impl<'a> Part<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const BYTES: usize>(&mut self) -> Option<u32> {
        let bytes = self.take(BYTES)?;
        Some(bytes.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte)))
    }

    /// What stands behind its length.
    fn list<const BYTES: usize>(&mut self) -> Option<Part<'a>> {
        let length = self.number::<BYTES>()?;
        self.take(length as usize).map(Part)
    }

    /// Whether this is a whole message at least.
    fn whole(mut self) -> bool {
        self.number::<1>().is_some() && self.list::<3>().is_some()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn listed<const BYTES: usize>(content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[4 - BYTES..], content].concat()
    }

    fn server_name(name: &str) -> Vec<u8> {
        let entry = [vec![HOST_NAME], listed::<2>(name.as_bytes())].concat();
        [vec![0, 0], listed::<2>(&listed::<2>(&entry))].concat()
    }

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend(listed::<1>(&[1; 32]));
        body.extend(listed::<2>(&[0x13, 1]));
        body.extend(listed::<1>(&[0]));
        body.extend(listed::<2>(extensions));
        [vec![CLIENT_HELLO], listed::<3>(&body)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message
            .chunks(size)
            .flat_map(|part| [vec![RECORD, 3, 1], listed::<2>(part)].concat())
            .collect()
    }

    /// The first message of a client that asks for a host.
    pub(crate) fn hello_for(name: &str) -> Vec<u8> {
        let other = [vec![0, 43], listed::<2>(&[2, 3, 4])].concat();
        records(&hello(&[other, server_name(name)].concat()), 16384)
    }

    #[test]
    fn the_host_of_a_hello_is_read_however_it_is_cut() {
        let expected = Seen::Host(Said::parse("a.test").unwrap());
        assert_eq!(read(&hello_for("A.test")), expected);
        assert_eq!(read(&records(&hello(&server_name("a.test")), 3)), expected);
        let whole = hello_for("a.test");
        for end in 1..whole.len() {
            assert_eq!(read(&whole[..end]), Seen::Undecided, "{end}");
        }
        for behind in [[20, 3, 1, 0, 1, 1], [22, 3, 1, 0, 0, 1]] {
            assert_eq!(read(&[&*whole, &behind].concat()), expected, "{behind:?}");
        }
    }

    #[test]
    fn a_hello_may_name_nobody() {
        assert_eq!(read(&records(&hello(&[]), 16384)), Seen::Nobody);
        assert_eq!(read(&[22, 9, 9]), Seen::Nobody);
    }

    #[test]
    fn a_hello_that_is_read_in_two_ways_is_ambiguous() {
        let twice = [server_name("a.test"), server_name("b.test")].concat();
        assert_eq!(read(&records(&hello(&twice), 16384)), Seen::Ambiguous);
        assert_eq!(read(&hello_for("a.test\0b.test")), Seen::Ambiguous);
        assert_eq!(read(&records(&[2, 0, 0, 1, 0], 16384)), Seen::Ambiguous);
        let empty = [vec![RECORD, 3, 1, 0, 0], hello_for("a.test")].concat();
        assert_eq!(read(&empty), Seen::Ambiguous);
        let mut long = hello(&server_name("a.test"));
        long[1] = 1;
        assert_eq!(read(&records(&long, 16384)), Seen::Ambiguous);
        let alert = [records(&hello(&server_name("a.test"))[..20], 20), vec![21, 3, 1, 0, 2, 1, 0]];
        assert_eq!(read(&alert.concat()), Seen::Ambiguous);
    }
}
