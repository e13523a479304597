//! Messages of DNS, as far as a resolver for sandboxes needs them. Everything read here comes from
//! somebody hostile.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Name;

/// What a question asks for. Other kinds are numbers.
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const ALIAS: u16 = 5;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const SVCB: u16 = 64;
    pub(crate) const HTTPS: u16 = 65;
    /// From here to [`ANY`] are questions that are no records: transfers and the like.
    pub(crate) const TRANSFERS: u16 = 249;
    pub(crate) const ANY: u16 = 255;
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Fine = 0,
    Format = 1,
    Failed = 2,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
}

const INTERNET: u16 = 1;
const HEADER: usize = 12;
/// What fits without fragments on any path, for both sides.
pub(crate) const DATAGRAM: u16 = 1232;
/// What a client takes that does not say.
const SMALLEST: u16 = 512;

/// A question of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    id: u16,
    recursion: bool,
    /// The question as it came: the name in its spelling, kind and class.
    question: Vec<u8>,
    /// The name, if hosts can be called that.
    pub(crate) name: Option<Name>,
    pub(crate) kind: u16,
    /// How large an answer by datagram may be, if the client says so, and its version of that.
    edns: Option<(u16, u8)>,
}

/// What is not answered with records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bad {
    /// Not a question at all: no answer.
    Silent,
    Answer(Vec<u8>),
}

impl Query {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let mut rest = Reader { bytes, at: 0 };
        let [id, flags, questions, answers, _authorities, additional] =
            rest.numbers().ok_or(Bad::Silent)?;
        if flags & 0x8000 != 0 {
            return Err(Bad::Silent);
        }
        let recursion = flags & 0x0100 != 0;
        let bad = |code| Bad::Answer(bare(id, flags, code));
        if flags & 0x7800 != 0 {
            return Err(bad(Code::NotImplemented));
        }
        if questions != 1 || answers != 0 {
            return Err(bad(Code::Format));
        }
        let name = rest.plain_name().ok_or_else(|| bad(Code::Format))?;
        let [kind, class] = rest.numbers().ok_or_else(|| bad(Code::Format))?;
        let question = bytes.get(HEADER..rest.at).unwrap_or_default().to_vec();
        if class != INTERNET {
            return Err(bad(Code::Refused));
        }
        let edns = if additional == 0 { Ok(None) } else { rest.edns() };
        let edns = edns.map_err(|CutOff| bad(Code::Format))?;
        Ok(Self { id, recursion, question, name: name.ok(), kind, edns })
    }

    /// Whether it asks with a version of extensions that nobody has.
    pub(crate) fn is_from_the_future(&self) -> bool {
        self.edns.is_some_and(|(_, version)| version > 0)
    }

    /// The largest answer by datagram.
    fn room(&self) -> usize {
        self.edns.map_or(SMALLEST, |(size, _)| size.clamp(SMALLEST, DATAGRAM)).into()
    }

    /// An answer with records, each valid for `seconds`.
    pub(crate) fn answer(&self, code: Code, records: &[Record], seconds: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.question.len() + 64);
        bytes.extend(self.header(code, records.len(), self.edns.is_some()));
        bytes.extend_from_slice(&self.question);
        for record in records {
            record.write(seconds, &mut bytes);
        }
        if self.edns.is_some() {
            // The upper part of the code of an answer is in here: 1 is "bad version".
            let high = u8::from(self.is_from_the_future());
            bytes.extend([0, 0, 41]);
            bytes.extend(DATAGRAM.to_be_bytes());
            bytes.extend([high, 0, 0, 0, 0, 0]);
        }
        bytes
    }

    fn header(&self, code: Code, answers: usize, additional: bool) -> Vec<u8> {
        let flags = 0x8080 | (u16::from(self.recursion) << 8) | code as u16;
        let answers = u16::try_from(answers).unwrap_or(u16::MAX);
        [self.id, flags, 1, answers, 0, u16::from(additional)]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect()
    }

    /// The same question, to be asked by us.
    pub(crate) fn to_ask(&self, id: u16) -> Option<Vec<u8>> {
        Some(ask(id, self.name.as_ref()?, self.kind, self.edns.is_some()))
    }

    /// Makes an answer to [`Query::to_ask`] one to this question; `None` if it is none.
    pub(crate) fn adopt(&self, mut answer: Vec<u8>) -> Option<Vec<u8>> {
        let end = HEADER + self.question.len();
        let theirs = answer.get_mut(HEADER..end)?;
        // Names are compared without regard to case, and each asks in a case of its own.
        if !theirs.eq_ignore_ascii_case(&self.question) {
            return None;
        }
        theirs.copy_from_slice(&self.question);
        answer.get_mut(..2)?.copy_from_slice(&self.id.to_be_bytes());
        let flags = answer.get_mut(2..4)?;
        let code = flags.get(1)? & 0x0f;
        flags.copy_from_slice(&[0x80 | u8::from(self.recursion), 0x80 | code]);
        Some(answer)
    }

    /// An answer as it goes by datagram: what does not fit is left out, and said to be.
    pub(crate) fn fit(&self, mut answer: Vec<u8>) -> Vec<u8> {
        if answer.len() <= self.room() {
            return answer;
        }
        let code = answer.get(3).copied().unwrap_or_default() & 0x0f;
        answer.clear();
        let flags = 0x8280 | (u16::from(self.recursion) << 8) | u16::from(code);
        for number in [self.id, flags, 1, 0, 0, 0] {
            answer.extend(number.to_be_bytes());
        }
        answer.extend_from_slice(&self.question);
        answer
    }

    /// The address that a question for the name of an address is about.
    pub(crate) fn reversed(&self) -> Option<IpAddr> {
        let name = self.name.as_ref()?.as_str();
        if let Some(digits) = name.strip_suffix(".in-addr.arpa") {
            let mut parts = digits.rsplit('.').map(str::parse::<u8>);
            let mut part = || parts.next()?.ok();
            let address = Ipv4Addr::new(part()?, part()?, part()?, part()?);
            return parts.next().is_none().then_some(address.into());
        }
        let digits = name.strip_suffix(".ip6.arpa")?;
        let mut bits: u128 = 0;
        let mut count = 0;
        for digit in digits.rsplit('.') {
            let digit = u128::from_str_radix(digit, 16).ok().filter(|_| digit.len() == 1)?;
            count += 1;
            bits = if count <= 32 { (bits << 4) | digit } else { return None };
        }
        (count == 32).then_some(Ipv6Addr::from_bits(bits).into())
    }
}

