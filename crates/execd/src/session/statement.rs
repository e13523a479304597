//! What bash prints about itself, which is bash again.

/// The statements of a listing. One ends with its line, unless that is within quotes.
pub(super) fn statements(listing: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = listing;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (statement, after) = rest.split_at(end(rest));
        rest = after.get(1..).unwrap_or_default();
        Some(statement)
    })
}

enum Within {
    Nothing,
    /// `'…'`
    Single,
    /// `"…"` or `$'…'`, with the byte that ends it.
    Escaped(u8),
}

/// Where the first statement ends.
fn end(listing: &[u8]) -> usize {
    let (mut within, mut before, mut escaped) = (Within::Nothing, 0, false);
    for (at, &byte) in listing.iter().enumerate() {
        if std::mem::take(&mut escaped) {
            before = 0;
            continue;
        }
        within = match (within, byte) {
            (Within::Nothing, b'\n') => return at,
            (Within::Nothing, b'\'') if before == b'$' => Within::Escaped(b'\''),
            (Within::Nothing, b'"') => Within::Escaped(b'"'),
            (Within::Single, b'\'') => Within::Nothing,
            (Within::Escaped(quote), byte) if byte == quote => Within::Nothing,
            (Within::Nothing, b'\'') | (Within::Single, _) => Within::Single,
            (within, b'\\') => {
                escaped = true;
                within
            }
            (within, _) => within,
        };
        before = byte;
    }
    listing.len()
}

/// The name in `declare -x NAME="value"`.
pub(super) fn variable(statement: &[u8]) -> Option<&[u8]> {
    let mut words = statement.splitn(3, |&byte| byte == b' ');
    (words.next()? == b"declare" && words.next()?.starts_with(b"-")).then_some(())?;
    let rest = words.next()?;
    rest.split(|&byte| byte == b'=').next()
}

/// The value in `declare -r NAME="a:b"`, where it has nothing that needs an escape.
pub(super) fn plain_value(statement: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(statement).ok()?;
    let (_, value) = text.split_once('=')?;
    value
        .strip_prefix('"')?
        .strip_suffix('"')
        .filter(|value| !value.contains(['"', '\\', '$', '`']))
}

/// The signal and the action in `trap -- 'action' SIGNAL`.
pub(super) fn trap(statement: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let rest = statement.strip_prefix(b"trap -- ")?;
    let at = rest.iter().rposition(|&byte| byte == b' ')?;
    let (action, signal) = rest.split_at(at);
    Some((signal.get(1..)?, unquoted(action)))
}

/// What a word of single quotes means; see [`super::driver::quoted`].
fn unquoted(word: &[u8]) -> Vec<u8> {
    let (mut bytes, mut quoted, mut escaped) = (Vec::with_capacity(word.len()), false, false);
    for &byte in word {
        match byte {
            _ if std::mem::take(&mut escaped) => bytes.push(byte),
            b'\'' => quoted = !quoted,
            b'\\' if !quoted => escaped = true,
            byte => bytes.push(byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{super::driver::quoted, *};

    #[test]
    fn statements_end_where_their_quotes_have_closed() {
        let listing =
            b"declare -- a=\"x\ny\\\"\n\"\ndeclare -x b=$'\\'\n'\ntrap -- 'it'\\''s\n' INT\n\
            declare -a c=([0]=\"1\" [1]=$'\\n')";
        let all: Vec<&[u8]> = statements(listing).collect();
        assert_eq!(
            all,
            [
                b"declare -- a=\"x\ny\\\"\n\"".as_slice(),
                b"declare -x b=$'\\'\n'",
                b"trap -- 'it'\\''s\n' INT",
                b"declare -a c=([0]=\"1\" [1]=$'\\n')",
            ]
        );
    }

    #[test]
    fn the_parts_of_a_statement_are_found() {
        assert_eq!(variable(b"declare -x A=\"b c=d\""), Some(b"A".as_slice()));
        assert_eq!(variable(b"declare -ax A"), Some(b"A".as_slice()));
        assert_eq!(variable(b"trap -- 'x' INT"), None);
        assert_eq!(plain_value(b"declare -r A=\"x:y\""), Some("x:y"));
        assert_eq!(plain_value(b"declare -r A=\"$(x)\""), None);
        let (signal, action) = trap(b"trap -- 'echo '\\''a b'\\''' EXIT").unwrap();
        assert_eq!((signal, action.as_slice()), (b"EXIT".as_slice(), b"echo 'a b'".as_slice()));
        assert_eq!(trap(b"trap -- '' INT").unwrap().1, b"");
    }

    proptest! {
        #[test]
        fn a_quoted_action_comes_back(action in vec(1_u8.., 0..60)) {
            let mut statement = b"trap -- ".to_vec();
            statement.extend(quoted(&action));
            statement.extend(b" EXIT");
            prop_assert_eq!(statements(&statement).count(), 1);
            prop_assert_eq!(trap(&statement).unwrap().1, action);
        }

        #[test]
        fn nothing_is_lost_between_statements(listing in vec(any::<u8>(), 0..200)) {
            let all: Vec<&[u8]> = statements(&listing).collect();
            let mut joined = all.join(&b'\n');
            if joined.len() < listing.len() {
                joined.push(b'\n');
            }
            prop_assert_eq!(joined, listing);
        }
    }
}
