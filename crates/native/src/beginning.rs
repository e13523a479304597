//! What programs of a sandbox begin with, as its image says.

use std::{collections::BTreeMap, io, io::Read as _, path::Path};

use osb_core::{Account, Accounts};
use osb_image::{Follow, ImageConfig, Kind, Stack};
use osb_sys::userns::RANGE;

/// The most that is read of a file of accounts.
const MOST_BYTES: u64 = 1 << 20;
/// What stops a program unless its image says otherwise.
const SIGTERM: i32 = 15;
/// The first signal without a name of its own, as programs count them.
const SIGRTMIN: i32 = 34;
const SIGRTMAX: i32 = 64;

/// What programs begin with unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) env: BTreeMap<String, String>,
    /// From the root.
    pub(crate) workdir: String,
    /// As whom; without one, as root.
    pub(crate) user: Option<Account>,
    /// What the entrypoint is asked with to end.
    pub(crate) stop_signal: i32,
}

/// An image that no program can begin in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// The image must change; the text says what.
    #[error("{0}")]
    Image(String),
    #[error("cannot look at the users of the image")]
    Look(#[source] io::Error),
}

impl Beginning {
    /// What `config` says. `files` opens the files of the sandbox, in which users are looked up.
    pub(crate) fn of(
        config: &ImageConfig,
        files: impl FnOnce() -> io::Result<Stack>,
    ) -> Result<Self, Unfit> {
        let env = config.env.iter().filter(|(name, value)| is_variable(name, value));
        let account = match &config.user {
            Some(user) => Some(find(user, &files().map_err(Unfit::Look)?)?),
            None => None,
        };
        let mut env: BTreeMap<_, _> = env.cloned().collect();
        let (home, name) = match &account {
            None => (Some("/root"), Some("root")),
            Some(account) if account.uid == 0 => (
                account.home.as_deref().or(Some("/root")),
                account.name.as_deref().or(Some("root")),
            ),
            Some(account) => (account.home.as_deref().or(Some("/")), account.name.as_deref()),
        };
        // Characters are UTF-8. `LANG` would say so too, and cost each shell a dozen files more.
        for (key, value) in [("HOME", home), ("LC_CTYPE", Some("C.UTF-8")), ("USER", name)] {
            let Some(value) = value.filter(|value| is_variable(key, value)) else { continue };
            env.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let workdir = config.workdir.as_deref().unwrap_or("/");
        if workdir.contains('\0') {
            return Err(Unfit::Image(format!("the image's working directory is {workdir:?}")));
        }
        let stop_signal = config.stop_signal.as_deref().and_then(signal).unwrap_or(SIGTERM);
        Ok(Self {
            env,
            workdir: Path::new("/").join(workdir).to_string_lossy().into_owned(),
            user: account.filter(|account| !account.is_plain_root()),
            stop_signal,
        })
    }
}

/// Whether a program can have this variable. Images are made by anybody.
fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains('\0') && !value.contains('\0')
}

/// The user that an image names.
fn find(user: &str, files: &Stack) -> Result<Account, Unfit> {
    let text = |path| text(files, Path::new(path)).map_err(Unfit::Look);
    let accounts = Accounts::parse(&text("etc/passwd")?, &text("etc/group")?);
    let mut account = accounts.named(user).map_err(|unknown| {
        Unfit::Image(format!(
            "the image is to run as {user:?}, but {unknown}: use an image that has it, or one whose user is a number"
        ))
    })?;
    if account.uid >= RANGE || account.gid >= RANGE {
        return Err(Unfit::Image(format!(
            "the image is to run as {user:?}, which is user {} of group {}, and a sandbox has those below {RANGE}",
            account.uid, account.gid
        )));
    }
    account.groups.retain(|group| *group < RANGE);
    Ok(account)
}

