//! What the fuzz targets in `fuzz/` reach of the parsers: thin functions over plain values, so that
//! the parsers themselves can stay private.

use std::net::{IpAddr, Ipv4Addr};

use crate::{
    dns::{Bad, Code, Query, Record, Reply},
    sniff::{self, Said, Seen},
};

/// What the first bytes of a connection tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Undecided,
    Nobody,
    Name(String),
    Address(IpAddr),
    Ambiguous,
}

pub fn sniff(bytes: &[u8]) -> Told {
    match sniff::sniff(bytes) {
        Seen::Undecided => Told::Undecided,
        Seen::Nobody => Told::Nobody,
        Seen::Host(Said::Name(name)) => Told::Name(name.to_string()),
        Seen::Host(Said::Address(address)) => Told::Address(address),
        Seen::Ambiguous => Told::Ambiguous,
    }
}

/// The name that a question is about, if it can be a host's, and the answer by datagram.
pub fn question(bytes: &[u8]) -> Option<(Option<String>, Vec<u8>)> {
    match Query::read(bytes) {
        Ok(query) => {
            let record = Record::Address(Ipv4Addr::new(198, 18, 1, 1).into());
            let answer = query.fit(query.answer(Code::Fine, &[record], 60));
            Some((query.name.as_ref().map(ToString::to_string), answer))
        }
        Err(Bad::Answer(answer)) => Some((None, answer)),
        Err(Bad::Silent) => None,
    }
}

/// Whether something is an answer to a question.
pub fn is_reply(bytes: &[u8], question: &[u8]) -> bool {
    Reply::read(bytes, question).is_some()
}
