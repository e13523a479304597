//! The table of the packet filter. It is the same in every namespace and never changes:
//!
//! ```text
//! table inet outlets {
//!     chain arriving {
//!         type filter hook prerouting priority mangle; policy drop;
//!         tcp dport 1 reject with tcp reset
//!         udp dport 1 drop
//!         ip daddr 127.0.0.0/8 accept
//!         ip daddr 198.18.0.1 accept
//!         ip6 daddr ::1 accept
//!         ip6 daddr fd53::1 accept
//!         ip saddr 198.18.0.1 tproxy to :1 accept
//!         ip6 saddr fd53::1 tproxy to :1 accept
//!         meta l4proto tcp reject with tcp reset
//!     }
//! }
//! ```
//!
//! Whatever is sent on `lo` arrives there. `tproxy` takes TCP and UDP only, and goes on to the next
//! rule if there is no transparent socket. The check of the source keeps answers from
//! going out again, to an address that somebody has only bound.

use std::{io, net::Ipv6Addr, sync::LazyLock};

use rustix::net::netlink;

use super::{
    OWN, PORT,
    netlink::{ACKNOWLEDGE, APPEND, Attributes, CREATE, EXCLUSIVE, Messages},
};

const TABLE: &str = "outlets";
const CHAIN: &str = "arriving";

/// The family of tables that see both IPv4 and IPv6.
const INET: u8 = 1;
const V4: u8 = 2;
const V6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

const PREROUTING: u32 = 0;
/// Fragments are put together long before.
const MANGLE: i32 = -150;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// Where an address is in the header of its family.
const V4_SOURCE: u32 = 12;
const V4_DESTINATION: u32 = 16;
const V6_SOURCE: u32 = 8;
const V6_DESTINATION: u32 = 24;
/// Where the port is in the headers of TCP and UDP to which something goes.
const PORT_DESTINATION: u32 = 2;

/// The register that expressions leave their results in, and the one that ends a rule.
const RESULT: u32 = 1;
const VERDICT: u32 = 0;

/// The subsystem of netfilter whose messages these are.
const NFTABLES: u8 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u8 = 0;
const GET_TABLE: u8 = 1;
const NEW_CHAIN: u8 = 3;
const NEW_RULE: u8 = 6;

/// The numbers of attributes, each in the message or the expression of its name. See
/// `linux/netfilter/nf_tables.h`.
mod attribute {
    pub(super) const TABLE_NAME: u16 = 1;

    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_HOOK: u16 = 4;
    pub(super) const CHAIN_POLICY: u16 = 5;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;

    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const EXPRESSION_NAME: u16 = 1;
    pub(super) const EXPRESSION_DATA: u16 = 2;

    pub(super) const META_RESULT: u16 = 1;
    pub(super) const META_KEY: u16 = 2;
    pub(super) const PAYLOAD_RESULT: u16 = 1;
    pub(super) const PAYLOAD_BASE: u16 = 2;
    pub(super) const PAYLOAD_OFFSET: u16 = 3;
    pub(super) const PAYLOAD_LENGTH: u16 = 4;
    pub(super) const COMPARE_SOURCE: u16 = 1;
    pub(super) const COMPARE_OPERATION: u16 = 2;
    pub(super) const COMPARE_DATA: u16 = 3;
    pub(super) const IMMEDIATE_RESULT: u16 = 1;
    pub(super) const IMMEDIATE_DATA: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
    pub(super) const TPROXY_FAMILY: u16 = 1;
    pub(super) const TPROXY_PORT: u16 = 3;
    pub(super) const REJECT_TYPE: u16 = 1;
}

/// What adds the table.
static ADDING: LazyLock<Messages> = LazyLock::new(|| {
    let mut messages = Messages::default();
    boundary(&mut messages, BATCH_BEGIN);
    add_message(&mut messages, NEW_TABLE, CREATE | EXCLUSIVE, |table| {
        table.text(attribute::TABLE_NAME, TABLE);
    });
    add_message(&mut messages, NEW_CHAIN, CREATE | EXCLUSIVE, |chain| {
        chain.text(attribute::CHAIN_TABLE, TABLE);
        chain.text(attribute::CHAIN_NAME, CHAIN);
        chain.nest(attribute::CHAIN_HOOK, |hook| {
            hook.number(attribute::HOOK_NUMBER, PREROUTING);
            hook.bytes(attribute::HOOK_PRIORITY, &MANGLE.to_be_bytes());
        });
        chain.number(attribute::CHAIN_POLICY, DROP);
        chain.text(attribute::CHAIN_TYPE, "filter");
    });
    for write in RULES {
        add_message(&mut messages, NEW_RULE, CREATE | APPEND, |rule| {
            rule.text(attribute::RULE_TABLE, TABLE);
            rule.text(attribute::RULE_CHAIN, CHAIN);
            rule.nest(attribute::RULE_EXPRESSIONS, |list| write(&mut Rule(list)));
        });
    }
    boundary(&mut messages, BATCH_END);
    messages
});

/// Adds the table, which must not be there.
pub(super) fn add() -> io::Result<()> {
    ADDING.send(Some(netlink::NETFILTER), |_| true)
}

