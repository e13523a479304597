//! Reads text letter by letter, each as it is or as URLs, JSON and HTML write it, in any mixture.

/// So many bytes are read at once.
pub(super) const AT_ONCE: usize = 32;
/// The last of them may be the first of a character.
pub(super) const BLOCK: usize = AT_ONCE + 3;
/// How often what an encoding begins with may be encoded itself.
const DEEP: usize = 3;
/// The longest that is read between `&` and `;`.
const LONGEST_NAME: usize = 8;

/// The letters that HTML has names for, as far as secrets have them and somebody uses the names.
const NAMES: [(&[u8], u8); 9] = [
    (b"lt", b'<'),
    (b"gt", b'>'),
    (b"quot", b'"'),
    (b"apos", b'\''),
    (b"sol", b'/'),
    (b"plus", b'+'),
    (b"equals", b'='),
    (b"colon", b':'),
    (b"percnt", b'%'),
];

/// A text that is read from its beginning.
#[derive(Clone)]
pub(super) struct Letters<'a> {
    text: &'a [u8],
    read: usize,
    /// Whether no letter stands for another.
    as_they_are: bool,
}

/// Something that was read, and how long it was written.
type Read<T> = Option<(T, usize)>;

/// URLs encode bytes, others characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Letter {
    Byte(u8),
    Char(char),
}

/// Whether something else than the byte itself may begin with it.
pub(super) fn is_special(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&')
}

/// Where something else than the byte itself may begin.
pub(super) fn specials(text: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memchr3_iter(b'%', b'\\', b'&', text)
}

impl<'a> Letters<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, read: 0, as_they_are: false }
    }

    /// Without a thought for what they may mean.
    pub(super) fn as_they_are(text: &'a [u8]) -> Self {
        Self { as_they_are: true, ..Self::new(text) }
    }

    /// Reads so many bytes, if they are not too many at once, and a character may have some more. At
    /// the end there is nothing.
    pub(super) fn fill<'b>(&mut self, block: &'b mut [u8; BLOCK], count: usize) -> &'b [u8] {
        let mut filled = 0;
        while filled < count.min(AT_ONCE) {
            let text = rest(self.text, self.read);
            let Some(into) = block.get_mut(filled..).filter(|_| !text.is_empty()) else { break };
            let (letter, read) = letter(text);
            filled += match (letter, into.first_mut()) {
                (Letter::Char(char), _) => char.encode_utf8(into).len(),
                (Letter::Byte(byte), Some(into)) => {
                    *into = byte;
                    1
                }
                (Letter::Byte(_), None) => break,
            };
            self.read += read;
        }
        block.get(..filled).unwrap_or_default()
    }

    /// Reads on up to so many bytes, as many at once as are written as they are.
    pub(super) fn run<'b>(&mut self, block: &'b mut [u8; BLOCK], count: usize) -> &'b [u8]
    where
        'a: 'b,
    {
        let text = rest(self.text, self.read);
        let text = text.get(..count).unwrap_or(text);
        let special = if self.as_they_are { None } else { specials(text).next() };
        let plain = special.unwrap_or(text.len());
        if plain < AT_ONCE.min(text.len()) {
            return self.fill(block, count);
        }
        self.read += plain;
        text.get(..plain).unwrap_or_default()
    }

    /// Reads exactly so many bytes, and says how much of the text was read then.
    pub(super) fn skip(mut self, mut count: usize) -> Option<usize> {
        let mut block = [0; BLOCK];
        while count > 0 {
            let read = self.run(&mut block, count).len();
            count = count.checked_sub(read).filter(|_| read > 0)?;
        }
        Some(self.read)
    }

    /// How much of the text was read.
    pub(super) fn read(&self) -> usize {
        self.read
    }
}

impl Letter {
    /// Its bytes, as a number, and how many they are.
    pub(super) fn number(self) -> (u64, usize) {
        match self {
            Self::Byte(byte) => (byte.into(), 1),
            Self::Char(char) => {
                let mut bytes = [0; 4];
                let length = char.encode_utf8(&mut bytes).len();
                (u32::from_le_bytes(bytes).into(), length)
            }
        }
    }
}

/// The first letter of a text, and how long it is written.
#[inline]
pub(super) fn letter(text: &[u8]) -> (Letter, usize) {
    let (byte, read) = match *text {
        // Most are simple.
        [b'%', high, low, ..] => {
            let (high, low) = (digit(high), digit(low));
            let byte = high << 4 | low;
            if high | low == NO_DIGIT {
                (b'%', 1)
            } else if is_special(byte) {
                return encoded(text);
            } else {
                (byte, 3)
            }
        }
        [b'\\', kind, ..] => match escape(kind) {
            Some(byte) => (byte, 2),
            None => return encoded(text),
        },
        [b'&', ..] => return encoded(text),
        [byte, ..] => (byte, 1),
        [] => (0, 0),
    };
    (Letter::Byte(byte), read)
}

