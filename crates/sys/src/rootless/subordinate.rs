//! Which ids the system lends to a user: `subuid(5)`.

use super::Obstacle;
use crate::{fs, userns::RANGE};

/// Where user and group ids begin that a user may use beside his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subordinate {
    pub(super) users: u32,
    pub(super) groups: u32,
}

impl Subordinate {
    /// Those of this user, or what to do to get some.
    pub(super) fn of(user: u32) -> Result<Self, Obstacle> {
        let number = user.to_string();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = name_of(&passwd, &number).unwrap_or(&number);
        let find = |file: &str, option: &str| {
            let lent = fs::read_to_string(file).unwrap_or_default();
            first(&lent, &[name, &number]).ok_or_else(|| {
                Obstacle::new(
                    format!("{file} lends the user {name} no {RANGE} ids"),
                    format!("as root: usermod {option} 100000-165535 {name} (any range that nobody else has)"),
                )
            })
        };
        Ok(Self {
            users: find("/etc/subuid", "--add-subuids")?,
            groups: find("/etc/subgid", "--add-subgids")?,
        })
    }
}

fn name_of<'a>(passwd: &'a str, number: &str) -> Option<&'a str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    })
}

/// The first range that is long enough.
fn first(lent: &str, owners: &[&str]) -> Option<u32> {
    lent.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (start, count): (u32, u32) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (owners.contains(&owner) && count >= RANGE).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_range_that_is_long_enough_is_taken() {
        let lent = "bob:100000:65536\nada:200000:10\n# no line\n1000:300000:65536\nada:9:70000\n";
        assert_eq!(first(lent, &["ada", "1000"]), Some(300_000));
        assert_eq!(first(lent, &["eve", "1002"]), None);
        assert_eq!(first("", &["ada"]), None);
    }

    #[test]
    fn users_are_known_by_number_where_they_have_no_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(passwd, "1000"), Some("ada"));
        assert_eq!(name_of(passwd, "100"), None);
    }
}
