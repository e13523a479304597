//! Messages to the kernel's network, and whether it did what they say.

use std::io;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const HEADER: usize = 16;
const ALIGNMENT: usize = 4;

pub(super) const CREATE: u16 = flag(libc::NLM_F_CREATE);
pub(super) const EXCLUSIVE: u16 = flag(libc::NLM_F_EXCL);
pub(super) const APPEND: u16 = flag(libc::NLM_F_APPEND);
pub(super) const ACKNOWLEDGE: u16 = flag(libc::NLM_F_ACK);
const REQUEST: u16 = flag(libc::NLM_F_REQUEST);
const NESTED: u16 = flag(libc::NLA_F_NESTED);

/// Messages that are sent at once.
#[derive(Debug, Default)]
pub(super) struct Messages(Vec<u8>);

/// The attributes of one message, or of another attribute.
#[derive(Debug)]
pub(super) struct Attributes<'a>(&'a mut Vec<u8>);

impl Messages {
    /// Adds a message of a `fixed` part and attributes.
    pub(super) fn add(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.0.len();
        self.0.extend([0; 4]);
        self.0.extend(kind.to_ne_bytes());
        self.0.extend((flags | REQUEST).to_ne_bytes());
        // Neither a number nor a sender: answers come in order, and only to us.
        self.0.extend([0; 8]);
        self.0.extend(fixed);
        align(&mut self.0);
        fill(&mut Attributes(&mut self.0));
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        overwrite(&mut self.0, start, &length.to_ne_bytes());
    }

    /// Has the kernel do it all, in the network namespace of this thread. Answers with the first
    /// error among those that `matters` says are some.
    ///
    /// The kernel works while the messages are sent: all that it says is there afterwards.
    pub(super) fn send(
        &self,
        protocol: Option<Protocol>,
        matters: impl Fn(&io::Error) -> bool,
    ) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        send(&socket, &self.0, SendFlags::empty())?;
        let mut buffer = [0; 8 * 1024];
        let mut is_heard = false;
        let mut outcome = Ok(());
        loop {
            let count = match recv(&socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((count, _)) => count,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            let mut rest = buffer.get(..count).unwrap_or_default();
            while let Some((result, after)) = next_answer(rest) {
                is_heard = true;
                rest = after;
                if let Err(error) = result
                    && matters(&error)
                    && outcome.is_ok()
                {
                    outcome = Err(error);
                }
            }
        }
        if is_heard { outcome } else { Err(io::Error::other("the kernel's network is silent")) }
    }
}

impl Attributes<'_> {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.add(kind, |bytes| bytes.extend(value));
    }

    /// A number as the packet filter writes them: the largest part first.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        self.add(kind, |bytes| {
            bytes.extend(value.as_bytes());
            bytes.push(0);
        });
    }

    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) {
        self.add(kind | NESTED, |bytes| fill(&mut Attributes(bytes)));
    }

    fn add(&mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        fill(self.0);
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        overwrite(self.0, start, &length.to_ne_bytes());
        align(self.0);
    }
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// What the first message in `bytes` says of one of ours, and what comes after it.
fn next_answer(bytes: &[u8]) -> Option<(io::Result<()>, &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?);
    let length = usize::try_from(length).ok()?.max(HEADER);
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let rest = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    if i32::from(kind) != libc::NLMSG_ERROR {
        return Some((Ok(()), rest));
    }
    let code = i32::from_ne_bytes(*bytes.get(HEADER..)?.first_chunk()?);
    let result = if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
    Some((result, rest))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "these flags are written in 16 bits"
)]
const fn flag(value: i32) -> u16 {
    value as u16
}
