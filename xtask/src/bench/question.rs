//! As much of DNS as it takes to ask for an address, and to answer.

use std::net::{IpAddr, Ipv4Addr};

const HEADER: usize = 12;
const A: [u8; 2] = [0, 1];

/// A question for the address of a name.
pub(crate) fn ask(name: &str) -> Vec<u8> {
    // A number that nobody looks at, recursion desired, one question.
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, A[0], A[1], 0, 1]);
    message
}

/// The answer to a question: this address, if it asks for one of IPv4, and nothing else otherwise.
pub(crate) fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let name = question.get(HEADER..)?.iter().position(|byte| *byte == 0)?;
    let end = HEADER + name + 5;
    let kind = question.get(end - 4..end - 2)?;
    let found = u8::from(kind == A);
    let mut message = question.get(..2)?.to_vec();
    message.extend([0x81, 0x80, 0, 1, 0, found, 0, 0, 0, 0]);
    message.extend_from_slice(question.get(HEADER..end)?);
    if found == 1 {
        // The name of the question, an hour, four bytes.
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4]);
        message.extend(address.octets());
    }
    Some(message)
}

/// The address in an answer to [`ask`] that has one.
pub(crate) fn address(answer: &[u8]) -> Option<IpAddr> {
    let count = answer.get(6..8)?;
    if count != [0, 1] {
        return None;
    }
    Some(IpAddr::from(*answer.last_chunk::<4>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_with_the_address() {
        let found = answer(&ask("host.bench.test"), Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(address(&found), Some(IpAddr::from(Ipv4Addr::LOCALHOST)));
        assert_eq!(answer(b"short", Ipv4Addr::LOCALHOST), None);
    }
}
