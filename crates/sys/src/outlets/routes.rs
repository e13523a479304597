//! Every address at home on `lo`.

use std::{io, sync::LazyLock};

use super::{
    OWN,
    netlink::{ACKNOWLEDGE, CREATE, EXCLUSIVE, Messages},
};

/// The number of the loopback interface: the first in every network namespace.
const LO: u32 = 1;

const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// The address can be used without asking the neighbours whether it is theirs: there are none.
const AT_ONCE: u32 = 2;
/// It has no route of its own to begin with, which would not be one to this very host.
const WITHOUT_ROUTE: u32 = 0x200;
const ADDRESS_FLAGS: u16 = 8;

/// What brings up the loopback and adds the routes.
static ADDING: LazyLock<Messages> = LazyLock::new(|| {
    let mut messages = Messages::default();
    let up: u32 = 1;
    let mut link = Vec::from([0; 4]);
    link.extend(LO.to_ne_bytes());
    // The flags, and which of them are to be changed.
    link.extend(up.to_ne_bytes());
    link.extend(up.to_ne_bytes());
    messages.add(libc::RTM_NEWLINK, ACKNOWLEDGE, &link, |_| {});
    settle(&mut messages, IPV4, &OWN.0.octets());
    settle(&mut messages, IPV6, &OWN.1.octets());
    messages
});

/// Brings up the loopback and adds the routes, as far as they are not there.
pub(super) fn add() -> io::Result<()> {
    // The protocol of routes has the number zero.
    ADDING.send(None, |error| error.kind() != io::ErrorKind::AlreadyExists)
}

/// Gives `lo` an address, from which everything of this family that has no other goes out, and a
/// route by which it comes in again.
fn settle(messages: &mut Messages, family: u8, own: &[u8]) {
    let flags = CREATE | EXCLUSIVE | ACKNOWLEDGE;
    let whole = u8::try_from(own.len() * 8).unwrap_or(u8::MAX);
    let mut address = vec![family, whole, 0, libc::RT_SCOPE_UNIVERSE];
    address.extend(LO.to_ne_bytes());
    messages.add(libc::RTM_NEWADDR, flags, &address, |attributes| {
        attributes.bytes(libc::IFA_LOCAL, own);
        attributes.bytes(libc::IFA_ADDRESS, own);
        attributes.bytes(ADDRESS_FLAGS, &(AT_ONCE | WITHOUT_ROUTE).to_ne_bytes());
    });
    let scope = if family == IPV4 { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_UNIVERSE };
    let table = libc::RT_TABLE_MAIN;
    let (by, kind) = (libc::RTPROT_STATIC, libc::RTN_LOCAL);
    let route = [family, 0, 0, 0, table, by, scope, kind, 0, 0, 0, 0];
    messages.add(libc::RTM_NEWROUTE, flags, &route, |attributes| {
        attributes.bytes(libc::RTA_OIF, &LO.to_ne_bytes());
        attributes.bytes(libc::RTA_PREFSRC, own);
    });
}