/// An answer without even the question, which could not be read.
fn bare(id: u16, flags: u16, code: Code) -> Vec<u8> {
    let flags = 0x8080 | (flags & 0x7900) | code as u16;
    [id, flags, 0, 0, 0, 0].iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// What is in an answer of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Address(IpAddr),
    Name(Name),
}

impl Record {
    /// Its owner is always the name of the question, which stands right behind the header.
    fn write(&self, seconds: u32, to: &mut Vec<u8>) {
        let (kind, data) = match self {
            Self::Address(IpAddr::V4(v4)) => (kind::A, v4.octets().to_vec()),
            Self::Address(IpAddr::V6(v6)) => (kind::AAAA, v6.octets().to_vec()),
            Self::Name(name) => (kind::PTR, spell(name)),
        };
        to.extend([0xc0, 12]);
        for number in [kind, INTERNET] {
            to.extend(number.to_be_bytes());
        }
        to.extend(seconds.to_be_bytes());
        to.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
        to.extend(data);
    }
}

/// A question of ours.
pub(crate) fn ask(id: u16, name: &Name, kind: u16, extended: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(300);
    for number in [id, 0x0100, 1, 0, 0, u16::from(extended)] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(spell(name));
    for number in [kind, INTERNET] {
        bytes.extend(number.to_be_bytes());
    }
    if extended {
        bytes.extend([0, 0, 41]);
        bytes.extend(DATAGRAM.to_be_bytes());
        bytes.extend([0; 6]);
    }
    bytes
}

fn spell(name: &Name) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.as_str().len() + 2);
    for label in name.as_str().split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// What another resolver answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u8,
    pub(crate) truncated: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// The other names by which one comes to the addresses.
    pub(crate) aliases: Vec<Name>,
    /// How long all of it is true, in seconds; `None` if there is nothing in it.
    pub(crate) seconds: Option<u32>,
}

impl Reply {
    /// The most addresses that are kept of one answer.
    const MOST: usize = 32;
    /// The most names by which one comes to them.
    const MOST_ALIASES: usize = 16;

