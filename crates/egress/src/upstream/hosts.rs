use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use crate::Name;

/// What the host itself says of names, in its files. They are read again when they have changed.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    looked: Option<Instant>,
    changed: [Option<SystemTime>; 2],
    servers: Arc<[SocketAddr]>,
    names: HashMap<Name, Arc<[IpAddr]>>,
}

const SERVERS: &str = "/etc/resolv.conf";
const NAMES: &str = "/etc/hosts";

impl Hosts {
    /// How long it is not looked whether the files have changed.
    const FRESH: Duration = Duration::from_secs(2);
    /// The most servers that are asked.
    const MOST: usize = 4;
    const PORT: u16 = 53;

    pub(super) fn servers(&self) -> Arc<[SocketAddr]> {
        self.with(|read| read.servers.clone())
    }

    pub(super) fn find(&self, name: &Name) -> Option<Arc<[IpAddr]>> {
        self.with(|read| read.names.get(name).cloned())
    }

    fn with<T>(&self, use_it: impl FnOnce(&Read) -> T) -> T {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.looked.is_none_or(|looked| looked.elapsed() > Self::FRESH) {
            let changed = [SERVERS, NAMES].map(modified);
            if read.looked.is_none() || changed != read.changed {
                let text =
                    |path: &str| osb_sys::fs::read_to_string(Path::new(path)).unwrap_or_default();
                read.servers = servers(&text(SERVERS));
                read.names = names(&text(NAMES));
                read.changed = changed;
            }
            read.looked = Some(Instant::now());
        }
        use_it(&read)
    }
}

fn modified(path: &str) -> Option<SystemTime> {
    Path::new(path).metadata().and_then(|about| about.modified()).ok()
}

/// The servers of a `resolv.conf`; that of this host if it names none.
fn servers(text: &str) -> Arc<[SocketAddr]> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let word = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // A zone behind `%` belongs to an address that only one interface has.
        let ip: IpAddr = word.parse().ok()?;
        Some(SocketAddr::new(ip, Hosts::PORT))
    };
    let servers: Vec<_> = text.lines().filter_map(address).take(Hosts::MOST).collect();
    match servers.as_slice() {
        [] => [SocketAddr::from(([127, 0, 0, 1], Hosts::PORT))].into(),
        servers => servers.into(),
    }
}

/// The names of a `hosts`.
fn names(text: &str) -> HashMap<Name, Arc<[IpAddr]>> {
    let mut names: HashMap<Name, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words.filter_map(|word| Name::parse(word).ok()) {
            names.entry(name).or_default().push(address);
        }
    }
    names.into_iter().map(|(name, addresses)| (name, addresses.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_those_of_the_lines_that_name_them() {
        let text = "# nameserver 9.9.9.9\nsearch a.test\nnameserver 10.0.0.1\nnameserver ::1 x\n\
                    nameserver nonsense\n";
        let found = servers(text);
        assert_eq!(*found, ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(*servers(""), ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn names_may_have_several_addresses() {
        let found = names("10.0.0.1 Registry.corp registry # a comment\n::1 registry\nx y\n");
        let of = |name: &str| found.get(&Name::parse(name).unwrap()).map(|found| found.len());
        assert_eq!((of("registry.corp"), of("registry"), of("y")), (Some(1), Some(2), None));
    }
}