/// Whether the table is there. To try and fail would take the kernel long.
pub(super) fn is_there() -> io::Result<bool> {
    let mut messages = Messages::default();
    add_message(&mut messages, GET_TABLE, 0, |table| {
        table.text(attribute::TABLE_NAME, TABLE);
    });
    match messages.send(Some(netlink::NETFILTER), |_| true) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

const RULES: [fn(&mut Rule<'_, '_>); 9] = [
    |rule| rule.protocol(TCP).port(PORT).reset(),
    |rule| rule.protocol(UDP).port(PORT).give(DROP),
    |rule| rule.family(V4).address(V4_DESTINATION, &[127]).give(ACCEPT),
    |rule| rule.family(V4).address(V4_DESTINATION, &OWN.0.octets()).give(ACCEPT),
    |rule| rule.family(V6).address(V6_DESTINATION, &Ipv6Addr::LOCALHOST.octets()).give(ACCEPT),
    |rule| rule.family(V6).address(V6_DESTINATION, &OWN.1.octets()).give(ACCEPT),
    |rule| rule.family(V4).address(V4_SOURCE, &OWN.0.octets()).hand_over(),
    |rule| rule.family(V6).address(V6_SOURCE, &OWN.1.octets()).hand_over(),
    |rule| rule.protocol(TCP).reset(),
];

/// A rule: expressions of which each either lets the next one go on or ends the rule.
struct Rule<'a, 'b>(&'a mut Attributes<'b>);

impl Rule<'_, '_> {
    fn family(&mut self, family: u8) -> &mut Self {
        const KEY: u32 = 15;
        self.meta(KEY).is(&[family])
    }

    fn protocol(&mut self, protocol: u8) -> &mut Self {
        const KEY: u32 = 16;
        self.meta(KEY).is(&[protocol])
    }

    /// The address at `offset` begins with `bytes`.
    fn address(&mut self, offset: u32, bytes: &[u8]) -> &mut Self {
        const NETWORK_HEADER: u32 = 1;
        self.payload(NETWORK_HEADER, offset, bytes)
    }

    fn port(&mut self, port: u16) -> &mut Self {
        const TRANSPORT_HEADER: u32 = 2;
        self.payload(TRANSPORT_HEADER, PORT_DESTINATION, &port.to_be_bytes())
    }

    fn give(&mut self, verdict: u32) {
        self.add("immediate", |data| {
            data.number(attribute::IMMEDIATE_RESULT, VERDICT);
            data.nest(attribute::IMMEDIATE_DATA, |data| {
                data.nest(attribute::DATA_VERDICT, |data| {
                    data.number(attribute::VERDICT_CODE, verdict);
                });
            });
        });
    }

    /// Gives the packet to the socket at our port, if it is TCP or UDP and there is one.
    fn hand_over(&mut self) {
        const ANY_FAMILY: u32 = 0;
        self.add("immediate", |data| {
            data.number(attribute::IMMEDIATE_RESULT, RESULT);
            data.nest(attribute::IMMEDIATE_DATA, |data| {
                data.bytes(attribute::DATA_VALUE, &PORT.to_be_bytes());
            });
        });
        self.add("tproxy", |data| {
            data.number(attribute::TPROXY_FAMILY, ANY_FAMILY);
            data.number(attribute::TPROXY_PORT, RESULT);
        });
        self.give(ACCEPT);
    }

    fn reset(&mut self) {
        const TCP_RESET: u32 = 1;
        self.add("reject", |data| data.number(attribute::REJECT_TYPE, TCP_RESET));
    }

    fn meta(&mut self, key: u32) -> &mut Self {
        self.add("meta", |data| {
            data.number(attribute::META_RESULT, RESULT);
            data.number(attribute::META_KEY, key);
        })
    }

    fn payload(&mut self, base: u32, offset: u32, bytes: &[u8]) -> &mut Self {
        self.add("payload", |data| {
            data.number(attribute::PAYLOAD_RESULT, RESULT);
            data.number(attribute::PAYLOAD_BASE, base);
            data.number(attribute::PAYLOAD_OFFSET, offset);
            data.number(attribute::PAYLOAD_LENGTH, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        })
        .is(bytes)
    }

    /// Goes on if the result is `value`.
    fn is(&mut self, value: &[u8]) -> &mut Self {
        const EQUAL: u32 = 0;
        self.add("cmp", |data| {
            data.number(attribute::COMPARE_SOURCE, RESULT);
            data.number(attribute::COMPARE_OPERATION, EQUAL);
            data.nest(attribute::COMPARE_DATA, |data| data.bytes(attribute::DATA_VALUE, value));
        })
    }

    fn add(&mut self, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.0.nest(attribute::LIST_ELEMENT, |expression| {
            expression.text(attribute::EXPRESSION_NAME, name);
            expression.nest(attribute::EXPRESSION_DATA, fill);
        });
        self
    }
}

/// All between the two is done together or not at all.
fn boundary(messages: &mut Messages, kind: u16) {
    let [high, low] = u16::from(NFTABLES).to_be_bytes();
    messages.add(kind, 0, &[0, 0, high, low], |_| {});
}

fn add_message(
    messages: &mut Messages,
    kind: u8,
    flags: u16,
    fill: impl FnOnce(&mut Attributes<'_>),
) {
    let kind = u16::from_be_bytes([NFTABLES, kind]);
    messages.add(kind, ACKNOWLEDGE | flags, &[INET, 0, 0, 0], fill);
}