/// The first letter of a text that begins with something special.
fn encoded(text: &[u8]) -> (Letter, usize) {
    let Some((first, read)) = in_json(text) else { return (Letter::Byte(0), 0) };
    if first != Letter::Byte(b'&') && first != Letter::Char('&') {
        return (first, read);
    }
    let named = in_html(rest(text, read), DEEP);
    named.map_or((first, read), |(letter, more)| (letter, read + more))
}

/// What follows a `&` that is more than that.
fn in_html(text: &[u8], deep: usize) -> Read<Letter> {
    let (mut name, mut length, mut read) = ([0; LONGEST_NAME], 0, 0);
    let name = loop {
        let (Letter::Byte(byte), more) = in_json(rest(text, read))? else { return None };
        read += more;
        match byte {
            b';' => break name.get(..length)?,
            b'#' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => *name.get_mut(length)? = byte,
            _ => return None,
        }
        length += 1;
    };
    if name == b"amp" {
        let deeper = deep.checked_sub(1).and_then(|deep| in_html(rest(text, read), deep));
        let (letter, more) = deeper.unwrap_or((Letter::Byte(b'&'), 0));
        return Some((letter, read + more));
    }
    if let Some((_, byte)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Some((Letter::Byte(*byte), read));
    }
    let number = name.strip_prefix(b"#")?;
    let code = match number.strip_prefix(b"x").or_else(|| number.strip_prefix(b"X")) {
        Some(number) => digits(number, 16)?,
        None => digits(number, 10)?,
    };
    Some((Letter::Char(char::from_u32(code)?), read))
}

fn in_json(text: &[u8]) -> Read<Letter> {
    let (first, read) = in_url(text)?;
    if first != b'\\' {
        return Some((Letter::Byte(first), read));
    }
    let read = read + backslashes(rest(text, read));
    let after = rest(text, read);
    let escaped = in_url(after).and_then(|(kind, more)| {
        if kind == b'u' {
            let (char, digits) = unicode(rest(after, more))?;
            return Some((Letter::Char(char), read + more + digits));
        }
        Some((Letter::Byte(escape(kind)?), read + more))
    });
    Some(escaped.unwrap_or((Letter::Byte(b'\\'), read)))
}

/// What a letter after a backslash stands for.
fn escape(kind: u8) -> Option<u8> {
    Some(match kind {
        b'"' | b'/' | b'\'' => kind,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// Stands for what is no digit: it has all bits, and two digits together have not.
const NO_DIGIT: u8 = u8::MAX;

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => NO_DIGIT,
    }
}

/// How long the further backslashes are that come of writing one again.
fn backslashes(text: &[u8]) -> usize {
    let mut read = 0;
    for _ in 0..DEEP {
        let Some((b'\\', more)) = in_url(rest(text, read)) else { break };
        read += more;
    }
    read
}

/// The digits of a character, or of its two halves.
fn unicode(text: &[u8]) -> Read<char> {
    let four = |text: &[u8]| digits(text.get(..4)?, 16);
    let first = four(text)?;
    if let Some(char) = char::from_u32(first) {
        return Some((char, 4));
    }
    let (b'\\', mut read) = in_url(rest(text, 4))? else { return None };
    read += 4;
    read += backslashes(rest(text, read));
    let (b'u', more) = in_url(rest(text, read))? else { return None };
    let second = four(rest(text, read + more))?;
    let halves = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let char = char::decode_utf16(halves).next()?.ok()?;
    Some((char, read + more + 4))
}

fn in_url(text: &[u8]) -> Read<u8> {
    let first = *text.first()?;
    if first != b'%' {
        return Some((first, 1));
    }
    let mut read = 1;
    for _ in 0..DEEP {
        if !rest(text, read).starts_with(b"25") {
            break;
        }
        read += 2;
    }
    let byte = text.get(read..read + 2).and_then(|two| digits(two, 16));
    let byte = byte.and_then(|byte| u8::try_from(byte).ok());
    Some(byte.map_or((b'%', read), |byte| (byte, read + 2)))
}

fn digits(text: &[u8], radix: u32) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.iter()
        .try_fold(0, |number, byte| Some(number * radix + char::from(*byte).to_digit(radix)?))
}

/// What follows a position.
pub(super) fn rest(text: &[u8], from: usize) -> &[u8] {
    text.get(from..).unwrap_or_default()
}
