use std::sync::LazyLock;

/// The program of the shell, on one line.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let lines = include_str!("driver.bash").lines().map(str::trim);
    let code: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    code.join(" ")
});

/// What the driver sets as the shell's EXIT trap, as `trap -p` shows it.
pub(super) const EXIT_TRAP: &[u8] = b"{ __execd_status=$? __execd_flags=$-; \\builtin set +ex; } \
    2>/dev/null; \\builtin eval \"$__execd_exit\"";

/// The arguments of a shell that reads from its standard input what to do.
pub(super) fn argv() -> Vec<String> {
    ["bash", "--noprofile", "--norc", "-c", PROGRAM.as_str(), "bash"].map(str::to_owned).into()
}

/// A text as the driver reads it.
pub(super) fn message(number: u32, text: &[u8]) -> Vec<u8> {
    let mut message = format!("{number:010}{:010}", text.len()).into_bytes();
    message.extend_from_slice(text);
    message
}

/// A word for the shell that means exactly these bytes.
pub(super) fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = Vec::with_capacity(bytes.len() + 2);
    word.push(b'\'');
    for &byte in bytes {
        if byte == b'\'' {
            word.extend_from_slice(b"'\\''");
        } else {
            word.push(byte);
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_one_line_with_the_trap_that_is_looked_for() {
        assert!(!PROGRAM.contains('\n') && !PROGRAM.contains('#'));
        let mut trap = b"\\builtin trap ".to_vec();
        trap.extend(quoted(EXIT_TRAP));
        trap.extend(b" EXIT;");
        assert!(PROGRAM.contains(std::str::from_utf8(&trap).unwrap()));
    }

    #[test]
    fn a_message_tells_its_number_and_its_length() {
        assert_eq!(message(7, "é".as_bytes()), "00000000070000000002é".as_bytes());
    }

    #[test]
    fn a_quote_within_a_word_is_kept() {
        assert_eq!(quoted(b"it's $x"), b"'it'\\''s $x'");
    }
}
