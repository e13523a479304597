//! What a kernel of Python is told that nobody sees. It leaves no names behind.

use super::message::hex;
use crate::driven::Birth;

/// Imports what it can, and does once what the first cell would be the first to do.
pub(super) fn imports(modules: &[String]) -> String {
    // A name that is none is not imported, and does no harm.
    let is_part = |each: &char| each.is_alphanumeric() || "._".contains(*each);
    let names = modules.iter().map(|name| name.chars().filter(is_part).collect::<String>());
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!(
        "def _execd():
    for name in [{}]:
        try: __import__(name)
        except (Exception, SystemExit): pass
    try: get_ipython().display_formatter.format(1)
    except Exception: pass
_execd()
del _execd",
        names.join(", ")
    )
}

/// Makes it as if it had begun with this.
pub(super) fn surroundings(Birth { cwd, env }: &Birth) -> String {
    let pairs = env.iter().map(|(name, value)| {
        let (name, value) = (hex(name.as_encoded_bytes()), hex(value.as_encoded_bytes()));
        format!("h('{name}'): h('{value}')")
    });
    format!(
        "def _execd():
    import os
    h = bytes.fromhex
    os.chdir(h('{}'))
    wanted = {{{}}}
    for name in set(os.environb) - set(wanted): del os.environb[name]
    os.environb.update(wanted)
_execd()
del _execd",
        hex(cwd.as_os_str().as_encoded_bytes()),
        pairs.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn nothing_that_is_told_is_taken_for_code() {
        let code = imports(&["numpy".to_owned(), "os'); exit('".to_owned()]);
        assert!(code.contains("['numpy', 'osexit']"), "{code}");
        let env = [("A'".into(), "\"\n".into())].into();
        let code = surroundings(&Birth { cwd: PathBuf::from("/tmp'"), env });
        assert!(code.contains("h('2f746d7027')"), "{code}");
        assert!(code.contains("{h('4127'): h('220a')}"), "{code}");
    }
}
