//! Messages of the Jupyter protocol: what they are made of, and that nobody else has made them.

use hmac::{Hmac, KeyInit, Mac};
use osb_core::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use uuid::Uuid;

/// What stands between the addresses of a message and the message.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// The version of the protocol that we speak.
const VERSION: &str = "5.3";

/// What both sides sign with. Other users of the sandbox can reach the ports of a kernel, but do
/// not have this.
#[derive(Debug, Clone)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn random() -> Self {
        Self(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn digest<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Hmac<Sha256> {
        let mut digest = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .expect("invariant: a key of any length will do");
        for part in parts {
            digest.update(part);
        }
        digest
    }
}

/// A message of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// What it is.
    pub(super) kind: String,
    /// What it answers.
    pub(super) parent: String,
    /// JSON.
    content: Vec<u8>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Header<'a> {
    msg_id: &'a str,
    session: &'a str,
    username: &'a str,
    date: String,
    msg_type: &'a str,
    version: &'a str,
}

#[derive(Debug, Deserialize)]
struct Kind {
    msg_type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Parent {
    msg_id: String,
}

impl Message {
    #[cfg(test)]
    pub(super) fn of(kind: &str, parent: &str, content: &Value) -> Self {
        Self { kind: kind.into(), parent: parent.into(), content: content.to_string().into() }
    }

    /// Reads one, unless somebody else has made it or it makes no sense.
    pub(super) fn read(key: &Key, parts: Vec<Vec<u8>>) -> Option<Self> {
        let mut parts = parts.into_iter().skip_while(|part| part != DELIMITER).skip(1);
        let mut part = || parts.next();
        let (signature, header, parent) = (part()?, part()?, part()?);
        let (metadata, content) = (part()?, part()?);
        let signed: [&[u8]; 4] = [&header, &parent, &metadata, &content];
        key.digest(signed).verify_slice(&unhex(&signature)?).ok()?;
        let Kind { msg_type } = serde_json::from_slice(&header).ok()?;
        let Parent { msg_id } = serde_json::from_slice(&parent).unwrap_or_default();
        Some(Self { kind: msg_type, parent: msg_id, content })
    }

    /// What it says, if that is what it should be.
    pub(super) fn content<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_slice(&self.content).ok()
    }
}

/// Makes messages of one client.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) key: Key,
    session: String,
}

impl Writer {
    pub(super) fn new(key: Key) -> Self {
        Self { key, session: Uuid::new_v4().to_string() }
    }

    /// The parts of a message, and its id.
    pub(super) fn write(&self, kind: &str, content: &Value) -> (Vec<Vec<u8>>, String) {
        let id = Uuid::new_v4().to_string();
        let header = Header {
            msg_id: &id,
            session: &self.session,
            username: "execd",
            date: SystemClock.now().to_string(),
            msg_type: kind,
            version: VERSION,
        };
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let content = content.to_string().into_bytes();
        let signed: [&[u8]; 4] = [&header, b"{}", b"{}", &content];
        let signature = hex(&self.key.digest(signed).finalize().into_bytes());
        let parts = vec![
            DELIMITER.to_vec(),
            signature.into_bytes(),
            header,
            b"{}".to_vec(),
            b"{}".to_vec(),
            content,
        ];
        (parts, id)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes whatever it is given.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_signature_is_what_the_protocol_says() {
        let key = Key("key".to_owned());
        let text: &[u8] = b"The quick brown fox jumps over the lazy dog";
        let (first, second) = text.split_at(20);
        let signature = hex(&key.digest([first, second]).finalize().into_bytes());
        assert_eq!(signature, "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let writer = Writer::new(Key::random());
        let (mut parts, _) = writer.write("stream", &json!({"name": "stdout", "text": "é"}));
        parts.insert(0, b"an address".to_vec());
        let message = Message::read(&writer.key, parts).unwrap();
        assert_eq!((&*message.kind, &*message.parent), ("stream", ""));
        let content: Value = message.content().unwrap();
        assert_eq!(content["text"], "é");
    }

    #[test]
    fn what_others_have_signed_is_dropped() {
        let (parts, _) = Writer::new(Key::random()).write("status", &json!({}));
        assert_eq!(Message::read(&Key::random(), parts), None);
    }

    #[test]
    fn keys_are_long_and_differ() {
        assert_eq!(Key::random().as_str().len(), 64);
        assert_ne!(Key::random().as_str(), Key::random().as_str());
    }

    proptest! {
        #[test]
        fn whatever_is_changed_is_noticed(
            part in 1..6_usize,
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let writer = Writer::new(Key::random());
            let (mut parts, _) = writer.write("stream", &json!({"name": "stdout", "text": "x"}));
            let byte = at.index(parts[part].len());
            parts[part][byte] ^= 1 << bit;
            // The case of a digit means nothing.
            prop_assume!(part != 1 || bit != 5 || !parts[1][byte].is_ascii_alphabetic());
            prop_assert_eq!(Message::read(&writer.key, parts), None);
        }

        #[test]
        fn noise_is_no_message(parts: Vec<Vec<u8>>) {
            let all = [vec![DELIMITER.to_vec()], parts].concat();
            prop_assert_eq!(Message::read(&Key::random(), all), None);
        }
    }
}
