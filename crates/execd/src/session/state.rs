use std::collections::HashSet;

use super::{
    driver::{EXIT_TRAP, quoted},
    statement::{plain_value, statements, trap, variable},
};

/// How many parts the driver tells a state in.
pub(super) const PARTS: usize = 8;

/// Variables that belong to one process, or that bash computes.
const OWN: [&[u8]; 18] = [
    b"_",
    b"DIRSTACK",
    b"EPOCHREALTIME",
    b"EPOCHSECONDS",
    b"EUID",
    b"FUNCNAME",
    b"GROUPS",
    b"HISTCMD",
    b"LINENO",
    b"OPTERR",
    b"PIPESTATUS",
    b"PPID",
    b"PWD",
    b"RANDOM",
    b"SECONDS",
    b"SHELLOPTS",
    b"SRANDOM",
    b"UID",
];

/// All that one bash can hand to the next, as it told it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct State {
    variables: Vec<u8>,
    /// Variables of functions that `exit` has left.
    locals: Vec<u8>,
    functions: Vec<u8>,
    attributes: Vec<u8>,
    aliases: Vec<u8>,
    traps: Vec<u8>,
    directory: Vec<u8>,
    mask: Vec<u8>,
}

impl State {
    pub(super) fn new(parts: Vec<Vec<u8>>) -> Option<Self> {
        let [variables, locals, functions, attributes, aliases, traps, mut directory, mask] =
            <[Vec<u8>; PARTS]>::try_from(parts).ok()?;
        if directory.last() == Some(&b'\n') {
            directory.pop();
        }
        Some(Self { variables, locals, functions, attributes, aliases, traps, directory, mask })
    }

    pub(super) fn size(&self) -> usize {
        let Self { variables, locals, functions, attributes, aliases, traps, directory, mask } =
            self;
        [variables, locals, functions, attributes, aliases, traps, directory, mask]
            .iter()
            .map(|part| part.len())
            .sum()
    }

    /// Whether the shell prints what it runs. The driver turns that off for itself.
    pub(super) fn traces(&self) -> bool {
        self.flag('x')
    }

    fn flag(&self, flag: char) -> bool {
        self.value(b"__execd_flags").is_some_and(|flags| flags.contains(flag))
    }

    /// What the user wants to happen when the shell ends, or nothing if the driver's own trap is in
    /// its place.
    pub(super) fn exit_trap(&self) -> ExitTrap {
        let mut traps = statements(&self.traps).filter_map(trap);
        match traps.find(|(signal, _)| *signal == b"EXIT") {
            Some((_, action)) if action == EXIT_TRAP => ExitTrap::Ours,
            // In POSIX mode a trap that is not set is listed with a dash.
            Some((_, action)) if action != b"-" => ExitTrap::Users(action),
            _ => ExitTrap::Users(Vec::new()),
        }
    }

    /// Variables of functions go with their functions; those that they hid are what they were.
    pub(super) fn leave_functions(&mut self, earlier: Option<&Self>) {
        if self.locals.is_empty() {
            return;
        }
        let locals = std::mem::take(&mut self.locals);
        let locals: HashSet<&[u8]> = statements(&locals).filter_map(variable).collect();
        let mut kept = Vec::with_capacity(self.variables.len());
        let mut keep = |listing: &[u8], local: bool| {
            for statement in statements(listing) {
                if variable(statement).is_some_and(|name| locals.contains(name) == local) {
                    kept.extend_from_slice(statement);
                    kept.push(b'\n');
                }
            }
        };
        keep(&self.variables, false);
        if let Some(earlier) = earlier {
            keep(&earlier.variables, true);
        }
        self.variables = kept;
    }