/// A file of the sandbox; nothing if it is none. What cannot be resolved, as a link that leads to itself,
/// is no file either.
fn text(files: &Stack, path: &Path) -> io::Result<String> {
    let Ok(found) = files.find(path, Follow::Last) else { return Ok(String::new()) };
    let is_file = found.seen.is_some_and(|seen| seen.kind == Kind::File);
    let (Some(directory), Some(name), true) = (found.directory(), found.path.file_name(), is_file)
    else {
        return Ok(String::new());
    };
    let mut content = Vec::new();
    directory.open(name)?.take(MOST_BYTES).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// The number of a signal that an image names: `SIGINT`, `INT`, `2` or `SIGRTMIN+3`. What is none is
/// as if it were not said.
fn signal(text: &str) -> Option<i32> {
    const NAMED: [(&str, i32); 21] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ILL", 4),
        ("TRAP", 5),
        ("ABRT", 6),
        ("BUS", 7),
        ("FPE", 8),
        ("KILL", 9),
        ("USR1", 10),
        ("SEGV", 11),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", SIGTERM),
        ("CONT", 18),
        ("STOP", 19),
        ("TSTP", 20),
        ("WINCH", 28),
        ("PWR", 30),
        ("SYS", 31),
    ];
    let text = text.trim().to_ascii_uppercase();
    let name = text.strip_prefix("SIG").unwrap_or(&text);
    let number = if let Ok(number) = name.parse::<i32>() {
        Some(number)
    } else if let Some(after) = name.strip_prefix("RTMIN") {
        let after = after.strip_prefix('+').map_or(Some(0), |after| after.parse().ok());
        after.and_then(|after: i32| SIGRTMIN.checked_add(after))
    } else if let Some(before) = name.strip_prefix("RTMAX") {
        let before = before.strip_prefix('-').map_or(Some(0), |before| before.parse().ok());
        before.and_then(|before: i32| SIGRTMAX.checked_sub(before))
    } else {
        NAMED.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    };
    number.filter(|number| (1..=SIGRTMAX).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(passwd: &str) -> (tempfile::TempDir, impl FnOnce() -> io::Result<Stack>) {
        let root = tempfile::tempdir().unwrap();
        osb_sys::fs::create_dir(root.path().join("etc"), 0o755).unwrap();
        osb_sys::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let path = root.path().to_owned();
        (root, move || Stack::plain(&path).map_err(io::Error::other))
    }

    fn nowhere() -> io::Result<Stack> {
        Err(io::Error::other("nobody needs to look"))
    }

    #[test]
    fn an_image_that_says_nothing_begins_as_root_at_the_root() {
        let begins = Beginning::of(&ImageConfig::default(), nowhere).unwrap();
        assert_eq!((begins.workdir.as_str(), begins.user, begins.stop_signal), ("/", None, 15));
        let env: Vec<_> =
            begins.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["HOME=/root", "LC_CTYPE=C.UTF-8", "USER=root"]);
    }

    #[test]
    fn a_user_brings_its_name_and_home_unless_the_image_knows_better() {
        let passwd = "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/srv/app:/bin/sh\n";
        let begin = |user: &str, env: &[(&str, &str)]| {
            let (_root, files) = files(passwd);
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let config = ImageConfig {
                user: Some(user.to_owned()),
                env: env.collect(),
                ..ImageConfig::default()
            };
            Beginning::of(&config, files).unwrap()
        };
        let app = begin("app", &[]);
        assert_eq!((app.env["HOME"].as_str(), app.env["USER"].as_str()), ("/srv/app", "app"));
        assert_eq!(app.user.unwrap().uid, 1000);
        let other = begin("app", &[("HOME", "/x"), ("", "y"), ("A\0", "z"), ("B", "\0")]);
        assert_eq!(other.env["HOME"], "/x");
        assert_eq!(other.env.len(), 3, "{:?}", other.env);
        let number = begin("77:78", &[]);
        assert_eq!((number.env["HOME"].as_str(), number.env.get("USER")), ("/", None));
        assert_eq!(number.user.unwrap().gid, 78);
        let root = begin("root", &[]);
        assert_eq!((root.env["HOME"].as_str(), root.user), ("/root", None));
    }

    #[test]
    fn users_that_cannot_be_are_refused_by_name() {
        for user in ["nobody-here", "65536", "0:65536", "app:nobody-here", ":"] {
            let (_root, files) = files("app:x:1000:1000::/:/bin/sh\n");
            let config = ImageConfig { user: Some(user.to_owned()), ..ImageConfig::default() };
            let Err(Unfit::Image(why)) = Beginning::of(&config, files) else { panic!("{user}") };
            assert!(why.contains(user), "{why}");
        }
    }

    #[test]
    fn signals_are_names_and_numbers() {
        for (text, number) in [
            ("SIGTERM", Some(15)),
            ("int", Some(2)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGRTMIN", Some(34)),
            ("SIGNOTHING", None),
            ("", None),
            ("0", None),
            ("65", None),
            ("-9", None),
            ("RTMIN+2147483647", None),
        ] {
            assert_eq!(signal(text), number, "{text}");
        }
    }

    #[test]
    fn a_directory_begins_at_the_root() {
        for (said, meant) in [("/srv", "/srv"), ("srv/x", "/srv/x"), ("", "/")] {
            let config = ImageConfig { workdir: Some(said.to_owned()), ..ImageConfig::default() };
            assert_eq!(Beginning::of(&config, nowhere).unwrap().workdir, meant);
        }
        let config = ImageConfig { workdir: Some("/\0".to_owned()), ..ImageConfig::default() };
        assert!(Beginning::of(&config, nowhere).is_err());
    }
}
