use osb_sys::{fs, identity::Identity};

/// The users and groups that the sandbox's own files declare.
///
/// Read by hand: the C library would load plugins for it, which a static program cannot.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: Vec<User>,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

#[derive(Debug)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

impl Accounts {
    /// Reads them anew: programs add users. A file that is not there declares nobody.
    pub(crate) fn load() -> Self {
        let text =
            |path| String::from_utf8_lossy(&fs::read_small(path).unwrap_or_default()).into_owned();
        Self::parse(&text("/etc/passwd"), &text("/etc/group"))
    }

    fn parse(passwd: &str, group: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?.to_owned(), fields.next()?);
            let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(User { name, uid, gid })
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
    pub(crate) fn uid(&self, name: &str) -> Option<u32> {
        let user = self.users.iter().find(|user| user.name == name);
        user.map(|user| user.uid).or_else(|| number(name))
    }

    /// The number of a group by name, or by the number itself.
    pub(crate) fn gid(&self, name: &str) -> Option<u32> {
        let group = self.groups.iter().find(|group| group.name == name);
        group.map(|group| group.gid).or_else(|| number(name))
    }

    pub(crate) fn user_name(&self, uid: u32) -> String {
        let user = self.users.iter().find(|user| user.uid == uid);
        user.map_or_else(|| uid.to_string(), |user| user.name.clone())
    }

    pub(crate) fn group_name(&self, gid: u32) -> String {
        let group = self.groups.iter().find(|group| group.gid == gid);
        group.map_or_else(|| gid.to_string(), |group| group.name.clone())
    }

    /// Who a process is that runs as this user, with `gid` in place of the user's own group.
    pub(crate) fn identity(&self, uid: u32, gid: Option<u32>) -> Identity {
        let user = self.users.iter().find(|user| user.uid == uid);
        let groups = user.map_or_else(Vec::new, |user| {
            let member = |group: &&Group| group.members.contains(&user.name);
            self.groups.iter().filter(member).map(|group| group.gid).collect()
        });
        Identity { uid, gid: gid.or_else(|| user.map(|user| user.gid)).unwrap_or(0), groups }
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
        let identity = |uid, gid, groups: &[u32]| Identity { uid, gid, groups: groups.to_vec() };
        assert_eq!(accounts.identity(1000, None), identity(1000, 1001, &[29, 10]));
        assert_eq!(accounts.identity(1000, Some(5)), identity(1000, 5, &[29, 10]));
        assert_eq!(accounts.identity(77, None), identity(77, 0, &[]));
        assert_eq!(accounts.identity(77, Some(78)), identity(77, 78, &[]));
    }
}
