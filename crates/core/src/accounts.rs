//! Users and groups, as the files of a sandbox declare them.

use serde::{Deserialize, Serialize};

/// How many groups of a user count: more than anybody has, and few enough to be set for each program.
const MOST_GROUPS: usize = 1024;

/// The users and groups that `/etc/passwd` and `/etc/group` declare. Whoever wrote these may have
/// written anything; a line that makes no sense declares nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    users: Vec<User>,
    groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// As whom a program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// The groups that it belongs to beside its own.
    pub groups: Vec<u32>,
    /// What it is called, if it is called something.
    pub name: Option<String>,
    /// Where it is at home, if anything says so.
    pub home: Option<String>,
}

impl Account {
    /// Whether it is root and nobody else, as whom everything runs that does not say otherwise.
    pub fn is_plain_root(&self) -> bool {
        (self.uid, self.gid) == (0, 0) && self.groups.is_empty()
    }
}

/// A user whom the files of an image do not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAccount {
    #[error("there is no user {0:?} in its /etc/passwd")]
    User(String),
    #[error("there is no group {0:?} in its /etc/group")]
    Group(String),
}

impl Accounts {
    /// Reads the text of `/etc/passwd` and of `/etc/group`.
    pub fn parse(passwd: &str, group: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?.to_owned(), fields.next()?);
            let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let home = fields.nth(1).unwrap_or_default().to_owned();
            Some(User { name, uid, gid, home })
        };
        let group_of = |line: &str| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?.to_owned(), fields.next()?);
            let gid = fields.next()?.parse().ok()?;
            let members = fields.next().unwrap_or("").split(',').map(str::to_owned).collect();
            Some(Group { name, gid, members })
        };
        Self {
            users: passwd.lines().filter_map(user).collect(),
            groups: group.lines().filter_map(group_of).collect(),
        }
    }

    /// The number of a user by name, or by the number itself.
    pub fn uid(&self, name: &str) -> Option<u32> {
        let user = self.users.iter().find(|user| user.name == name);
        user.map(|user| user.uid).or_else(|| number(name))
    }

    /// The number of a group by name, or by the number itself.
    pub fn gid(&self, name: &str) -> Option<u32> {
        let group = self.groups.iter().find(|group| group.name == name);
        group.map(|group| group.gid).or_else(|| number(name))
    }

    pub fn user_name(&self, uid: u32) -> String {
        self.user(uid).map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    pub fn group_name(&self, gid: u32) -> String {
        let group = self.groups.iter().find(|group| group.gid == gid);
        group.map_or_else(|| gid.to_string(), |group| group.name.clone())
    }

    /// Who a program is that runs as this user, with `gid` in place of the user's own group.
    pub fn account(&self, uid: u32, gid: Option<u32>) -> Account {
        let user = self.user(uid);
        let groups = user.map_or_else(Vec::new, |user| {
            let member = |group: &&Group| group.members.contains(&user.name);
            self.groups.iter().filter(member).map(|group| group.gid).take(MOST_GROUPS).collect()
        });
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Account {
            uid,
            gid: gid.or_else(|| user.map(|user| user.gid)).unwrap_or(0),
            groups,
            name: user.and_then(|user| said(&user.name)),
            home: user.and_then(|user| said(&user.home)),
        }
    }

    /// Who it is that an image names: a user by name or number, perhaps with a group after a colon,
    /// who then belongs to no other.
    pub fn named(&self, text: &str) -> Result<Account, UnknownAccount> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
            None => (text, None),
        };
        let unknown = || UnknownAccount::User(user.to_owned());
        let uid = self.uid(user).ok_or_else(unknown)?;
        let Some(group) = group else { return Ok(self.account(uid, None)) };
        let unknown = || UnknownAccount::Group(group.to_owned());
        let gid = self.gid(group).ok_or_else(unknown)?;
        Ok(Account { groups: Vec::new(), ..self.account(uid, Some(gid)) })
    }

    fn user(&self, uid: u32) -> Option<&User> {
        self.users.iter().find(|user| user.uid == uid)
    }
}

/// A user or a group by number. The last one means nobody to the kernel, and so it is none.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|&id| id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts::parse(
            "root:x:0:0:root:/root:/bin/sh\nbroken\nana:x:1000:1001::/home/ana:/bin/sh\n",
            "root:x:0:\nana:x:1001:\naudio:x:29:bob,ana\nvideo:x:44:bob\nwheel:x:10:ana\n",
        )
    }

    #[test]
    fn names_and_numbers_find_each_other() {
        let accounts = accounts();
        assert_eq!(accounts.uid("ana"), Some(1000));
        assert_eq!(accounts.uid("4321"), Some(4321));
        for nobody in ["nobody-here", "", "+5", "-1", "4294967295", "4294967296"] {
            assert_eq!((accounts.uid(nobody), accounts.gid(nobody)), (None, None), "{nobody}");
        }
        assert_eq!(accounts.gid("audio"), Some(29));
        assert_eq!(accounts.user_name(0), "root");
        assert_eq!(accounts.user_name(7), "7");
        assert_eq!(accounts.group_name(1001), "ana");
    }

    #[test]
    fn a_user_brings_its_groups() {
        let accounts = accounts();
        let check = |uid, asked, gid, groups: &[u32]| {
            let account = accounts.account(uid, asked);
            assert_eq!((account.gid, account.groups.as_slice()), (gid, groups));
        };
        check(1000, None, 1001, &[29, 10]);
        check(1000, Some(5), 5, &[29, 10]);
        check(77, None, 0, &[]);
        check(77, Some(78), 78, &[]);
    }

    #[test]
    fn what_an_image_names_is_found() {
        let accounts = accounts();
        let check = |text: &str, uid, gid, groups: &[u32], home: Option<&str>| {
            let account = accounts.named(text).unwrap();
            assert_eq!((account.uid, account.gid, &*account.groups), (uid, gid, groups), "{text}");
            assert_eq!(account.home.as_deref(), home, "{text}");
        };
        check("ana", 1000, 1001, &[29, 10], Some("/home/ana"));
        check("1000", 1000, 1001, &[29, 10], Some("/home/ana"));
        check("ana:", 1000, 1001, &[29, 10], Some("/home/ana"));
        check("ana:video", 1000, 44, &[], Some("/home/ana"));
        check("1000:7", 1000, 7, &[], Some("/home/ana"));
        check("55", 55, 0, &[], None);
        assert!(accounts.named("root").unwrap().is_plain_root());
        assert!(!accounts.named("root:video").unwrap().is_plain_root());
        for (text, unknown) in [
            ("bob", UnknownAccount::User("bob".to_owned())),
            ("", UnknownAccount::User(String::new())),
            (":video", UnknownAccount::User(String::new())),
            ("ana:nobody", UnknownAccount::Group("nobody".to_owned())),
        ] {
            assert_eq!(accounts.named(text).unwrap_err(), unknown);
        }
    }

    #[test]
    fn a_user_in_endless_groups_has_some_of_them() {
        let groups: Vec<_> = (0..5000).map(|gid| format!("g{gid}:x:{gid}:ana")).collect();
        let accounts = Accounts::parse("ana:x:1000:1001::/home/ana:/bin/sh\n", &groups.join("\n"));
        assert_eq!(accounts.named("ana").unwrap().groups.len(), MOST_GROUPS);
    }
}
