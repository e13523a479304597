use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    Attempt, By, Name, Policy, Protocol, Ruling, Verdict,
    book::Synthetic,
    dial::too_many,
    dns::{Bad, Code, Query, Record, kind},
    door::Door,
    streams::RESOLVER,
    upstream::Resolved,
};

/// What goes back to the sandbox.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The question, if it could be read.
    query: Option<Query>,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    /// As it goes by datagram.
    pub(crate) fn datagram(self) -> Vec<u8> {
        match self.query {
            Some(query) => query.fit(self.bytes),
            None => self.bytes,
        }
    }
}

/// How long a name's address may be kept, in seconds: short, since a name that is not used leaves
/// the book.
const KEPT: u32 = 60;
/// The longest answer that is passed on from others.
const LONGEST: usize = 4096;
/// The most characters below a domain that is allowed as a whole: its owner hears every name that
/// is asked for, and each could carry a message.
const LONGEST_BELOW: usize = 100;

/// Answers a question of a sandbox; `None` if it is none.
pub(crate) async fn answer(door: &Door, question: &[u8]) -> Option<Answer> {
    let query = Query::read(question);
    // Who asks too often hears nothing, and asks again later.
    if door.questions.take(1.0).is_err() {
        note(door, query.as_ref().ok().and_then(|query| query.name.as_ref()), too_many());
        return None;
    }
    let query = match query {
        Ok(query) => query,
        Err(bad) => {
            note(door, None, denied());
            return match bad {
                Bad::Silent => None,
                Bad::Answer(bytes) => Some(Answer { query: None, bytes }),
            };
        }
    };
    let bytes = answer_query(door, &query).await;
    Some(Answer { query: Some(query), bytes })
}

async fn answer_query(door: &Door, query: &Query) -> Vec<u8> {
    let plain = |code| query.answer(code, &[], KEPT);
    if query.is_from_the_future() {
        return plain(Code::Fine);
    }
    let Some(name) = &query.name else {
        note(door, None, denied());
        return plain(Code::NoSuchName);
    };
    if let Some(known) = ourselves(door, query, name) {
        return known;
    }
    let policy = door.policy();
    let mut ruling = policy.name(name);
    // The names of addresses that are not to be reached are not told either.
    if let (Verdict::Allow, Some(address)) = (ruling.verdict, query.reversed()) {
        ruling = policy.address(address, RESOLVER);
    }
    if ruling.verdict == Verdict::Deny {
        note(door, Some(name), ruling);
        return plain(Code::NoSuchName);
    }
    let transfer = (kind::TRANSFERS..=kind::ANY).contains(&query.kind);
    if transfer || is_message(door, &policy, name) {
        note(door, Some(name), if transfer { denied() } else { too_many() });
        return plain(Code::Refused);
    }
    note(door, Some(name), ruling);
    match query.kind {
        kind::A | kind::AAAA => addresses(door, query, name).await,
        // They could send a client elsewhere than to the address that stands for the name.
        kind::HTTPS | kind::SVCB => plain(Code::Fine),
        _ => match door.house.upstream.forward(query).await {
            Some(answer) if answer.len() <= LONGEST => answer,
            _ => plain(Code::Failed),
        },
    }
}

/// What we know without asking anybody, and everybody may.
fn ourselves(door: &Door, query: &Query, name: &Name) -> Option<Vec<u8>> {
    if name.as_str() == "localhost" || name.as_str().ends_with(".localhost") {
        let address: Option<IpAddr> = match query.kind {
            kind::A => Some(Ipv4Addr::LOCALHOST.into()),
            kind::AAAA => Some(Ipv6Addr::LOCALHOST.into()),
            _ => None,
        };
        let records: Vec<_> = address.into_iter().map(Record::Address).collect();
        return Some(query.answer(Code::Fine, &records, KEPT));
    }
    let about = door.book().name(query.reversed()?)?;
    Some(match about {
        Ok(name) if query.kind == kind::PTR => {
            query.answer(Code::Fine, &[Record::Name(name)], KEPT)
        }
        Ok(_) => query.answer(Code::Fine, &[], KEPT),
        Err(_) => query.answer(Code::NoSuchName, &[], KEPT),
    })
}

/// Whether a name looks like a message to the owner of a domain that is allowed as a whole. Who is
/// named by a rule, or allowed because everything is, needs no such way out.
fn is_message(door: &Door, policy: &Policy, name: &Name) -> bool {
    let Some(below) = policy.below(name) else { return false };
    if below > LONGEST_BELOW {
        return true;
    }
    let known = door.book().has(name);
    !known && door.strange_names.take(1.0).is_err()
}

/// The address that stands for a name, if it has any of its own.
async fn addresses(door: &Door, query: &Query, name: &Name) -> Vec<u8> {
    let found = match door.house.upstream.resolve(name).await {
        Resolved::Addresses(found) | Resolved::Aliased(found, _) => found,
        Resolved::Nothing => return query.answer(Code::NoSuchName, &[], KEPT),
        Resolved::Failed => return query.answer(Code::Failed, &[], KEPT),
    };
    let sixth = query.kind == kind::AAAA;
    // Whoever speaks only IPv4 reaches hosts of both families, since we dial for him.
    if found.is_empty() || (sixth && !found.iter().any(IpAddr::is_ipv6)) {
        return query.answer(Code::Fine, &[], KEPT);
    }
    let Some(Synthetic { v4, v6 }) = door.book().enter(name) else {
        return query.answer(Code::Failed, &[], KEPT);
    };
    let address = if sixth { v6.into() } else { v4.into() };
    query.answer(Code::Fine, &[Record::Address(address)], KEPT)
}

/// What no rule can allow.
fn denied() -> Ruling {
    Ruling { verdict: Verdict::Deny, by: By::Default }
}

/// Writes down what was decided about a question.
pub(crate) fn note(door: &Door, name: Option<&Name>, ruling: Ruling) {
    let what = Attempt {
        protocol: Protocol::Dns,
        name: name.cloned(),
        address: None,
        port: RESOLVER,
        request: None,
    };
    door.note(what, ruling);
}

#[cfg(test)]
mod tests;
