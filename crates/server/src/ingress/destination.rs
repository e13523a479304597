use osb_api::{SandboxId, codes};

use super::signature::{Signature, base36, number};
use crate::error::ApiError;

/// One port of one sandbox, as a host, a header or a path names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) id: SandboxId,
    pub(crate) port: u16,
    /// What opens it in place of a token, if the name has one.
    pub(crate) signature: Option<Signature>,
}

impl Destination {
    /// Reads `{port}-{id}`, `{id}-{port}`, or `{id}-{port}-{expires}-{signature}` as
    /// [`Destination::label`] writes it; nothing, if it is none of these. In lower case only.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, ApiError> {
        let mut parts = text.split('-');
        if let (Some(id), Some(at), Some(expires), Some(mac), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        {
            let id = number(id).and_then(SandboxId::from_bits);
            let at = number(at).and_then(|at| u16::try_from(at).ok()).filter(|port| *port != 0);
            let (Some(id), Some(port)) = (id, at) else { return Ok(None) };
            let signature = Some(Signature::parse(expires, mac)?);
            return Ok(Some(Self { id, port, signature }));
        }
        let last = text.rsplit_once('-').map(|(id, at)| (at, id));
        let found = [text.split_once('-'), last].into_iter().flatten().find_map(|(at, id)| {
            Some(Self { port: port(at).ok()?, id: id.parse().ok()?, signature: None })
        });
        Ok(found)
    }

    /// Reads what a path has for a port: `{port}`, or `{port}-{expires}-{signature}`.
    pub(crate) fn at(id: SandboxId, segment: &str) -> Result<Self, ApiError> {
        let Some((at, rest)) = segment.split_once('-') else {
            return Ok(Self { id, port: port(segment)?, signature: None });
        };
        let port = port(at)?;
        let (expires, mac) = rest.split_once('-').ok_or_else(ApiError::signature_invalid)?;
        Ok(Self { id, port, signature: Some(Signature::parse(expires, mac)?) })
    }

    /// What a path has for the port.
    pub(crate) fn segment(&self) -> String {
        match &self.signature {
            Some(signature) => format!("{}-{signature}", self.port),
            None => self.port.to_string(),
        }
    }

    /// One label of a host. With a signature it has room for no digit more: the id is without the
    /// bits that all ids share, and numbers are to the base 36.
    pub(crate) fn label(&self) -> String {
        let Self { id, port, signature } = self;
        match signature {
            Some(signature) => {
                format!("{}-{}-{signature}", base36(id.bits()), base36(u128::from(*port)))
            }
            None => format!("{port}-{id}"),
        }
    }
}

/// A port that can be called.
pub(crate) fn port(text: &str) -> Result<u16, ApiError> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    number.filter(|port| *port != 0).ok_or_else(|| {
        ApiError::invalid_as(codes::INVALID_PORT, "the port must be a number of 1 to 65535")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::LAST_EXPIRY;

    #[test]
    fn a_label_has_at_most_63_bytes_and_says_it_all() {
        let id = SandboxId::from_bits((1 << 122) - 1).unwrap();
        let mac = base36(u128::MAX);
        for (expires, port) in [(LAST_EXPIRY, u16::MAX), (0, 1), (2_000_000_000, 8080)] {
            let signature = Some(Signature::parse(&base36(expires.into()), &mac).unwrap());
            let to = Destination { id, port, signature };
            assert!(to.label().len() <= 63, "{}", to.label());
            assert_eq!(Destination::parse(&to.label()).unwrap(), Some(to));
            assert_eq!(Destination::at(id, &to.segment()).unwrap(), to);
            let plain = Destination { signature: None, ..to };
            assert!(plain.label().len() <= 63);
            assert_eq!(Destination::parse(&plain.label()).unwrap(), Some(plain));
            assert_eq!(Destination::at(id, &plain.segment()).unwrap(), plain);
        }
    }

    #[test]
    fn what_names_no_port_is_nothing() {
        let id = SandboxId::random();
        for text in ["", "-", "---", "a-b-c-d-e", "80", "80-x", "z-0-1-1", "z-1ekg-1-1"] {
            assert_eq!(Destination::parse(text).ok().flatten(), None, "{text}");
        }
        let ids = [format!("{id}"), format!("{id}-"), format!("80-{id}-80"), format!("-{id}-80")];
        for text in ids {
            assert_eq!(Destination::parse(&text).ok().flatten(), None, "{text}");
        }
        for segment in ["", "80-", "80-1", "80--", "80-1-", "80-1-2-3", "x-1-2", "80-A-1"] {
            assert!(Destination::at(id, segment).is_err(), "{segment}");
        }
    }
}