    /// Text that makes a new shell be as the one that told this state.
    pub(super) fn restoring(&self) -> Vec<u8> {
        let mut text = b"for __execd_text in ${BASHOPTS//:/ }; do \
              \\builtin shopt -u \"$__execd_text\"; done\n\
            for __execd_text in ${SHELLOPTS//:/ }; do \\builtin set +o \"$__execd_text\"; done\n\
            \\builtin unset TERM SHELL OLDPWD\n"
            .to_vec();
        let mut line = |parts: &[&[u8]]| {
            for part in parts {
                text.extend_from_slice(part);
            }
            text.push(b'\n');
        };
        for option in self.options(b"BASHOPTS") {
            line(&[b"\\builtin shopt -s ", option.as_bytes()]);
        }
        line(&[b"\\builtin cd -- ", &quoted(&self.directory)]);
        line(&[&self.mask]);
        for statement in statements(&self.variables) {
            let name = variable(statement).unwrap_or_default();
            if !name.is_empty() && !is_own(name) {
                line(&[statement]);
            }
        }
        line(&[&self.functions]);
        // A function without attributes would only be printed.
        let plain = |statement: &&[u8]| !statement.starts_with(b"declare -f ");
        for statement in self.attributes.split(|&byte| byte == b'\n').filter(plain) {
            line(&[statement]);
        }
        line(&[&self.aliases]);
        for statement in statements(&self.traps) {
            let ours = trap(statement)
                .is_none_or(|(signal, _)| signal == b"EXIT" || signal.ends_with(b"STKFLT"));
            if !ours {
                line(&[statement]);
            }
        }
        for option in self.options(b"SHELLOPTS") {
            line(&[b"\\builtin set -o ", option.as_bytes()]);
        }
        for flag in ['e', 'x'] {
            if self.flag(flag) {
                line(&[format!("\\builtin set -{flag}").as_bytes()]);
            }
        }
        text
    }

    fn options(&self, name: &[u8]) -> impl Iterator<Item = &str> {
        self.value(name).unwrap_or_default().split(':').filter(|option| {
            !option.is_empty()
                && option
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
        })
    }

    fn value(&self, name: &[u8]) -> Option<&str> {
        let mut named = statements(&self.variables).filter(|it| variable(it) == Some(name));
        named.next().and_then(plain_value)
    }
}

/// What is in the place of the driver's EXIT trap.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExitTrap {
    Ours,
    Users(Vec<u8>),
}

fn is_own(name: &[u8]) -> bool {
    let of_bash = name.starts_with(b"BASH") && name != b"BASH_ENV" && name != b"BASH_COMPAT";
    of_bash || name.starts_with(b"__execd") || OWN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(variables: &str, locals: &str, traps: &str) -> State {
        State {
            variables: variables.into(),
            locals: locals.into(),
            traps: traps.into(),
            directory: b"/tmp".into(),
            ..State::default()
        }
    }

    #[test]
    fn a_shells_own_variables_stay_behind() {
        let state = state(
            "declare -r SHELLOPTS=\"errexit:$(x)\"\ndeclare -- a=\"UID\nUID\"\ndeclare -ir UID=\"0\"\n\
             declare -- __execd_flags=\"hx\"\ndeclare -x BASH_ENV=\"e\"\ndeclare -- BASH=\"b\"\n",
            "",
            "trap -- 'x' EXIT\ntrap -- 'y' SIGINT\ntrap -- 'z' SIGSTKFLT\n",
        );
        let text = String::from_utf8(state.restoring()).unwrap();
        for (part, is_there) in [
            ("declare -- a=\"UID\nUID\"\n", true),
            ("BASH_ENV=\"e\"", true),
            ("BASH=", false),
            (" UID=", false),
            ("__execd_flags", false),
            ("set -o errexit", false),
            ("trap -- 'y' SIGINT", true),
            ("EXIT", false),
            ("STKFLT", false),
            ("set -x", true),
        ] {
            assert_eq!(text.contains(part), is_there, "{part:?} in {text}");
        }
    }

    #[test]
    fn what_functions_hid_is_what_it_was() {
        let earlier = state("declare -- a=\"1\"\ndeclare -- b=\"2\"\n", "", "");
        let mut left = state(
            "declare -- a=\"9\"\ndeclare -- b=\"3\"\ndeclare -- c=\"4\"\n",
            "declare -- a=\"9\"\ndeclare -- c=\"4\"\n",
            "",
        );
        left.leave_functions(Some(&earlier));
        assert_eq!(left.variables, b"declare -- b=\"3\"\ndeclare -- a=\"1\"\n");
    }

    #[test]
    fn the_users_exit_trap_is_known_from_ours() {
        let exit_trap = |traps: &str| state("", "", traps).exit_trap();
        let ours = String::from_utf8(quoted(EXIT_TRAP)).unwrap();
        assert_eq!(exit_trap(&format!("trap -- {ours} EXIT\n")), ExitTrap::Ours);
        assert_eq!(exit_trap("trap -- 'bye' EXIT\n"), ExitTrap::Users(b"bye".into()));
        assert_eq!(exit_trap("trap -- - EXIT\n"), ExitTrap::Users(Vec::new()));
        assert_eq!(exit_trap(""), ExitTrap::Users(Vec::new()));
    }
}
