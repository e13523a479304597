//! Users and groups by name, as an image knows them.

use std::{
    io::{self, Read},
    path::Path,
};

use osb_image::{Follow, Kind, Stack};

use crate::problem::Fault;

/// The most that is read of such a file.
const MOST_BYTES: u64 = 4 << 20;

/// Who is who in an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Accounts {
    passwd: String,
    group: String,
}

/// As whom a step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// What the image calls the user, if it does.
    pub name: Option<String>,
    pub user: u32,
    pub group: u32,
    /// Further groups that it belongs to.
    pub groups: Vec<u32>,
    /// Where it is at home, if the image says so.
    pub home: Option<String>,
}

impl Accounts {
    pub(crate) fn read(stack: &Stack) -> io::Result<Self> {
        Ok(Self { passwd: text(stack, "etc/passwd")?, group: text(stack, "etc/group")? })
    }

    #[cfg(test)]
    fn of(passwd: &str, group: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: group.to_owned() }
    }

    /// The user and the group that `--chown` names.
    pub(crate) fn owner(&self, text: &str) -> Result<(u32, u32), Fault> {
        let account = self.account(text)?;
        Ok((account.user, account.group))
    }

    /// `name`, `name:group`, `1000` or `1000:1000`.
    pub(crate) fn account(&self, text: &str) -> Result<Account, Fault> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        // A number is looked up too, for the group and the home of whom it is.
        let number = user.parse::<u32>().ok();
        let known = self.passwd.lines().map(fields).find(|line| match number {
            Some(number) => line.get(2).and_then(|id| id.parse().ok()) == Some(number),
            None => line.first() == Some(&user),
        });
        let field = |at: usize| known.as_ref().and_then(|line| line.get(at)).copied();
        let id = |at: usize| field(at).and_then(|text| text.parse::<u32>().ok());
        let Some(found) = number.or_else(|| id(2)) else {
            return Err(Fault::new(format!(
                "there is no user {user} in the image's /etc/passwd: make it in a RUN before, or write a number"
            )));
        };
        let group = match group.filter(|group| !group.is_empty()) {
            Some(group) => self.group_of(group)?,
            None => id(3).unwrap_or_else(|| if number.is_some() { found } else { 0 }),
        };
        let name = field(0);
        let groups = self.group.lines().map(fields).filter_map(|line| {
            let is_member = line.get(3)?.split(',').any(|member| Some(member) == name);
            is_member.then(|| line.get(2)?.parse().ok())?
        });
        let groups = groups.filter(|other| *other != group).take(65_536).collect();
        let home = field(5).filter(|home| !home.is_empty()).map(str::to_owned);
        let name = name.map(str::to_owned);
        Ok(Account { name, user: found, group, groups, home })
    }

    fn group_of(&self, group: &str) -> Result<u32, Fault> {
        if let Ok(number) = group.parse() {
            return Ok(number);
        }
        let known = self.group.lines().map(fields).find(|line| line.first() == Some(&group));
        known.and_then(|line| line.get(2)?.parse().ok()).ok_or_else(|| {
            Fault::new(format!(
                "there is no group {group} in the image's /etc/group: make it in a RUN before, or write a number"
            ))
        })
    }
}

fn fields(line: &str) -> Vec<&str> {
    line.trim().split(':').collect()
}

/// A file of an image, if it is there and is one.
fn text(stack: &Stack, path: &str) -> io::Result<String> {
    let found = stack.find(Path::new(path), Follow::Last)?;
    let is_file = found.seen.is_some_and(|seen| seen.kind == Kind::File);
    let (Some(directory), Some(name), true) = (found.directory(), found.path.file_name(), is_file)
    else {
        return Ok(String::new());
    };
    let mut content = Vec::new();
    directory.open(name)?.take(MOST_BYTES).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_understood() {
        let accounts = Accounts::of(
            "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\nbroken\n",
            "root:x:0:\nweb:x:33:app,other\napp:x:1001:\nextra:x:50:app\n",
        );
        for (text, owner) in [
            ("app", (1000, 1001)),
            ("app:web", (1000, 33)),
            ("app:7", (1000, 7)),
            ("1000", (1000, 1001)),
            ("55", (55, 55)),
            ("55:2", (55, 2)),
            ("0", (0, 0)),
            ("root:", (0, 0)),
        ] {
            assert_eq!(accounts.owner(text).unwrap(), owner, "{text}");
        }
        let account = accounts.account("app:web").unwrap();
        assert_eq!((account.groups, account.home.as_deref()), (vec![50], Some("/home/app")));
        for text in ["nobody", "app:nobody", "", ":web", "4294967296", "-1"] {
            assert!(accounts.owner(text).is_err(), "{text}");
        }
    }
}
