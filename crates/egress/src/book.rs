use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::Name;

/// The names that a sandbox has asked for, each with an address of both families that no host has:
/// whoever connects to it says exactly whom the connection is for.
///
/// A name keeps its addresses while it is in the book. The addresses of one that left are given to
/// another only after all others were.
#[derive(Debug, Default)]
pub(crate) struct Book {
    names: HashMap<Name, Entry>,
    /// The name of each number that is given.
    numbers: HashMap<u32, Name>,
    next: u32,
    /// Counts the uses, to find what was used least recently.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    number: u32,
    used: u64,
    connections: usize,
}

/// The addresses of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Synthetic {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

impl Synthetic {
    /// The benchmark range without its first part, in which the sandbox's own address is.
    const V4: u32 = u32::from_be_bytes([198, 18, 1, 0]);
    const COUNT: u32 = (1 << 17) - (1 << 8);
    const V6: u128 = Ipv6Addr::new(0xfd53, 0, 0, 1, 0, 0, 0, 0).to_bits();

    fn of(number: u32) -> Self {
        Self {
            v4: Ipv4Addr::from_bits(Self::V4 + number),
            v6: Ipv6Addr::from_bits(Self::V6 + u128::from(number)),
        }
    }

    /// The number behind an address; `None` if it is not synthetic.
    fn number(address: IpAddr) -> Option<Result<u32, Unknown>> {
        match address {
            IpAddr::V4(v4) => {
                let number = v4.to_bits().checked_sub(Self::V4)?;
                (number < Self::COUNT).then_some(Ok(number))
            }
            IpAddr::V6(v6) => {
                let number = v6.to_bits().checked_sub(Self::V6).filter(|n| n >> 64 == 0)?;
                Some(u32::try_from(number).map_err(|_| Unknown))
            }
        }
    }
}

/// An address that is nobody's: its name has left the book, or never was in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown;

impl Book {
    const MOST: usize = 4096;

    /// An empty book that begins anywhere: an address that programs remember from an earlier one,
    /// as of a server that was started again, should not stand for another name now.
    pub(crate) fn anywhere() -> Self {
        let mut first = [0; 4];
        match getrandom::fill(&mut first) {
            Ok(()) => {
                Self { next: u32::from_be_bytes(first) % Synthetic::COUNT, ..Self::default() }
            }
            // At worst programs must ask again.
            Err(_) => Self::default(),
        }
    }

    /// The addresses of a name, which are new if it has none. `None` if the book is full of names
    /// with open connections.
    pub(crate) fn enter(&mut self, name: &Name) -> Option<Synthetic> {
        self.clock += 1;
        if let Some(entry) = self.names.get_mut(name) {
            entry.used = self.clock;
            return Some(Synthetic::of(entry.number));
        }
        if self.names.len() >= Self::MOST {
            self.drop_least_used()?;
        }
        while self.numbers.contains_key(&self.next) {
            self.next = (self.next + 1) % Synthetic::COUNT;
        }
        let number = self.next;
        self.next = (self.next + 1) % Synthetic::COUNT;
        self.names.insert(name.clone(), Entry { number, used: self.clock, connections: 0 });
        self.numbers.insert(number, name.clone());
        Some(Synthetic::of(number))
    }

    /// Whether the name has addresses now.
    pub(crate) fn has(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }

    /// Whose an address is; `None` if it is not one of those that are given to names.
    pub(crate) fn name(&self, address: IpAddr) -> Option<Result<Name, Unknown>> {
        let number = Synthetic::number(address)?;
        Some(number.and_then(|number| self.numbers.get(&number).cloned().ok_or(Unknown)))
    }

    /// Keeps a name in the book until it is let go as often as it was held.
    pub(crate) fn hold(&mut self, name: &Name) {
        self.clock += 1;
        if let Some(entry) = self.names.get_mut(name) {
            entry.used = self.clock;
            entry.connections += 1;
        }
    }

    pub(crate) fn let_go(&mut self, name: &Name) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.connections = entry.connections.saturating_sub(1);
        }
    }

    fn drop_least_used(&mut self) -> Option<()> {
        let idle = self.names.iter().filter(|(_, entry)| entry.connections == 0);
        let name = idle.min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone())?;
        let entry = self.names.remove(&name)?;
        self.numbers.remove(&entry.number);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn a_name_keeps_its_addresses_and_they_lead_back_to_it() {
        let mut book = Book::default();
        let first = book.enter(&name("a.test")).unwrap();
        let second = book.enter(&name("b.test")).unwrap();
        assert_ne!(first, second);
        assert_eq!(book.enter(&name("a.test")), Some(first));
        assert_eq!(first.v4.to_string(), "198.18.1.0");
        assert_eq!(book.name(first.v4.into()), Some(Ok(name("a.test"))));
        assert_eq!(book.name(second.v6.into()), Some(Ok(name("b.test"))));
    }

    #[test]
    fn a_new_book_does_not_begin_like_the_last() {
        let first = || Book::anywhere().enter(&name("a.test")).unwrap();
        let firsts: std::collections::HashSet<_> = (0..8).map(|_| first().v4).collect();
        assert!(firsts.len() > 1, "every book begins with {firsts:?}");
        assert!(firsts.into_iter().all(|v4| Synthetic::number(v4.into()).is_some()));
    }

    #[test]
    fn other_addresses_are_not_in_the_book() {
        let book = Book::default();
        for address in ["198.18.0.1", "198.18.0.255", "198.20.0.0", "1.2.3.4", "fd53::1", "::1"] {
            assert_eq!(book.name(address.parse().unwrap()), None, "{address}");
        }
        for address in ["198.18.1.0", "198.19.255.255", "fd53:0:0:1::7", "fd53:0:0:1:ffff::"] {
            assert_eq!(book.name(address.parse().unwrap()), Some(Err(Unknown)), "{address}");
        }
    }

    #[test]
    fn the_least_recently_used_name_makes_room_unless_it_is_connected() {
        let mut book = Book::default();
        let all: Vec<Name> = (0..Book::MOST).map(|n| name(&format!("n{n}.test"))).collect();
        let addresses: Vec<_> = all.iter().map(|name| book.enter(name).unwrap()).collect();
        book.hold(&all[0]);
        book.let_go(&all[0]);
        book.hold(&all[1]);
        book.enter(&all[2]);
        let new = book.enter(&name("new.test")).unwrap();
        assert!(!addresses.contains(&new), "an address was given again at once");
        assert_eq!(book.name(addresses[3].v4.into()), Some(Err(Unknown)));
        assert!(all[..3].iter().all(|name| book.has(name)));
        for name in all.iter().skip(4) {
            book.enter(name);
        }
        book.enter(&name("newer.test")).unwrap();
        assert!(book.has(&all[1]), "a name with a connection left the book");
    }
}