    /// Reads the answer to a question of ours; `None` if it is none.
    pub(crate) fn read(bytes: &[u8], question: &[u8]) -> Option<Self> {
        let mut rest = Reader { bytes, at: 0 };
        let [id, flags, questions, answers, _, _] = rest.numbers()?;
        let asked = question.get(..2)?.try_into().map(u16::from_be_bytes).ok()?;
        if id != asked || flags & 0xf800 != 0x8000 {
            return None;
        }
        let code = u8::try_from(flags & 0xf).ok()?;
        let truncated = flags & 0x0200 != 0;
        let (addresses, aliases) = (Vec::new(), Vec::new());
        let mut reply = Self { code, truncated, addresses, aliases, seconds: None };
        // An error may come without its question.
        if questions == 0 && code != 0 {
            return Some(reply);
        }
        let mut name = rest.plain_name()?.ok()?;
        let [_, _] = rest.numbers()?;
        let ours = question.get(HEADER..rest.at)?;
        if questions != 1 || !bytes.get(HEADER..rest.at)?.eq_ignore_ascii_case(ours) {
            return None;
        }
        let mut found = Vec::new();
        for _ in 0..answers {
            let Some(record) = rest.record() else { break };
            let least = reply.seconds.map_or(record.seconds, |least| least.min(record.seconds));
            reply.seconds = Some(least);
            if found.len() < Self::MOST + Self::MOST_ALIASES {
                found.push(record);
            }
        }
        // Only what is about the name, or about what it is an alias of.
        let of =
            |name: &Name, record: &Found<'_>| rest.name_at(record.owner).as_ref() == Some(name);
        let alias = |name: &Name| {
            let is_it = |it: &&Found<'_>| it.kind == kind::ALIAS && of(name, it);
            rest.name_at(found.iter().find(is_it)?.start)
        };
        while let Some(next) = alias(&name)
            && reply.aliases.len() < Self::MOST_ALIASES
        {
            reply.aliases.push(next.clone());
            name = next;
        }
        let about = found.iter().filter(|record| of(&name, record));
        reply.addresses.extend(about.filter_map(Found::address).take(Self::MOST));
        Some(reply)
    }
}

/// A name that no host has.
struct Strange;

/// A message that ends too early.
struct CutOff;

/// A record as it was found in a message.
struct Found<'a> {
    /// Where the name is that it is about.
    owner: usize,
    kind: u16,
    class: u16,
    /// How long it is true.
    seconds: u32,
    /// Where its content begins.
    start: usize,
    data: &'a [u8],
}

impl Found<'_> {
    fn address(&self) -> Option<IpAddr> {
        match self.kind {
            kind::A => <[u8; 4]>::try_from(self.data).ok().map(IpAddr::from),
            kind::AAAA => <[u8; 16]>::try_from(self.data).ok().map(IpAddr::from),
            _ => None,
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u16; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        }
        Some(numbers)
    }

    /// A name that is written out, even if no host can be called that.
    fn plain_name(&mut self) -> Option<Result<Name, Strange>> {
        let mut text = String::new();
        let mut strange = false;
        loop {
            let length = *self.take(1)?.first()?;
            if length == 0 {
                break;
            }
            // A reference, or a kind of label that was never used. No question has one.
            if length > 63 || text.len() > 255 {
                return None;
            }
            let label = self.take(length.into())?;
            // A dot inside of a label would pass for one between two.
            strange |= label.contains(&b'.') || !label.is_ascii();
            if !text.is_empty() {
                text.push('.');
            }
            text.extend(label.iter().map(|byte| char::from(*byte)));
        }
        Some(if strange { Err(Strange) } else { Name::parse(&text).map_err(|_| Strange) })
    }

    /// Passes over a name that may end in a reference.
    fn skip_name(&mut self) -> Option<()> {
        loop {
            match *self.take(1)?.first()? {
                0 => return Some(()),
                length @ 1..=63 => drop(self.take(length.into())?),
                192.. => return self.take(1).map(drop),
                64..=191 => return None,
            }
        }
    }

    /// The name that begins at a place, references followed.
    fn name_at(&self, start: usize) -> Option<Name> {
        /// No name has more parts.
        const PARTS: usize = 128;
        let mut text = String::new();
        let mut place = Self { bytes: self.bytes, at: start };
        for _ in 0..PARTS {
            let length = *place.take(1)?.first()?;
            match length {
                0 => return Name::parse(&text).ok(),
                1..=63 => {
                    let label = place.take(length.into())?;
                    // A dot inside of a label would pass for one between two.
                    let plain = str::from_utf8(label).ok().filter(|label| !label.contains('.'))?;
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(plain);
                }
                192.. => {
                    let low = *place.take(1)?.first()?;
                    place.at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                }
                64..=191 => return None,
            }
        }
        None
    }

    fn record(&mut self) -> Option<Found<'a>> {
        let owner = self.at;
        self.skip_name()?;
        let [kind, class] = self.numbers()?;
        let seconds = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        let [length] = self.numbers()?;
        let start = self.at;
        Some(Found { owner, kind, class, seconds, start, data: self.take(length.into())? })
    }

    /// The record of extensions, if it is the one that follows: the size of an answer, a version.
    fn edns(&mut self) -> Result<Option<(u16, u8)>, CutOff> {
        let Found { kind, class: size, seconds, .. } = self.record().ok_or(CutOff)?;
        let [_, version, ..] = seconds.to_be_bytes();
        Ok((kind == kind::OPT).then_some((size, version)))
    }
}

#[cfg(test)]
mod tests;
